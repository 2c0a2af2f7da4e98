/*
 * The directory that is written into. Links below it are followed as if it were the root of the file system, so nothing
 * leads out of it: each path is opened by openat2(RESOLVE_IN_ROOT) as far as its parent, and what is in the parent is
 * touched by its own name only, without following links.
 */
#ifndef HOLDFAST_TAR_ROOT_H
#define HOLDFAST_TAR_ROOT_H

#include <stdbool.h>
#include <sys/stat.h>

struct directory_defaults {
    mode_t mode;
    bool owned; /* give them to these, else leave them ours */
    uid_t uid;
    gid_t gid;
};

struct root_options {
    const char *path;
    bool merge;             /* never replace a directory by something else */
    bool overlay_deletions; /* a character device 0:0 is a deletion */
};

void root_open(const struct root_options *options);
/* Changes the process's root to it as well, if we may. */
void root_confine(void);
/* Of directories that the archive does not mention. */
void root_directory_defaults(struct directory_defaults defaults);

/* A descriptor, or -1 and errno. */
int root_open_at(const char *path, int flags);

/* The directory that holds `path`; not to be closed. It is made if it is missing and `make` says so, else -1 and errno. */
int root_parent(const char *path, bool make);
/* Makes the directory itself, and its parents; "" is fine. */
void root_make(const char *path);

bool is_whiteout(const struct stat *status);
void set_opaque(int directory_fd);

/* Makes room for something new, with all that is below it. */
void root_remove(int parent, const char *base);

#endif
