#ifndef HOLDFAST_TAR_UNPACK_H
#define HOLDFAST_TAR_UNPACK_H

#include <stdbool.h>
#include <sys/types.h>

#include "format.h"
#include "path.h"

#define SELECTIONS_MAX 64

struct unpack_options {
    const char *into;
    const char *root; /* NULL: `into` is the root */
    bool make;
    bool merge;
    bool confine;
    bool lenient_end;
    bool overlay_deletions;
    const char *owner; /* NULL: the archive's ids */
    bool has_mode;
    mode_t mode;
    const char *selected[SELECTIONS_MAX];
    size_t selected_count;
    const char *as;
    uint64_t max_bytes;
    uint64_t max_entries;
    size_t max_depth;
};

int unpack_main(const struct unpack_options *options);

/* What is shared by the parts of unpacking. */
struct unpack {
    const struct unpack_options *options;
    bool is_root;
    uid_t uid; /* --owner */
    gid_t gid;
    char prefix[PATH_BYTES]; /* where `into` is below the root */
    struct selection *selections;
    bool opaque; /* the archive deletes all that the layers below have */
    uint64_t entries, bytes, files, skipped_devices, skipped_xattrs;
};

/* place.c: puts one entry to `path`, below the root; reads its content. */
void place_file(struct unpack *unpack, const char *path, const struct tar_entry *entry);
void place_directory(struct unpack *unpack, const char *path, const struct tar_entry *entry);
void place_symlink(struct unpack *unpack, const char *path, const struct tar_entry *entry);
void place_hardlink(const char *path, const char *target);
void place_fifo(struct unpack *unpack, const char *path, const struct tar_entry *entry);

/* deletions.c: true if the entry was one of the marks that OCI layers delete with. */
bool place_deletion(struct unpack *unpack, const char *path);

/* metadata.c */
mode_t mode_of(const struct unpack *unpack, const struct tar_entry *entry);
/* Of an open file or directory; a directory's time and, if we are not root, its mode wait for the end. */
void apply_metadata(struct unpack *unpack, int fd, const char *path, const struct tar_entry *entry);
/* Of what cannot be opened: a link, a fifo. */
void apply_link_metadata(struct unpack *unpack, int parent, const char *base, const struct tar_entry *entry);
void finish_directories(void);

#endif
