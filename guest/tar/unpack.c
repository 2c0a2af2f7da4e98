#include "unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "owner.h"
#include "report.h"
#include "root.h"

static void clean(struct slice name, size_t max_components, char out[PATH_BYTES]) {
    struct problem problem = path_clean(name, max_components, out);
    if (problem.code) fail(problem.code, problem.text);
}

/* Where an entry of this (clean) name goes, or false if it is not wanted. */
static bool destination(const struct unpack *unpack, const char *name, bool is_directory, char out[PATH_BYTES]) {
    const struct unpack_options *options = unpack->options;
    char mapped[PATH_BYTES];
    bool wanted = options->selected_count == 0;
    if (wanted) strcpy(mapped, name);
    for (size_t i = 0; i < options->selected_count && !wanted; i++)
        wanted = selection_map(&unpack->selections[i], name, is_directory, mapped);
    if (!wanted) return false;
    if (!path_join(unpack->prefix, mapped, out)) fail("too_large", "a name is over 4095 bytes");
    return true;
}

/* `cp FILE PLACE` puts the file into PLACE if that is a directory. */
static void enter_existing_directory(const struct unpack *unpack, const char *name, char path[PATH_BYTES]) {
    if (!unpack->options->as || !unpack->options->merge) return;
    char place[PATH_BYTES];
    if (!path_join(unpack->prefix, unpack->options->as, place) || strcmp(place, path) != 0) return;
    int fd = root_open_at(path, O_PATH | O_DIRECTORY);
    if (fd < 0) return;
    close(fd);
    if (!path_join(place, path_base(name), path)) fail("too_large", "a name is over 4095 bytes");
}

static void place_link(const struct unpack *unpack, const char *path, const struct tar_entry *entry) {
    char name[PATH_BYTES];
    char target[PATH_BYTES];
    clean(entry->link, unpack->options->max_depth, name);
    if (!destination(unpack, name, false, target))
        fail("unsupported", "it is a hard link to something that is not selected");
    if (!*target) fail("hostile", "it is a hard link to a directory");
    place_hardlink(path, target);
}

static void place(struct unpack *unpack, const struct tar_entry *entry) {
    char name[PATH_BYTES];
    char path[PATH_BYTES];
    clean(entry->name, unpack->options->max_depth, name);
    bool is_directory = entry->kind == TAR_DIRECTORY;
    if (!is_directory && !*name) fail("hostile", "it stands in the place of the whole tree");
    if (!destination(unpack, name, is_directory, path)) {
        input_skip(entry->size);
        return;
    }
    unpack->entries++;
    /* The top is the caller's: its mode and owner are not the archive's business. */
    if (strcmp(path, unpack->prefix) == 0) {
        if (!is_directory) fail("hostile", "it stands in the place of the whole tree");
        return;
    }
    if (!is_directory) enter_existing_directory(unpack, name, path);
    if (unpack->options->overlay_deletions && place_deletion(unpack, path)) {
        input_skip(entry->size);
        return;
    }
    switch (entry->kind) {
    case TAR_FILE: place_file(unpack, path, entry); break;
    case TAR_DIRECTORY: place_directory(unpack, path, entry); break;
    case TAR_SYMLINK: place_symlink(unpack, path, entry); break;
    case TAR_HARDLINK: place_link(unpack, path, entry); break;
    case TAR_FIFO: place_fifo(unpack, path, entry); break;
    case TAR_CHAR:
    case TAR_BLOCK_DEVICE: unpack->skipped_devices++; break;
    }
}

/* Skipped content counts too: it takes time, if not space. */
static void count(const struct unpack_options *options, uint64_t size, uint64_t *headers, uint64_t *content) {
    if (++*headers > options->max_entries) fail("too_large", "the archive has more entries than allowed");
    if (size > options->max_bytes - *content) fail("too_large", "the archive holds more bytes than allowed");
    *content += size;
}

static void end_of_input(const struct unpack *unpack, bool complete, uint64_t headers) {
    report_entry((struct slice){ NULL, 0 });
    if (complete) return;
    if (!unpack->options->lenient_end || headers == 0)
        fail("truncated", "the archive ends without its end-of-archive marker");
}

static void read_archive(struct unpack *unpack) {
    static struct tar_parser parser;
    uint64_t headers = 0;
    uint64_t content = 0;
    bool zero_seen = false;
    for (;;) {
        const uint8_t *block = input_block();
        if (!block) {
            if (parser.entry_expected) fail("truncated", "the archive ends after an extension header");
            end_of_input(unpack, false, headers);
            break;
        }
        struct tar_entry entry;
        enum tar_step step = tar_parse_block(&parser, block, &entry);
        if (step == TAR_ZERO) {
            if (zero_seen) {
                end_of_input(unpack, true, headers);
                input_drain(unpack->options->max_bytes);
                break;
            }
            zero_seen = true;
            continue;
        }
        if (step == TAR_REFUSED) fail(parser.problem.code, parser.problem.text);
        if (zero_seen) fail("corrupt", "an entry follows half of an end-of-archive marker");
        if (step == TAR_META) {
            /* Those of an entry are bounded together; a global one stands alone. */
            if (parser.meta_type == 'g') count(unpack->options, 0, &headers, &content);
            size_t length = parser.meta_length;
            input_copy(parser.meta, length);
            input_skip(tar_padding(length));
            if (!tar_parse_meta(&parser)) fail(parser.problem.code, parser.problem.text);
            continue;
        }
        report_entry(entry.name);
        count(unpack->options, entry.size, &headers, &content);
        place(unpack, &entry);
        input_skip(tar_padding(entry.size));
    }
    tar_parser_release(&parser);
}

static void prepare_selections(struct unpack *unpack) {
    const struct unpack_options *options = unpack->options;
    if (options->selected_count == 0) {
        if (options->as) fail("usage", "--as needs --select");
        return;
    }
    unpack->selections = allocate(NULL, options->selected_count * sizeof *unpack->selections);
    for (size_t i = 0; i < options->selected_count; i++) {
        struct problem problem = selection_parse(options->selected[i], &unpack->selections[i]);
        if (problem.code) fail(problem.code, "--select is no usable pattern");
        unpack->selections[i].as = options->as;
    }
    if (!options->as) return;
    char name[PATH_BYTES];
    struct slice as = { options->as, strlen(options->as) };
    if (path_clean(as, 1, name).code || strcmp(name, options->as) != 0) fail("usage", "--as is one name");
    if (options->selected_count > 1 || selection_has_wildcard(&unpack->selections[0]))
        fail("usage", "--as needs one --select without wildcards");
}

static void prepare_owner(struct unpack *unpack) {
    const struct unpack_options *options = unpack->options;
    struct directory_defaults defaults = { .mode = 0755 };
    if (options->has_mode) {
        const struct tar_entry directory = { .kind = TAR_DIRECTORY };
        defaults.mode = mode_of(unpack, &directory);
    }
    if (options->owner) {
        owner_parse(options->owner, options->root != NULL, &unpack->uid, &unpack->gid);
        defaults.owned = unpack->is_root;
        defaults.uid = unpack->uid;
        defaults.gid = unpack->gid;
    }
    root_directory_defaults(defaults);
}

static void prepare_root(struct unpack *unpack) {
    const struct unpack_options *options = unpack->options;
    struct root_options root = {
        .path = options->root ? options->root : options->into,
        .merge = options->merge,
        .overlay_deletions = options->overlay_deletions,
    };
    if (options->root) clean((struct slice){ options->into, strlen(options->into) }, COMPONENTS_MAX, unpack->prefix);
    else if (options->make) fail("usage", "--make needs --root");
    root_open(&root);
    /* Names are looked up before, the system's own files are out of sight afterwards. */
    prepare_owner(unpack);
    if (options->confine) root_confine();
    if (options->make) root_make(unpack->prefix);
}

int unpack_main(const struct unpack_options *options) {
    struct unpack unpack = { .options = options, .is_root = geteuid() == 0 };
    umask(0);
    prepare_selections(&unpack);
    prepare_root(&unpack);
    input_open();
    read_archive(&unpack);
    finish_directories();
    report_entry((struct slice){ NULL, 0 });
    if (options->selected_count > 0 && unpack.entries == 0) fail("no_match", "nothing in the archive is selected");
    free(unpack.selections);
    printf("{\"entries\":%llu,\"bytes\":%llu,\"files\":%llu,\"skippedDevices\":%llu,\"skippedXattrs\":%llu%s}\n",
           (unsigned long long)unpack.entries, (unsigned long long)unpack.bytes, (unsigned long long)unpack.files,
           (unsigned long long)unpack.skipped_devices, (unsigned long long)unpack.skipped_xattrs,
           unpack.opaque ? ",\"opaque\":true" : "");
    if (fflush(stdout) != 0) fail_errno("report");
    return 0;
}
