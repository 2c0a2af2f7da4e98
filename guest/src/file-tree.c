/* MKDIR, MOVE and REMOVE: what changes the tree. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "file-internal.h"
#include "file-walk.h"

#define PEER_CHECK_EVERY 256
/* How often a tree that others keep filling is gone through again. */
#define REMOVE_PASSES_MAX 1000
#define REMOVE_IDLE_PASSES_MAX 16

/* ---- MKDIR ---- */

static void __attribute__((noreturn)) done_with_entry(struct worker *worker, int directory, const char *name, const char *path,
                                                      int created) {
    struct message message;
    struct stat status;
    message_begin(&message, FRAME_DONE, 0, worker->stream);
    int error = entry_add_at(&message, directory, name, path, &status);
    if (error) worker_fail_path(worker, error, path);
    if (created >= 0) message_u64(&message, FIELD_CREATED, (uint64_t)created);
    worker_done(worker, &message);
}

void file_mkdir(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    mode_t mode = (mode_t)(fields_u64(worker->payload, worker->length, FIELD_MODE, 0755) & 07777);
    bool parents = fields_u64(worker->payload, worker->length, FIELD_PARENTS, 1) != 0;
    if (strcmp(path, "/") == 0) done_with_entry(worker, AT_FDCWD, path, path, 0);

    int parent;
    const char *name = path_name(path);
    int error = path_open_parent(worker, path, parents, &parent);
    if (error == ENOENT) worker_fail(worker, error, "the parent directory of path '%s' does not exist", path);
    if (error == EEXIST) error = ENOTDIR; /* a dangling link on the way */
    if (error) worker_fail_path(worker, error, path);
    error = path_make_directory(worker, parent, name, mode);
    if (error == EEXIST) {
        struct stat status;
        if (fstatat(parent, name, &status, 0) == 0 && S_ISDIR(status.st_mode))
            done_with_entry(worker, parent, name, path, 0);
    }
    if (error == EINVAL)
        worker_fail(worker, error, "user %u:%u does not exist in this sandbox", worker->user.uid, worker->user.gid);
    if (error) worker_fail_path(worker, error, path);
    done_with_entry(worker, parent, name, path, 1);
}

/* ---- REMOVE ---- */

/* An empty directory or anything that is not one. EISDIR: a directory with something in it. */
static int remove_one(int directory, const char *name, bool likely_directory) {
    for (int tries = 0; tries < 4; tries++) {
        if (!likely_directory) {
            if (unlinkat(directory, name, 0) == 0) return 0;
            if (errno != EISDIR && errno != EPERM) return errno;
            int error = errno;
            struct stat status;
            if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) < 0) return errno;
            if (!S_ISDIR(status.st_mode)) return error;
        }
        /* Before going in: on a mount point this says EBUSY, and what is mounted there is left alone. */
        if (unlinkat(directory, name, AT_REMOVEDIR) == 0) return 0;
        if (errno == ENOTEMPTY || errno == EEXIST) return EISDIR;
        if (errno != ENOTDIR) return errno;
        likely_directory = false; /* it was one a moment ago */
    }
    return EBUSY;
}

/* One pass over the contents of the directory open at `root`. 0: go on with the directory itself. */
static int remove_pass(struct worker *worker, int root, const char *path, uint64_t *count, char **where) {
    struct walk walk;
    int copy = fcntl(root, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return errno;
    int error = walk_begin(&walk, copy, path);
    if (error) return error;
    uint64_t steps = 0;
    while (!error) {
        struct walk_item item;
        if (++steps % PEER_CHECK_EVERY == 0) worker_check_peer(worker);
        walk_next(&walk, &item);
        if (item.kind == WALK_END) break;
        if (item.kind == WALK_FAILED) {
            /* EBUSY: a directory was moved away under us. What is left is met in the next pass. */
            if (item.error != EBUSY) error = item.error;
            break;
        }
        if (item.kind == WALK_UNREADABLE) {
            error = item.error;
            break;
        }
        if (item.kind == WALK_LEAVE) continue;
        int result = remove_one(item.directory, item.name, item.kind == WALK_LEFT || item.type == DT_DIR);
        if (result == 0) {
            (*count)++;
            continue;
        }
        if (result == ENOENT) continue;
        if (result == EISDIR && item.kind == WALK_LEFT) continue; /* filled again meanwhile: next pass */
        if (result == EISDIR) {
            result = walk_descend(&walk, true);
            if (result == 0 || result == ENOENT || result == ENOTDIR || result == ELOOP) continue;
            if (result == EXDEV) result = EBUSY;
            if (result == ENAMETOOLONG) {
                /* Too deep to remember the way back: hang it in at the top, for the next pass. */
                char name[TEMP_NAME_BYTES];
                path_temp_name(name);
                if (renameat(item.directory, item.name, root, name) == 0) continue;
                result = errno;
            }
        }
        error = result;
        const char *at = walk_path(&walk);
        *where = at ? strdup(at) : NULL;
    }
    walk_free(&walk);
    return error;
}

int tree_remove(struct worker *worker, int directory, const char *name, bool recursive, uint64_t *count, char **where) {
    *where = NULL;
    int idle = 0;
    for (int pass = 0; pass < REMOVE_PASSES_MAX && idle < REMOVE_IDLE_PASSES_MAX; pass++) {
        int error = remove_one(directory, name, false);
        if (error == 0) {
            (*count)++;
            return 0;
        }
        if (error == ENOENT) return 0;
        if (error != EISDIR) return error;
        if (!recursive) return ENOTEMPTY;

        int root = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (root < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) continue;
        if (root < 0) return errno;
        uint64_t before = *count;
        error = remove_pass(worker, root, name, count, where);
        close(root);
        if (error) return error;
        idle = *count == before ? idle + 1 : 0;
    }
    return ENOTEMPTY;
}

/* `where` is relative to the parent of `path` and begins with its last name. */
static void fail_where(struct worker *worker, int error, const char *path, const char *where) {
    if (!where) worker_fail_path(worker, error, path);
    char text[PATH_MAX];
    snprintf(text, sizeof text, "%.*s%s", (int)(path_name(path) - path), path, where);
    worker_fail_path(worker, error, text);
}

void file_remove(struct worker *worker) {
    struct field field;
    if (fields_find(worker->payload, worker->length, FIELD_PATH, &field) && field.length == 0)
        worker_fail(worker, EINVAL, "an empty path is not removed: name the home directory if it is meant");
    char *path = path_request(worker, FIELD_PATH);
    bool recursive = fields_u64(worker->payload, worker->length, FIELD_RECURSIVE, 1) != 0;
    if (strcmp(path, "/") == 0) worker_fail(worker, EBUSY, "path '/' cannot be removed");

    int parent;
    uint64_t count = 0;
    char *where = NULL;
    int error = path_open_parent(worker, path, false, &parent);
    /* Below something that is no directory nothing exists either. */
    if (!error) error = tree_remove(worker, parent, path_name(path), recursive, &count, &where);
    else if (error == ENOENT || error == ENOTDIR) error = 0;
    if (error) fail_where(worker, error, path, where);
    struct message message;
    message_begin(&message, FRAME_DONE, 0, worker->stream);
    message_u64(&message, FIELD_COUNT, count);
    worker_done(worker, &message);
}

/* ---- MOVE ---- */

static int copy_xattr(void *context, const char *name, const uint8_t *value, size_t length) {
    if (fsetxattr(*(const int *)context, name, value, length, 0) == 0) return 0;
    /* What the other file system cannot hold, or root inside may not set, is left behind, as mv does. */
    return errno == ENOTSUP || errno == EPERM || errno == EACCES || errno == EINVAL ? 0 : errno;
}

/* Owner, mode, attributes, times, in the order in which one does not undo the other. */
static int copy_metadata(int from, int to, const struct stat *status) {
    if (fchown(to, status->st_uid, status->st_gid) < 0 || fchmod(to, status->st_mode & 07777) < 0) return errno;
    int error = xattr_each(from, "", SIZE_MAX / 2, copy_xattr, &to);
    if (error && error != ENOTSUP) return error;
    struct timespec times[2] = { status->st_atim, status->st_mtim };
    return futimens(to, times) < 0 ? errno : 0;
}

static int copy_range(struct worker *worker, int from, int to, off_t start, off_t end) {
    static uint8_t bytes[FILE_CHUNK_BYTES];
    uint64_t steps = 0;
    while (start < end) {
        if (++steps % PEER_CHECK_EVERY == 0) worker_check_peer(worker);
        size_t want = end - start < (off_t)sizeof bytes ? (size_t)(end - start) : sizeof bytes;
        ssize_t got = pread(from, bytes, want, start);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return 0;
        for (ssize_t at = 0; at < got;) {
            ssize_t wrote = pwrite(to, bytes + at, (size_t)(got - at), start + at);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote < 0) return errno;
            at += wrote;
        }
        start += got;
    }
    return 0;
}

/* Holes stay holes: else a sparse image of a terabyte would fill the disk. */
static int copy_bytes(struct worker *worker, int from, int to, off_t size) {
    off_t at = 0;
    while (at < size) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) break;
        off_t hole = data < 0 ? size : lseek(from, data, SEEK_HOLE);
        if (data < 0) data = at; /* SEEK_DATA is not known here: all is data */
        if (hole < 0 || hole > size) hole = size;
        if (hole <= data) break;
        int error = copy_range(worker, from, to, data, hole);
        if (error) return error;
        at = hole;
    }
    return ftruncate(to, size) < 0 ? errno : 0;
}

static int copy_file(struct worker *worker, int from_directory, const char *from, int to_directory, const char *to) {
    int source = openat(from_directory, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (source < 0) return errno;
    struct stat status;
    int error = fstat(source, &status) < 0 ? errno : S_ISREG(status.st_mode) ? 0 : EBUSY;
    int target = -1;
    if (!error) {
        target = openat(to_directory, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (target < 0) error = errno;
    }
    if (!error) error = copy_bytes(worker, source, target, status.st_size);
    if (!error) error = copy_metadata(source, target, &status);
    close(source);
    if (target >= 0) close(target);
    return error;
}

/* Links, FIFOs, sockets, devices: nothing inside, and their times are set by name. */
static int copy_special(int from_directory, const char *from, int to_directory, const char *to, const struct stat *status) {
    if (S_ISLNK(status->st_mode)) {
        char text[PATH_MAX];
        ssize_t length = readlinkat(from_directory, from, text, sizeof text - 1);
        if (length < 0) return errno;
        text[length] = 0;
        if (symlinkat(text, to_directory, to) < 0) return errno;
    } else {
        if (mknodat(to_directory, to, (status->st_mode & S_IFMT) | 0600, status->st_rdev) < 0) return errno;
    }
    if (fchownat(to_directory, to, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW) < 0) return errno;
    if (!S_ISLNK(status->st_mode) && fchmodat(to_directory, to, status->st_mode & 07777, 0) < 0) return errno;
    struct timespec times[2] = { status->st_atim, status->st_mtim };
    return utimensat(to_directory, to, times, AT_SYMLINK_NOFOLLOW) < 0 ? errno : 0;
}

static int open_new_directory(int parent, const char *name, int *out) {
    if (mkdirat(parent, name, 0700) < 0) return errno;
    *out = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *out < 0 ? errno : 0;
}

static int copy_directory(struct worker *worker, int from_directory, const char *from, int to_directory, const char *to) {
    struct walk walk;
    struct chain chain = { 0 };
    int source = openat(from_directory, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (source < 0) return errno;
    int target;
    int error = open_new_directory(to_directory, to, &target);
    if (error) {
        close(source);
        return error;
    }
    error = chain_push(&chain, target);
    if (error) {
        close(source);
        return error;
    }
    dev_t own_device = chain.levels[0].device;
    ino_t own_inode = chain.levels[0].inode;
    error = walk_begin(&walk, source, from);
    if (error) {
        chain_free(&chain);
        return error;
    }
    uint64_t steps = 0;
    while (!error) {
        struct walk_item item;
        struct stat status;
        if (++steps % PEER_CHECK_EVERY == 0) worker_check_peer(worker);
        walk_next(&walk, &item);
        if (item.kind == WALK_END) break;
        if (item.kind == WALK_LEFT) {
            error = chain_pop(&chain);
        } else if (item.kind == WALK_LEAVE) {
            /* Now, because every entry made in it changed its time. */
            if (fstat(item.directory, &status) < 0) error = errno;
            else error = copy_metadata(item.directory, chain_fd(&chain), &status);
        } else if (item.kind == WALK_FAILED || item.kind == WALK_UNREADABLE) {
            error = item.error;
        } else if (fstatat(item.directory, item.name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
            error = errno == ENOENT ? 0 : errno;
        } else if (S_ISDIR(status.st_mode)) {
            /* Through a bind mount the copy may lie inside of what is copied: there would be no end. */
            if (status.st_dev == own_device && status.st_ino == own_inode) error = EINVAL;
            if (!error) error = walk_descend(&walk, true);
            if (error == EXDEV) error = EBUSY; /* a mount point: not ours to empty */
            int made = -1;
            if (!error) error = open_new_directory(chain_fd(&chain), item.name, &made);
            if (!error) error = chain_push(&chain, made);
        } else if (S_ISREG(status.st_mode)) {
            error = copy_file(worker, item.directory, item.name, chain_fd(&chain), item.name);
        } else {
            error = copy_special(item.directory, item.name, chain_fd(&chain), item.name, &status);
        }
    }
    walk_free(&walk);
    chain_free(&chain);
    return error;
}

/*
 * Across file systems (and for directories of a lower overlay layer, where rename says EXDEV too): a copy under a
 * temporary name beside the destination, put in place by rename, and only then the source goes. Hard links become files.
 */
static void move_by_copy(struct worker *worker, int from_directory, const char *path, int to_directory, const char *to,
                         const struct stat *status) {
    const char *from = path_name(path);
    char temp[TEMP_NAME_BYTES];
    path_temp_name(temp);
    worker_guard_tree(to_directory, temp);
    int error;
    if (S_ISDIR(status->st_mode)) error = copy_directory(worker, from_directory, from, to_directory, temp);
    else if (S_ISREG(status->st_mode)) error = copy_file(worker, from_directory, from, to_directory, temp);
    else error = copy_special(from_directory, from, to_directory, temp, status);
    if (error == EINVAL) worker_fail(worker, error, "path '%s' cannot be moved to '%s', which lies inside of it", path, to);
    if (error == EBUSY)
        worker_fail(worker, error, "path '%s' holds a mount point, or was changed while it was being moved", path);
    if (error) worker_fail_path(worker, error, error == ENOSPC || error == EDQUOT ? to : path);
    if (renameat(to_directory, temp, to_directory, path_name(to)) < 0)
        worker_fail(worker, errno, "path '%s' cannot be replaced: %s", to, strerror(errno));
    worker_release_tree();
    uint64_t count = 0;
    char *where = NULL;
    error = tree_remove(worker, from_directory, from, true, &count, &where);
    if (error)
        worker_fail(worker, error, "path '%s' was copied to '%s', but not all of it could be removed: %s", path, to,
                    strerror(error));
}

void file_move(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    char *to = path_request(worker, FIELD_TO);
    bool parents = fields_u64(worker->payload, worker->length, FIELD_PARENTS, 1) != 0;
    if (strcmp(path, "/") == 0 || strcmp(to, "/") == 0) worker_fail(worker, EBUSY, "path '/' cannot be moved or replaced");

    int from_directory, to_directory;
    struct stat status;
    int error = path_open_parent(worker, path, false, &from_directory);
    if (error) worker_fail_path(worker, error, path);
    /* Before any parent is made for something that does not exist. */
    if (fstatat(from_directory, path_name(path), &status, AT_SYMLINK_NOFOLLOW) < 0) worker_fail_path(worker, errno, path);
    error = path_open_parent(worker, to, parents, &to_directory);
    if (error == ENOENT) worker_fail(worker, error, "the parent directory of path '%s' does not exist", to);
    if (error == EEXIST) error = ENOTDIR;
    if (error) worker_fail_path(worker, error, to);

    if (renameat(from_directory, path_name(path), to_directory, path_name(to)) < 0) {
        error = errno;
        if (error == EINVAL) worker_fail(worker, error, "path '%s' cannot be moved to '%s', which lies inside of it", path, to);
        if (error == ENOTDIR) worker_fail(worker, error, "path '%s' is not a directory, but '%s' is", to, path);
        if (error == EISDIR || error == ENOTEMPTY || error == EEXIST) worker_fail_path(worker, error == EEXIST ? ENOTEMPTY : error, to);
        if (error != EXDEV) worker_fail_path(worker, error, path);
        move_by_copy(worker, from_directory, path, to_directory, to, &status);
    }
    done_with_entry(worker, to_directory, path_name(to), to, -1);
}
