/*
 * Reads arbitrary bytes as an archive, and checks what must hold whatever comes: slices stay inside what was read, clean
 * names lead nowhere else, and what is packed again reads as the same entry.
 */
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "path.h"

#define ENTRIES_MAX 256

static void check_slice(struct slice slice) {
    volatile char sink = 0;
    for (size_t i = 0; i < slice.length; i++) sink = (char)(sink ^ slice.bytes[i]);
}

static void check_clean(const char *path) {
    if (path[0] == '/' || strstr(path, "//") || strlen(path) >= PATH_BYTES) abort();
    for (const char *at = path; *at;) {
        size_t run = strcspn(at, "/");
        if (run == 0 || run > COMPONENT_BYTES) abort();
        if (at[0] == '.' && (run == 1 || (run == 2 && at[1] == '.'))) abort();
        at += run;
        if (*at == '/' && !*++at) abort();
    }
}

static void check_selections(const char *path) {
    static const char *const GLOBS[] = { "a", "a/*", "**", "a/**/b", "*/b", "[a-", "?", ".", "**/**/x*" };
    for (size_t i = 0; i < sizeof GLOBS / sizeof *GLOBS; i++) {
        static struct selection selection;
        if (selection_parse(GLOBS[i], &selection).code) abort();
        for (int as = 0; as < 2; as++) {
            char out[PATH_BYTES];
            selection.as = as ? "name" : NULL;
            if (selection_map(&selection, path, false, out)) check_clean(out);
            if (selection_map(&selection, path, true, out)) check_clean(out);
        }
    }
}

static bool same(struct slice a, struct slice b) {
    return a.length == b.length && (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

/* What we write, we read; a name of a file that ends in a slash, or is empty, is none that we would write. */
static void check_round_trip(const struct tar_entry *entry) {
    static struct tar_parser parser;
    struct bytes out = { 0 };
    struct tar_entry again = { 0 };
    if (!tar_encode(&out, entry) || out.length % TAR_BLOCK != 0) abort();
    enum tar_step step = TAR_ZERO;
    for (size_t at = 0; at < out.length;) {
        step = tar_parse_block(&parser, out.data + at, &again);
        at += TAR_BLOCK;
        if (step != TAR_META) break;
        memcpy(parser.meta, out.data + at, parser.meta_length);
        at += parser.meta_length + tar_padding(parser.meta_length);
        if (!tar_parse_meta(&parser)) abort();
    }
    if (step != TAR_ENTRY || again.kind != entry->kind || again.size != entry->size || again.mode != entry->mode) abort();
    if (!same(again.name, entry->name) || !same(again.link, entry->link)) abort();
    if (again.uid != entry->uid || again.gid != entry->gid || again.mtime != entry->mtime) abort();
    if (again.xattr_count != entry->xattr_count) abort();
    for (size_t i = 0; i < again.xattr_count; i++)
        if (!same(again.xattrs[i].name, entry->xattrs[i].name) || !same(again.xattrs[i].value, entry->xattrs[i].value))
            abort();
    bytes_release(&out);
    tar_parser_release(&parser);
}

static void check_entry(const struct tar_entry *entry) {
    char path[PATH_BYTES];
    check_slice(entry->name);
    check_slice(entry->link);
    size_t extensions = entry->name.length + entry->link.length + 256;
    for (size_t i = 0; i < entry->xattr_count; i++) {
        check_slice(entry->xattrs[i].name);
        check_slice(entry->xattrs[i].value);
        extensions += entry->xattrs[i].name.length + entry->xattrs[i].value.length + 32;
    }
    if (!path_clean(entry->link, COMPONENTS_MAX, path).code) check_clean(path);
    if (path_clean(entry->name, COMPONENTS_MAX, path).code) return;
    check_clean(path);
    check_selections(path);
    bool slash = entry->name.bytes[entry->name.length - 1] == '/';
    bool sayable = entry->kind == TAR_FILE || entry->kind == TAR_DIRECTORY || !slash;
    if (memchr(entry->link.bytes, 0, entry->link.length) || entry->size > INT64_MAX) return;
    if (sayable && extensions < TAR_META_MAX) check_round_trip(entry);
}

/* Right checksums are beyond a fuzzer's luck, so blocks get one, unless a mark asks to leave them as they are. */
static void repair_checksum(uint8_t block[TAR_BLOCK]) {
    static const uint8_t ZERO[TAR_BLOCK];
    if (block[155] == '?' || memcmp(block, ZERO, TAR_BLOCK) == 0) return;
    unsigned sum = 0;
    memset(block + 148, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK; i++) sum += block[i];
    for (size_t i = 6; i-- > 0; sum >>= 3) block[148 + i] = (uint8_t)('0' + (sum & 7));
    block[154] = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static struct tar_parser parser;
    size_t at = 0;
    for (size_t entries = 0; entries < ENTRIES_MAX && length - at >= TAR_BLOCK; entries++) {
        uint8_t block[TAR_BLOCK];
        memcpy(block, bytes + at, TAR_BLOCK);
        at += TAR_BLOCK;
        repair_checksum(block);
        struct tar_entry entry;
        enum tar_step step = tar_parse_block(&parser, block, &entry);
        if (step == TAR_REFUSED) {
            if (!parser.problem.code || !parser.problem.text) abort();
            break;
        }
        uint64_t content = 0;
        if (step == TAR_META) {
            if (parser.meta_length > TAR_META_MAX) abort();
            if (parser.meta_length > length - at) break;
            memcpy(parser.meta, bytes + at, parser.meta_length);
            content = parser.meta_length;
            if (!tar_parse_meta(&parser)) break;
        }
        if (step == TAR_ENTRY) {
            check_entry(&entry);
            content = entry.size;
        }
        if (content > length - at) break;
        content += tar_padding(content);
        at = content > length - at ? length : at + (size_t)content;
    }
    tar_parser_release(&parser);
    return 0;
}
