#include "format.h"

#include <stdlib.h>
#include <string.h>

/* Where the fields of a header are. */
enum {
    NAME = 0,
    NAME_LENGTH = 100,
    MODE = 100,
    UID = 108,
    GID = 116,
    ID_LENGTH = 8,
    SIZE = 124,
    MTIME = 136,
    NUMBER_LENGTH = 12,
    CHECKSUM = 148,
    TYPE = 156,
    LINK = 157,
    MAGIC = 257,
    PREFIX = 345,
    PREFIX_LENGTH = 155,
};

#define ID_LIMIT UINT64_C(0xffffffff) /* (uid_t)-1 is no id */

static bool refuse(struct tar_parser *parser, const char *code, const char *text) {
    parser->problem = (struct problem){ code, text };
    return false;
}

void tar_parser_release(struct tar_parser *parser) {
    free(parser->local.bytes);
    free(parser->global.bytes);
    memset(parser, 0, sizeof *parser);
}

/* Octal digits between spaces or NULs, or, marked by the highest bit, a big-endian two's complement number. */
static bool parse_number(const uint8_t *field, size_t length, int64_t *out) {
    if (field[0] & 0x80) {
        uint64_t value = field[0] & 0x40 ? UINT64_MAX : 0;
        for (size_t i = 0; i < length; i++) {
            uint8_t byte = i == 0 ? (uint8_t)((field[0] & 0x7f) | (field[0] & 0x40) << 1) : field[i];
            uint64_t top = value >> 55; /* these nine bits must all be the sign, or it does not fit */
            if (top != 0 && top != 0x1ff) return false;
            value = value << 8 | byte;
        }
        *out = (int64_t)value;
        return true;
    }
    size_t at = 0;
    while (at < length && field[at] == ' ') at++;
    uint64_t value = 0;
    for (; at < length && field[at] >= '0' && field[at] <= '7'; at++) value = value << 3 | (uint64_t)(field[at] - '0');
    for (; at < length; at++)
        if (field[at] != ' ' && field[at] != 0) return false;
    *out = (int64_t)value;
    return true;
}

static bool checksum_matches(const uint8_t block[TAR_BLOCK]) {
    int64_t stored;
    if (!parse_number(block + CHECKSUM, 8, &stored)) return false;
    int64_t sum = 0;
    int64_t sum_of_signed = 0; /* what some old programs computed */
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        uint8_t byte = i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : block[i];
        sum += byte;
        sum_of_signed += (int8_t)byte;
    }
    return stored == sum || stored == sum_of_signed;
}

static bool is_zero(const uint8_t block[TAR_BLOCK]) {
    for (size_t i = 0; i < TAR_BLOCK; i++)
        if (block[i] != 0) return false;
    return true;
}

static size_t field_length(const uint8_t *field, size_t most) {
    const uint8_t *end = memchr(field, 0, most);
    return end ? (size_t)(end - field) : most;
}

static struct slice header_name(struct tar_parser *parser, const uint8_t block[TAR_BLOCK]) {
    size_t length = 0;
    /* GNU's magic ends in spaces, and it keeps other things where the prefix is. */
    if (memcmp(block + MAGIC, "ustar", 6) == 0) {
        length = field_length(block + PREFIX, PREFIX_LENGTH);
        memcpy(parser->name, block + PREFIX, length);
        if (length > 0) parser->name[length++] = '/';
    }
    size_t rest = field_length(block + NAME, NAME_LENGTH);
    memcpy(parser->name + length, block + NAME, rest);
    return (struct slice){ parser->name, length + rest };
}

static struct slice header_link(struct tar_parser *parser, const uint8_t block[TAR_BLOCK]) {
    size_t length = field_length(block + LINK, NAME_LENGTH);
    memcpy(parser->link, block + LINK, length);
    return (struct slice){ parser->link, length };
}

static bool id_from(struct tar_parser *parser, const uint8_t *field, bool overridden, uint32_t by, uint32_t *out) {
    int64_t value;
    *out = by;
    if (overridden) return true;
    if (!parse_number(field, ID_LENGTH, &value)) return refuse(parser, "corrupt", "a user or group id is not a number");
    if (value < 0 || (uint64_t)value >= ID_LIMIT)
        return refuse(parser, "hostile", "a user or group id is out of range");
    *out = (uint32_t)value;
    return true;
}

/* What local headers say goes before what global ones say, and both before the header itself. */
static bool fill_numbers(struct tar_parser *parser, const uint8_t block[TAR_BLOCK], struct tar_entry *entry) {
    const struct tar_overrides *local = &parser->local.overrides;
    const struct tar_overrides *global = &parser->global.overrides;
    int64_t mode;
    if (!parse_number(block + MODE, ID_LENGTH, &mode)) return refuse(parser, "corrupt", "the mode is not a number");
    entry->mode = (uint32_t)(mode & 07777);
    bool known = local->has_uid || global->has_uid;
    if (!id_from(parser, block + UID, known, local->has_uid ? local->uid : global->uid, &entry->uid)) return false;
    known = local->has_gid || global->has_gid;
    if (!id_from(parser, block + GID, known, local->has_gid ? local->gid : global->gid, &entry->gid)) return false;
    const struct tar_overrides *times = local->has_mtime ? local : global->has_mtime ? global : NULL;
    entry->mtime_nsec = times ? times->mtime_nsec : 0;
    if (times) entry->mtime = times->mtime;
    else if (!parse_number(block + MTIME, NUMBER_LENGTH, &entry->mtime))
        return refuse(parser, "corrupt", "the modification time is not a number");
    int64_t size;
    if (!parse_number(block + SIZE, NUMBER_LENGTH, &size)) return refuse(parser, "corrupt", "the size is not a number");
    if (size < 0 && !local->has_size) return refuse(parser, "hostile", "the size is negative");
    entry->size = local->has_size ? local->size : (uint64_t)size;
    return true;
}

static bool fill_kind(struct tar_parser *parser, uint8_t type, struct tar_entry *entry) {
    bool slash = entry->name.length > 0 && entry->name.bytes[entry->name.length - 1] == '/';
    switch (type) {
    case 0:
    case '0':
    case '7':
        /* Before there was a type for directories, the slash said it. */
        entry->kind = slash ? TAR_DIRECTORY : TAR_FILE;
        if (slash && entry->size > 0) return refuse(parser, "hostile", "a file's name ends in a slash");
        break;
    case '1': entry->kind = TAR_HARDLINK; break;
    case '2': entry->kind = TAR_SYMLINK; break;
    case '3': entry->kind = TAR_CHAR; break;
    case '4': entry->kind = TAR_BLOCK_DEVICE; break;
    case '5': entry->kind = TAR_DIRECTORY; break;
    case '6': entry->kind = TAR_FIFO; break;
    case 'S': return refuse(parser, "unsupported", "sparse files (old GNU format) are not supported");
    case 'D': return refuse(parser, "unsupported", "GNU incremental dumps are not supported");
    case 'M': return refuse(parser, "unsupported", "GNU multi-volume archives are not supported");
    case 'V': return refuse(parser, "unsupported", "GNU volume labels are not supported");
    case 'N': return refuse(parser, "unsupported", "old GNU long names are not supported");
    case 'X': return refuse(parser, "unsupported", "Solaris extended headers are not supported");
    default: return refuse(parser, "unsupported", "an entry is of an unknown type");
    }
    /* Every other reader takes these for entries without content, whatever their header says. */
    if (entry->kind != TAR_FILE) entry->size = 0;
    return true;
}

static enum tar_step begin_meta(struct tar_parser *parser, const uint8_t block[TAR_BLOCK], char type) {
    struct tar_meta *meta = type == 'g' ? &parser->global : &parser->local;
    int64_t size;
    if (!parse_number(block + SIZE, NUMBER_LENGTH, &size) || size < 0) {
        refuse(parser, "corrupt", "the size of an extension header is not a number");
        return TAR_REFUSED;
    }
    if ((uint64_t)size > TAR_META_MAX - meta->used) {
        refuse(parser, "too_large", "the extension headers are over 1 MiB");
        return TAR_REFUSED;
    }
    if (!meta->bytes) meta->bytes = malloc(TAR_META_MAX);
    if (!meta->bytes) {
        refuse(parser, "ENOMEM", "no memory for extension headers");
        return TAR_REFUSED;
    }
    parser->meta_type = type;
    parser->meta = meta->bytes + meta->used;
    parser->meta_length = (size_t)size;
    meta->used += (size_t)size;
    if (type != 'g') parser->entry_expected = true;
    return TAR_META;
}

/* GNU's long names end at a NUL; nothing may hide behind it. */
static bool take_long_name(struct tar_parser *parser, bool *has, struct slice *out) {
    const char *end = memchr(parser->meta, 0, parser->meta_length);
    size_t length = end ? (size_t)(end - parser->meta) : parser->meta_length;
    for (size_t i = length; i < parser->meta_length; i++)
        if (parser->meta[i] != 0) return refuse(parser, "hostile", "a long name holds a NUL");
    if (*has) return true; /* a PAX header said it */
    *has = true;
    *out = (struct slice){ parser->meta, length };
    return true;
}

bool tar_parse_meta(struct tar_parser *parser) {
    struct tar_overrides *local = &parser->local.overrides;
    struct slice records = { parser->meta, parser->meta_length };
    switch (parser->meta_type) {
    case 'L': return take_long_name(parser, &local->has_path, &local->path);
    case 'K': return take_long_name(parser, &local->has_link, &local->link);
    case 'g': {
        if (parser->entry_expected)
            return refuse(parser, "corrupt", "a global header stands between an extension header and its entry");
        bool good = pax_parse(parser, records, &parser->global.overrides, true);
        parser->global_xattr_count = parser->xattr_count;
        return good;
    }
    default: return pax_parse(parser, records, local, false);
    }
}

enum tar_step tar_parse_block(struct tar_parser *parser, const uint8_t block[TAR_BLOCK], struct tar_entry *entry) {
    if (parser->entry_given) {
        parser->local.used = 0;
        parser->local.overrides = (struct tar_overrides){ 0 };
        parser->xattr_count = parser->global_xattr_count;
        parser->entry_given = false;
    }
    if (is_zero(block)) {
        if (!parser->entry_expected) return TAR_ZERO;
        refuse(parser, "truncated", "the archive ends after an extension header");
        return TAR_REFUSED;
    }
    if (!checksum_matches(block)) {
        refuse(parser, "corrupt", "a header's checksum is wrong");
        return TAR_REFUSED;
    }
    uint8_t type = block[TYPE];
    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') return begin_meta(parser, block, (char)type);

    const struct tar_overrides *local = &parser->local.overrides;
    *entry = (struct tar_entry){ 0 };
    entry->name = local->has_path ? local->path : header_name(parser, block);
    entry->link = local->has_link ? local->link : header_link(parser, block);
    parser->entry_expected = false;
    parser->entry_given = true;
    if (!fill_numbers(parser, block, entry) || !fill_kind(parser, type, entry)) return TAR_REFUSED;
    entry->xattrs = parser->xattrs;
    entry->xattr_count = parser->xattr_count;
    return TAR_ENTRY;
}
