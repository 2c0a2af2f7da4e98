/* Entries: what a path is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "file-internal.h"

static uint64_t file_type(mode_t mode) {
    if (S_ISREG(mode)) return FILE_TYPE_FILE;
    if (S_ISDIR(mode)) return FILE_TYPE_DIRECTORY;
    if (S_ISLNK(mode)) return FILE_TYPE_SYMLINK;
    return FILE_TYPE_OTHER;
}

/* An O_PATH descriptor has no attributes of its own; by its /proc name it has. */
static ssize_t list_xattrs(int fd, char *names, size_t size) {
    char path[32];
    return path_of_fd(fd, path) ? listxattr(path, names, size) : flistxattr(fd, names, size);
}

static ssize_t get_xattr(int fd, const char *name, void *value, size_t size) {
    char path[32];
    return path_of_fd(fd, path) ? getxattr(path, name, value, size) : fgetxattr(fd, name, value, size);
}

int xattr_each(int fd, const char *prefix, size_t total_max, xattr_visitor each, void *context) {
    ssize_t size = list_xattrs(fd, NULL, 0);
    if (size <= 0) return size < 0 ? errno : 0;
    size_t capacity = 65536; /* the kernel's own bound for the list and for a value */
    char *names = malloc(capacity);
    uint8_t *value = malloc(capacity);
    int error = names && value ? 0 : ENOMEM;
    if (!error) {
        size = list_xattrs(fd, names, capacity);
        if (size < 0) error = errno;
    }
    size_t total = 0;
    for (ssize_t at = 0; !error && at < size;) {
        const char *name = names + at;
        size_t length = strnlen(name, (size_t)(size - at));
        if (length == (size_t)(size - at)) break; /* not terminated: not a list */
        at += (ssize_t)length + 1;
        if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
        ssize_t got = get_xattr(fd, name, value, capacity);
        if (got < 0) continue; /* it went meanwhile, or is not for us */
        size_t cost = length + (size_t)got + 8;
        if (cost > total_max - total) continue;
        total += cost;
        error = each(context, name, value, (size_t)got);
    }
    free(names);
    free(value);
    return error;
}

static int add_xattr(void *context, const char *name, const uint8_t *value, size_t length) {
    size_t name_length = strlen(name);
    uint8_t *text = malloc(name_length + 1 + length);
    if (!text) return ENOMEM;
    memcpy(text, name, name_length);
    text[name_length] = '=';
    if (length > 0) memcpy(text + name_length + 1, value, length);
    message_bytes(context, FIELD_XATTR, text, name_length + 1 + length);
    free(text);
    return 0;
}

/* Where a link ends. `name` in `directory` is where it stands, as the kernel shall resolve it. */
static void add_target(struct message *message, int link, int directory, const char *name, const char *path) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(link, "", target, sizeof target);
    if (length >= 0) message_bytes(message, FIELD_LINK_TARGET, target, (size_t)length);
    int fd = openat(directory, name, O_PATH | O_CLOEXEC);
    if (fd < 0) return; /* dangling, a loop: no target to tell of */
    struct stat status;
    if (fstat(fd, &status) == 0) {
        char proc[32];
        char resolved[PATH_MAX];
        if (path_of_fd(fd, proc)) {
            length = readlink(proc, resolved, sizeof resolved);
            /* Not absolute: not a path (a pipe, a socket), or outside of our root. No links left: "… (deleted)". */
            if (length > 0 && (size_t)length < sizeof resolved && resolved[0] == '/' && status.st_nlink > 0)
                message_bytes(message, FIELD_LINK_RESOLVED, resolved, (size_t)length);
        } else if (realpath(path, resolved)) {
            message_text(message, FIELD_LINK_RESOLVED, resolved);
        }
        message_u64(message, FIELD_TARGET_TYPE, file_type(status.st_mode));
        message_u64(message, FIELD_TARGET_MODE, status.st_mode & 07777);
        message_u64(message, FIELD_TARGET_SIZE, (uint64_t)status.st_size);
    }
    close(fd);
}

static void add_id(struct message *message, uint8_t tag, const char *name, uint32_t id) {
    char number[16];
    snprintf(number, sizeof number, "%u", id);
    message_text(message, tag, name[0] ? name : number);
}

void entry_add(struct message *message, int fd, const struct stat *status, const char *path) {
    message_text(message, FIELD_NAME, path_name(path));
    message_text(message, FIELD_PATH, path);
    message_u64(message, FIELD_FILE_TYPE, file_type(status->st_mode));
    message_u64(message, FIELD_SIZE, (uint64_t)status->st_size);
    message_u64(message, FIELD_MODE, status->st_mode & 07777);
    message_u64(message, FIELD_UID, status->st_uid);
    message_u64(message, FIELD_GID, status->st_gid);
    add_id(message, FIELD_OWNER, owner_name(status->st_uid), status->st_uid);
    add_id(message, FIELD_GROUP, owner_group(status->st_gid), status->st_gid);
    /* Two's complement for times before 1970; unsigned arithmetic, because a file may claim any year. */
    message_u64(message, FIELD_MTIME_NS, (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec);
    /* The kernel allows user.* on these two only. A failure (unsupported, no /proc) means: none to show. */
    if (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode))
        xattr_each(fd, "user.", XATTR_TOTAL_MAX, add_xattr, message);
}

int entry_add_at(struct message *message, int directory, const char *name, const char *path, struct stat *status) {
    int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    if (fstat(fd, status) < 0) {
        int error = errno;
        close(fd);
        return error;
    }
    entry_add(message, fd, status, path);
    if (S_ISLNK(status->st_mode)) add_target(message, fd, directory, name, path);
    close(fd);
    return 0;
}

void file_stat(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    struct message message;
    struct stat status;
    message_begin(&message, FRAME_DONE, 0, worker->stream);
    int error = entry_add_at(&message, AT_FDCWD, path, path, &status);
    if (error) worker_fail_path(worker, error, path);
    worker_done(worker, &message);
}
