/* PAX records: `LENGTH KEY=VALUE\n`, LENGTH counting all of it. */
#include <string.h>

#include "format.h"

#define ID_LIMIT UINT64_C(0xffffffff)
#define SECONDS_MAX (UINT64_C(1) << 62)

static bool refuse(struct tar_parser *parser, const char *code, const char *text) {
    parser->problem = (struct problem){ code, text };
    return false;
}

static bool is(struct slice text, const char *other) {
    return text.length == strlen(other) && memcmp(text.bytes, other, text.length) == 0;
}

static bool starts(struct slice text, const char *other) {
    return text.length >= strlen(other) && memcmp(text.bytes, other, strlen(other)) == 0;
}

/* Takes digits off the front; at least one, and not over `most`. */
static bool take_digits(struct slice *text, uint64_t most, uint64_t *out) {
    size_t at = 0;
    uint64_t value = 0;
    for (; at < text->length && text->bytes[at] >= '0' && text->bytes[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(text->bytes[at] - '0');
        if (value > (most - digit) / 10) return false;
        value = value * 10 + digit;
    }
    text->bytes += at;
    text->length -= at;
    *out = value;
    return at > 0;
}

static bool parse_whole(struct slice text, uint64_t most, uint64_t *out) {
    return take_digits(&text, most, out) && text.length == 0;
}

/* `-12.5` is thirteen seconds before, and half a second after that. */
static bool parse_time(struct slice text, int64_t *seconds, uint32_t *nanoseconds) {
    bool negative = text.length > 0 && text.bytes[0] == '-';
    if (negative) {
        text.bytes++;
        text.length--;
    }
    uint64_t whole;
    if (!take_digits(&text, SECONDS_MAX, &whole)) return false;
    uint32_t fraction = 0;
    if (text.length > 0) {
        if (text.bytes[0] != '.') return false;
        uint32_t unit = 100000000;
        for (size_t i = 1; i < text.length; i++, unit /= 10) {
            if (text.bytes[i] < '0' || text.bytes[i] > '9') return false;
            fraction += (uint32_t)(text.bytes[i] - '0') * unit;
        }
    }
    *seconds = negative ? -(int64_t)whole : (int64_t)whole;
    *nanoseconds = fraction;
    if (negative && fraction > 0) {
        *seconds -= 1;
        *nanoseconds = 1000000000 - fraction;
    }
    return true;
}

static bool take_name(struct tar_parser *parser, struct slice value, bool *has, struct slice *out) {
    if (memchr(value.bytes, 0, value.length)) return refuse(parser, "hostile", "a name in a PAX header holds a NUL");
    *has = true;
    *out = value;
    return true;
}

static bool take_id(struct tar_parser *parser, struct slice value, bool *has, uint32_t *out) {
    uint64_t id;
    if (!parse_whole(value, ID_LIMIT - 1, &id))
        return refuse(parser, "hostile", "a user or group id in a PAX header is not a number in range");
    *has = true;
    *out = (uint32_t)id;
    return true;
}

static bool take_xattr(struct tar_parser *parser, struct slice name, struct slice value) {
    if (name.length == 0 || memchr(name.bytes, 0, name.length))
        return refuse(parser, "hostile", "the name of an extended attribute is empty or holds a NUL");
    if (parser->xattr_count == TAR_XATTRS_MAX)
        return refuse(parser, "too_large", "an entry has over 1024 extended attributes");
    parser->xattrs[parser->xattr_count++] = (struct tar_xattr){ name, value };
    return true;
}

static bool take_record(struct tar_parser *parser, struct slice key, struct slice value, struct tar_overrides *overrides,
                        bool global) {
    static const char XATTR[] = "SCHILY.xattr.";
    if (starts(key, XATTR)) {
        struct slice name = { key.bytes + strlen(XATTR), key.length - strlen(XATTR) };
        return take_xattr(parser, name, value);
    }
    if (starts(key, "GNU.sparse.") || is(key, "SCHILY.realsize"))
        return refuse(parser, "unsupported", "sparse files (PAX format) are not supported");
    bool own = is(key, "path") || is(key, "linkpath") || is(key, "size");
    if (own && global) return refuse(parser, "hostile", "a global header gives every entry one name or size");
    /* An empty value takes back what an earlier header said; the names and sizes are the entry's own again. */
    bool empty = value.length == 0;
    if (is(key, "path")) {
        overrides->has_path = false;
        return empty || take_name(parser, value, &overrides->has_path, &overrides->path);
    }
    if (is(key, "linkpath")) {
        overrides->has_link = false;
        return empty || take_name(parser, value, &overrides->has_link, &overrides->link);
    }
    if (is(key, "size")) {
        overrides->has_size = !empty;
        if (empty || parse_whole(value, INT64_MAX, &overrides->size)) return true;
        return refuse(parser, "hostile", "the size in a PAX header is not a number in range");
    }
    if (is(key, "uid")) {
        overrides->has_uid = false;
        return empty || take_id(parser, value, &overrides->has_uid, &overrides->uid);
    }
    if (is(key, "gid")) {
        overrides->has_gid = false;
        return empty || take_id(parser, value, &overrides->has_gid, &overrides->gid);
    }
    if (is(key, "mtime")) {
        overrides->has_mtime = !empty;
        if (empty || parse_time(value, &overrides->mtime, &overrides->mtime_nsec)) return true;
        return refuse(parser, "corrupt", "the modification time in a PAX header is not a number");
    }
    return true; /* times, names of users, comments: nothing that we keep */
}

bool pax_parse(struct tar_parser *parser, struct slice records, struct tar_overrides *overrides, bool global) {
    while (records.length > 0) {
        struct slice rest = records;
        uint64_t length;
        if (!take_digits(&rest, TAR_META_MAX, &length) || length > records.length || rest.length == 0 ||
            rest.bytes[0] != ' ')
            return refuse(parser, "corrupt", "a PAX record's length is wrong");
        const char *end = records.bytes + length;
        const char *key = rest.bytes + 1;
        if (key >= end || end[-1] != '\n') return refuse(parser, "corrupt", "a PAX record does not end where it says");
        const char *equals = memchr(key, '=', (size_t)(end - 1 - key));
        if (!equals || equals == key) return refuse(parser, "corrupt", "a PAX record has no key");
        struct slice key_text = { key, (size_t)(equals - key) };
        struct slice value = { equals + 1, (size_t)(end - 1 - (equals + 1)) };
        if (!take_record(parser, key_text, value, overrides, global)) return false;
        records.bytes += length;
        records.length -= (size_t)length;
    }
    return true;
}
