#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"

#define OCTAL_ID_MAX 07777777
#define OCTAL_NUMBER_MAX UINT64_C(077777777777)
#define NAME_BYTES 100
#define PREFIX_BYTES 155
#define PAX_NAME "PaxHeaders/entry" /* for readers that know no PAX */

void bytes_release(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){ 0 };
}

static uint8_t *bytes_grow(struct bytes *bytes, size_t by) {
    if (bytes->length + by > bytes->capacity) {
        size_t capacity = bytes->capacity ? bytes->capacity : 4096;
        while (capacity < bytes->length + by) capacity *= 2;
        uint8_t *data = realloc(bytes->data, capacity);
        if (!data) return NULL;
        bytes->data = data;
        bytes->capacity = capacity;
    }
    uint8_t *at = bytes->data + bytes->length;
    bytes->length += by;
    return at;
}

static size_t digits_of(size_t value) {
    size_t digits = 1;
    while (value >= 10) {
        value /= 10;
        digits++;
    }
    return digits;
}

/* The length of a record counts its own digits. */
static bool append_record(struct bytes *out, const char *prefix, struct slice key, struct slice value) {
    size_t rest = 1 + strlen(prefix) + key.length + 1 + value.length + 1;
    size_t length = rest + digits_of(rest);
    if (digits_of(length) > digits_of(rest)) length = rest + digits_of(length);
    uint8_t *at = bytes_grow(out, length);
    if (!at) return false;
    char number[24];
    size_t digits = (size_t)snprintf(number, sizeof number, "%zu ", length);
    memcpy(at, number, digits);
    at += digits;
    memcpy(at, prefix, strlen(prefix));
    at += strlen(prefix);
    if (key.length > 0) memcpy(at, key.bytes, key.length);
    at += key.length;
    *at++ = '=';
    if (value.length > 0) memcpy(at, value.bytes, value.length);
    at[value.length] = '\n';
    return true;
}

static bool append_text(struct bytes *out, const char *key, struct slice value) {
    return append_record(out, key, (struct slice){ NULL, 0 }, value);
}

static bool append_number(struct bytes *out, const char *key, int64_t number) {
    char text[24];
    int length = snprintf(text, sizeof text, "%lld", (long long)number);
    return append_text(out, key, (struct slice){ text, (size_t)length });
}

/* Where to cut a long name: 155 bytes, a slash, 100 bytes. 0: it fits whole; the name's length: it cannot be said. */
static size_t split_name(struct slice name) {
    if (name.length <= NAME_BYTES) return 0;
    if (name.length > PREFIX_BYTES + 1 + NAME_BYTES) return name.length;
    size_t first = name.length - NAME_BYTES - 1;
    for (size_t at = first > 0 ? first : 1; at <= PREFIX_BYTES && at + 1 < name.length; at++)
        if (name.bytes[at] == '/') return at;
    return name.length;
}

static void put_octal(uint8_t *field, size_t length, uint64_t value) {
    field[length - 1] = 0;
    for (size_t at = length - 1; at-- > 0; value >>= 3) field[at] = (uint8_t)('0' + (value & 7));
}

static void put_text(uint8_t *field, size_t most, struct slice text) {
    size_t length = text.length < most ? text.length : most;
    if (length > 0) memcpy(field, text.bytes, length);
}

static bool append_header(struct bytes *out, const struct tar_entry *entry, char type) {
    uint8_t *block = bytes_grow(out, TAR_BLOCK);
    if (!block) return false;
    memset(block, 0, TAR_BLOCK);
    size_t cut = split_name(entry->name);
    struct slice tail = entry->name;
    if (cut > 0 && cut < entry->name.length) {
        tail = (struct slice){ entry->name.bytes + cut + 1, entry->name.length - cut - 1 };
        put_text(block + 345, PREFIX_BYTES, (struct slice){ entry->name.bytes, cut });
    }
    put_text(block, NAME_BYTES, tail);
    put_octal(block + 100, 8, entry->mode);
    put_octal(block + 108, 8, entry->uid <= OCTAL_ID_MAX ? entry->uid : 0);
    put_octal(block + 116, 8, entry->gid <= OCTAL_ID_MAX ? entry->gid : 0);
    put_octal(block + 124, 12, entry->size <= OCTAL_NUMBER_MAX ? entry->size : 0);
    bool plain_time = entry->mtime >= 0 && (uint64_t)entry->mtime <= OCTAL_NUMBER_MAX;
    put_octal(block + 136, 12, plain_time ? (uint64_t)entry->mtime : 0);
    memset(block + 148, ' ', 8);
    block[156] = (uint8_t)type;
    put_text(block + 157, NAME_BYTES, entry->link);
    memcpy(block + 257, "ustar\0" "00", 8);
    uint64_t sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++) sum += block[i];
    put_octal(block + 148, 7, sum);
    return true;
}

static bool append_records(struct bytes *out, const struct tar_entry *entry) {
    bool good = true;
    if (split_name(entry->name) == entry->name.length) good = append_text(out, "path", entry->name);
    if (entry->link.length > NAME_BYTES) good = good && append_text(out, "linkpath", entry->link);
    if (entry->size > OCTAL_NUMBER_MAX) good = good && append_number(out, "size", (int64_t)entry->size);
    if (entry->uid > OCTAL_ID_MAX) good = good && append_number(out, "uid", entry->uid);
    if (entry->gid > OCTAL_ID_MAX) good = good && append_number(out, "gid", entry->gid);
    if (entry->mtime < 0 || (uint64_t)entry->mtime > OCTAL_NUMBER_MAX)
        good = good && append_number(out, "mtime", entry->mtime);
    for (size_t i = 0; i < entry->xattr_count; i++)
        good = good && append_record(out, "SCHILY.xattr.", entry->xattrs[i].name, entry->xattrs[i].value);
    return good;
}

/* The records come after a header that tells their size: they are made first, and the header is put before them. */
static bool append_extension(struct bytes *out, const struct tar_entry *entry) {
    size_t start = out->length;
    if (!append_records(out, entry)) return false;
    size_t length = out->length - start;
    if (length == 0) return true;
    size_t padding = (size_t)tar_padding(length);
    uint8_t *pad = bytes_grow(out, padding);
    if (!pad) return false;
    memset(pad, 0, padding);
    struct tar_entry extension = {
        .name = { PAX_NAME, strlen(PAX_NAME) },
        .mode = 0644,
        .size = length,
    };
    if (!append_header(out, &extension, 'x')) return false;
    uint8_t header[TAR_BLOCK];
    memcpy(header, out->data + out->length - TAR_BLOCK, TAR_BLOCK);
    memmove(out->data + start + TAR_BLOCK, out->data + start, length + padding);
    memcpy(out->data + start, header, TAR_BLOCK);
    return true;
}

bool tar_encode(struct bytes *out, const struct tar_entry *entry) {
    static const char TYPES[] = {
        [TAR_FILE] = '0', [TAR_DIRECTORY] = '5', [TAR_SYMLINK] = '2',      [TAR_HARDLINK] = '1',
        [TAR_CHAR] = '3', [TAR_FIFO] = '6',      [TAR_BLOCK_DEVICE] = '4',
    };
    return append_extension(out, entry) && append_header(out, entry, TYPES[entry->kind]);
}
