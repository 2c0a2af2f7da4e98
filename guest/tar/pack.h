/*
 * A tree as an archive. The same tree always gives the same bytes: names are sorted bytewise in each directory, a
 * directory comes before what is in it, modification times are whole seconds (fractions are cut off downwards), user and
 * group names are empty, and there is no extension header where plain ustar suffices.
 */
#ifndef HOLDFAST_TAR_PACK_H
#define HOLDFAST_TAR_PACK_H

#include <stdbool.h>
#include <sys/stat.h>

#include "format.h"

struct pack_options {
    const char *from;
    bool overlay_deletions;
    bool measure; /* only count */
    uint64_t max_bytes;
    uint64_t max_entries;
};

int pack_main(const struct pack_options *options);

/* output.c: stdout, or only a count of what would go there. */
void output_open(bool count_only, uint64_t most);
void output_bytes(const void *bytes, size_t length);
/* Exactly `length` bytes of the file, and padding; false if it was shorter, and is padded, or has grown. */
bool output_file(int fd, uint64_t length);
void output_end(void);
uint64_t output_written(void);

/* names.c: a directory's names, sorted. */
struct names {
    char **names;
    size_t count;
    char *text;
};
struct names names_read(int directory_fd);
void names_release(struct names *names);

/* hardlinks.c: the name under which the inode was packed before, or NULL, and then `path` is remembered. */
const char *hardlinks_seen(const struct stat *status, const char *path);
void hardlinks_release(void);

/* xattrs.c: of NAME in the current directory, sorted by name, valid until the next call. */
struct attributes {
    const struct tar_xattr *kept;
    size_t kept_count;
    size_t skipped; /* an archive cannot say them */
    bool opaque;
};
struct attributes xattrs_read(const char *name, bool overlay);
void xattrs_release(void);

#endif
