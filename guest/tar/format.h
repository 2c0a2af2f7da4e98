/*
 * The tar format as pure functions: blocks in, entries out, and back. Nothing here reads, writes or keeps global state.
 *
 * A reader gives each block to tar_parse_block(). On TAR_META it fills `parser.meta` with `parser.meta_length` bytes (and
 * drops the padding), then calls tar_parse_meta(). On TAR_ENTRY the entry's `size` bytes of content follow.
 */
#ifndef HOLDFAST_TAR_FORMAT_H
#define HOLDFAST_TAR_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512
/* All extension headers of one entry together; the same again for global ones of the whole archive. */
#define TAR_META_MAX (1024 * 1024)
#define TAR_XATTRS_MAX 1024

/* The kernel's limits, which musl's headers do not carry. */
#define XATTR_NAME_BYTES 255
#define XATTR_VALUE_BYTES 65536
#define XATTR_LIST_BYTES 65536

/* Static texts; `code` NULL means no problem. */
struct problem {
    const char *code;
    const char *text;
};

struct slice {
    const char *bytes;
    size_t length;
};

enum tar_kind { TAR_FILE, TAR_DIRECTORY, TAR_SYMLINK, TAR_HARDLINK, TAR_CHAR, TAR_BLOCK_DEVICE, TAR_FIFO };

struct tar_xattr {
    struct slice name;
    struct slice value;
};

/* As the archive says it: names are not yet judged. Slices live until the next block is parsed. */
struct tar_entry {
    enum tar_kind kind;
    struct slice name;
    struct slice link;
    uint32_t mode; /* permission, set-id and sticky bits */
    uint32_t uid;
    uint32_t gid;
    uint64_t size; /* of the content that follows: 0 for everything but files */
    int64_t mtime;
    uint32_t mtime_nsec;
    const struct tar_xattr *xattrs; /* the last one of a name counts */
    size_t xattr_count;
};

/* What extension headers say. */
struct tar_overrides {
    bool has_path, has_link, has_size, has_uid, has_gid, has_mtime;
    struct slice path;
    struct slice link;
    uint64_t size;
    uint32_t uid;
    uint32_t gid;
    int64_t mtime;
    uint32_t mtime_nsec;
};

struct tar_meta {
    char *bytes; /* TAR_META_MAX of them, or NULL before the first use */
    size_t used;
    struct tar_overrides overrides;
};

struct tar_parser {
    struct tar_meta local;
    struct tar_meta global;
    struct tar_xattr xattrs[TAR_XATTRS_MAX]; /* global ones first */
    size_t xattr_count;
    size_t global_xattr_count;
    char name[257]; /* prefix, slash and name of a ustar header */
    char link[101];
    bool entry_given;    /* what belongs to the former entry is to be forgotten */
    bool entry_expected; /* an extension header waits for its entry */
    /* TAR_META */
    char meta_type;
    char *meta;
    size_t meta_length;
    /* TAR_REFUSED */
    struct problem problem;
};

enum tar_step { TAR_ENTRY, TAR_META, TAR_ZERO, TAR_REFUSED };

/* A parser starts as zeros. */
void tar_parser_release(struct tar_parser *parser);
enum tar_step tar_parse_block(struct tar_parser *parser, const uint8_t block[TAR_BLOCK], struct tar_entry *entry);
bool tar_parse_meta(struct tar_parser *parser);

/* pax.c: reads records into `overrides`, and xattrs into the parser. */
bool pax_parse(struct tar_parser *parser, struct slice records, struct tar_overrides *overrides, bool global);

/* encode.c: appends the entry's headers, the extension header only if plain ustar cannot say it. */
struct bytes {
    uint8_t *data;
    size_t length;
    size_t capacity;
};
void bytes_release(struct bytes *bytes);
/* False: no memory. */
bool tar_encode(struct bytes *out, const struct tar_entry *entry);

static inline uint64_t tar_padding(uint64_t size) { return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK; }

#endif
