/*
 * Walking trees that somebody else may be changing meanwhile, with bounded descriptors and memory.
 *
 * Everything is relative to an open directory, and links are never followed. Only the WALK_WINDOW innermost directories
 * are held open; further up one is reopened by ".." of its child and must be the same (device, inode) as on the way down.
 * Names come in order (bytewise), in batches of at most about WALK_BATCH_BYTES: a directory of a million entries is read
 * once per batch, not kept. So memory is at most WALK_WINDOW batches plus a name per level.
 */
#ifndef HOLDFAST_FILE_WALK_H
#define HOLDFAST_FILE_WALK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WALK_WINDOW 24
#define WALK_BATCH_BYTES ((size_t)1 << 20)
#define WALK_DEPTH_MAX 50000

/* A stack of directories, of which only the innermost are open. */
struct chain_level {
    int fd; /* -1: not held open */
    dev_t device;
    ino_t inode;
};

struct chain {
    struct chain_level *levels;
    size_t count;
    size_t capacity;
};

/* Takes the descriptor, which must not be O_PATH; closes it if that fails. All return 0 or an errno. */
int chain_push(struct chain *chain, int fd);
/* The innermost one. */
int chain_fd(const struct chain *chain);
/* EBUSY if the way up does not lead where we came from. */
int chain_pop(struct chain *chain);
void chain_free(struct chain *chain);

struct names {
    char *arena; /* a type byte (DT_…) and a name with its NUL, each */
    size_t used;
    size_t capacity;
    uint32_t *offsets; /* in order */
    size_t count;
    size_t room;
};

struct walk_level {
    struct names names;
    size_t next;
    bool complete;  /* nothing comes after this batch */
    bool left;
    char after[NAME_MAX + 1]; /* the last name given out of an earlier batch; "" if none */
    size_t path_length;       /* of this directory in walk.path */
};

enum walk_kind {
    WALK_ENTRY, /* `name` in `directory`; walk_descend() goes into it */
    WALK_LEAVE, /* all of `directory` has been seen */
    WALK_LEFT,  /* `name`, the one just left, in its parent `directory`; not for the root */
    WALK_END,
    WALK_UNREADABLE, /* `directory` cannot be read: `error`; walk_skip() goes on without it */
    WALK_FAILED,     /* `error`; the walk is over. EBUSY: the way up is not the one we came down */
};

struct walk_item {
    enum walk_kind kind;
    int directory;
    const char *name;
    unsigned char type; /* DT_…, as the directory said it */
    size_t depth;       /* of the entry: 1 for those in the root */
    int error;
};

struct walk {
    struct chain chain;
    struct walk_level **levels;
    size_t capacity;
    bool pop; /* the last answer was WALK_LEAVE */
    char *path;
    size_t path_length; /* of the innermost directory's path */
    size_t path_capacity;
    char name[NAME_MAX + 1];
};

/* `root` is taken. `path` is what the root is called in walk_path(). */
int walk_begin(struct walk *walk, int root, const char *path);
void walk_next(struct walk *walk, struct walk_item *item);
/*
 * Goes into the entry given last. ENOENT: it is gone; ENOTDIR or ELOOP: not a directory; EXDEV: a mount point, with
 * `same_mount`; ENAMETOOLONG: deeper than WALK_DEPTH_MAX.
 */
int walk_descend(struct walk *walk, bool same_mount);
/* Leaves out the rest of the innermost directory. */
void walk_skip(struct walk *walk);
/* The path of the item given last. Valid until the next call; NULL if there is no memory. */
const char *walk_path(struct walk *walk);
void walk_free(struct walk *walk);

#endif
