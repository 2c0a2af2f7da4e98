/*
 * What the parts of the file worker share. One process serves one request, so failing is simple: worker_fail() sends the
 * FAIL, undoes what must not stay behind and ends the process; memory and descriptors go with it.
 */
#ifndef HOLDFAST_FILE_INTERNAL_H
#define HOLDFAST_FILE_INTERNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "frame.h"
#include "users.h"

#define FILE_CHUNK_BYTES 65536
/* Bounds of what one entry may carry; together they stay well below MAX_PAYLOAD_BYTES. */
#define XATTR_TOTAL_MAX 65536
#define ENTRY_PATH_MAX 131072
#define TEMP_NAME_BYTES 48

struct worker {
    int socket;
    uint8_t type;
    uint32_t stream;
    const uint8_t *payload;
    size_t length;
    struct user user; /* whose home relative paths start at, and who owns what is made */
};

/* ---- file-worker.c: the socket and the end ---- */

/* Sends the frame (finished here) and frees it. Ends the process if the other end is gone. */
void worker_send(struct worker *worker, struct message *message);
void worker_send_data(struct worker *worker, const uint8_t *bytes, size_t length);
void worker_send_eof(struct worker *worker);
/* Sends DONE and ends the process. */
void worker_done(struct worker *worker, struct message *message) __attribute__((noreturn));
void worker_done_empty(struct worker *worker) __attribute__((noreturn));
void worker_fail(struct worker *worker, int error, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
/* The usual words for an errno that a path ran into. */
void worker_fail_path(struct worker *worker, int error, const char *path) __attribute__((noreturn));
/* Ends the process if the other end has hung up: for work that sends nothing for a while. */
void worker_check_peer(struct worker *worker);
/* Reads exactly `length` bytes; ends the process if the other end closes first. */
void worker_receive(struct worker *worker, void *bytes, size_t length);
/* Undoes temporaries and ends the process without a word: there is nobody left to tell. */
void worker_vanish(void) __attribute__((noreturn));

/*
 * A temporary that must not survive us: unlinked when the process ends by worker_fail, worker_vanish or a signal that
 * can be caught. One at a time. `name` is copied.
 */
void worker_guard_temp(int directory, const char *name);
void worker_release_temp(void);
/* The same for a tree (MOVE): called by worker_fail and worker_vanish, not from a signal. */
void worker_guard_tree(int directory, const char *name);
void worker_release_tree(void);

bool worker_number(const struct worker *worker, uint8_t tag, uint64_t *out);

/* ---- file-path.c ---- */

/* The path in field `tag`: absolute, ~ expanded, lexically clean, shorter than PATH_MAX. Fails the request if it cannot be. */
char *path_request(struct worker *worker, uint8_t tag);
/* The last component; "/" for "/". */
const char *path_name(const char *path);
/*
 * Opens a directory (O_PATH) component by component, beginning at `start` unless the path is absolute. With `make`,
 * missing ones are made 0755 for the worker's user. 0 or an errno; EEXIST if something else stands in the way.
 */
int path_open_directory(struct worker *worker, int start, const char *path, bool make, int *out);
/* Opens the directory that holds the last component of `path`, which must not be "/". */
int path_open_parent(struct worker *worker, const char *path, bool make, int *out);
/* Makes one directory, for the worker's user, with exactly this mode. 0 or an errno. */
int path_make_directory(struct worker *worker, int parent, const char *name, mode_t mode);
/* ".holdfast-" and 128 random bits. */
void path_temp_name(char out[TEMP_NAME_BYTES]);
/* The same, for a file that will take the place of another one: whoever watches need not hear of a creation. */
void path_replacing_name(char out[TEMP_NAME_BYTES]);
enum temp_kind { TEMP_NOT, TEMP_NEW, TEMP_REPLACING };
/* Whether a name is one that those two make up. */
enum temp_kind path_temp_kind(const char *name);
/* "/proc/self/fd/N". False if there is no /proc to use it with. */
bool path_of_fd(int fd, char out[32]);

/* ---- file-owner.c ---- */

/* The name of an id, or "" if it has none. Valid until the next call. */
const char *owner_name(uid_t uid);
const char *owner_group(gid_t gid);

/* ---- file-stat.c ---- */

/* Adds the fields of an entry for the object open (O_PATH will do) at `fd`. */
void entry_add(struct message *message, int fd, const struct stat *status, const char *path);
/* Opens `name` in `directory` with O_PATH, links not followed, and adds it. 0 or an errno. */
int entry_add_at(struct message *message, int directory, const char *name, const char *path, struct stat *status);
/* Calls `each` for every extended attribute. 0 or an errno. `fd` may be O_PATH if there is a /proc. */
typedef int (*xattr_visitor)(void *context, const char *name, const uint8_t *value, size_t length);
int xattr_each(int fd, const char *prefix, size_t total_max, xattr_visitor each, void *context);

/* ---- file-tree.c ---- */

/* Removes what `name` in `directory` is, with all below it. 0 or an errno; counts what went. */
int tree_remove(struct worker *worker, int directory, const char *name, bool recursive, uint64_t *count, char **where);

/* ---- the requests; none returns ---- */

void file_stat(struct worker *worker) __attribute__((noreturn));
void file_list(struct worker *worker) __attribute__((noreturn));
void file_read(struct worker *worker) __attribute__((noreturn));
void file_write(struct worker *worker) __attribute__((noreturn));
void file_mkdir(struct worker *worker) __attribute__((noreturn));
void file_move(struct worker *worker) __attribute__((noreturn));
void file_remove(struct worker *worker) __attribute__((noreturn));
void file_watch(struct worker *worker) __attribute__((noreturn));

#endif
