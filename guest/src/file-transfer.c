/*
 * READ and WRITE: the bytes of regular files.
 *
 * Durability: nothing is synced to the disk. After DONE the new content is what everybody sees, and it survives the end of
 * every process; a power cut in the seconds after may still lose it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "file-internal.h"

#define LINKS_MAX 40
/* Where a hole can be made without touching anything. */
#define BEYOND_ANY_BYTE ((off_t)1 << 42)

static uint8_t chunk[FILE_CHUNK_BYTES];

/* ---- READ ---- */

/*
 * Opens a regular file and nothing else. Looked at through O_PATH first: opening a FIFO would wake its writer and opening
 * some devices does things. Then the very same object is opened by its /proc name.
 */
static int open_regular(struct worker *worker, const char *path, struct stat *status) {
    int handle = open(path, O_PATH | O_CLOEXEC);
    if (handle < 0) worker_fail_path(worker, errno, path);
    if (fstat(handle, status) < 0) worker_fail_path(worker, errno, path);
    if (S_ISDIR(status->st_mode)) worker_fail_path(worker, EISDIR, path);
    if (!S_ISREG(status->st_mode)) worker_fail(worker, EINVAL, "path '%s' is not a regular file", path);
    char proc[32];
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = path_of_fd(handle, proc) ? open(proc, flags) : open(path, flags);
    if (fd < 0) worker_fail_path(worker, errno, path);
    close(handle);
    if (fstat(fd, status) < 0) worker_fail_path(worker, errno, path);
    if (!S_ISREG(status->st_mode)) worker_fail(worker, EINVAL, "path '%s' is not a regular file", path);
    return fd;
}

void file_read(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    uint64_t offset = fields_u64(worker->payload, worker->length, FIELD_OFFSET, 0);
    uint64_t left = fields_u64(worker->payload, worker->length, FIELD_LENGTH, UINT64_MAX);
    if (offset > INT64_MAX) worker_fail(worker, EINVAL, "the offset is too large");

    struct stat status;
    int fd = open_regular(worker, path, &status);
    struct message message;
    message_begin(&message, FRAME_NOTE, 0, worker->stream);
    message_u64(&message, FIELD_NOTE_KIND, NOTE_ENTRY);
    entry_add(&message, fd, &status, path);
    worker_send(worker, &message);

    if (offset > 0 && lseek(fd, (off_t)offset, SEEK_SET) < 0) worker_fail_path(worker, errno, path);
    while (left > 0) {
        size_t want = left < sizeof chunk ? (size_t)left : sizeof chunk;
        ssize_t got = read(fd, chunk, want);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) worker_fail_path(worker, errno, path);
        if (got == 0) break; /* the end as it is now, whatever the size was before */
        worker_send_data(worker, chunk, (size_t)got);
        left -= (uint64_t)got;
    }
    worker_send_eof(worker);
    worker_done_empty(worker);
}

/* ---- WRITE ---- */

struct target {
    int directory;
    char name[NAME_MAX + 1];
    bool exists;
    struct stat status;
};

/* The last component of a link's text or of a path. False if it names a directory for sure ("..", "x/"). */
static bool split(char *path, char **directory, char **name) {
    char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    static char here[] = ".", root[] = "/";
    *directory = !slash ? here : slash == path ? root : path;
    if (slash && slash != path) *slash = 0;
    return (*name)[0] && strcmp(*name, ".") != 0 && strcmp(*name, "..") != 0;
}

/*
 * Where the bytes go: links are followed by hand, each relative to the directory it stands in, down to the first name
 * that is not a link (or does not exist yet). So a link stays a link and what it points to is replaced.
 */
static void find_target(struct worker *worker, const char *path, bool parents, struct target *target) {
    char text[PATH_MAX];
    strcpy(text, path);
    int directory = -1;
    for (int links = 0; links <= LINKS_MAX; links++) {
        char *parent, *name;
        if (!split(text, &parent, &name)) worker_fail_path(worker, EISDIR, path);
        if (strlen(name) > NAME_MAX) worker_fail_path(worker, ENAMETOOLONG, path);
        int next;
        int error = path_open_directory(worker, directory, parent, parents, &next);
        if (error == EEXIST) error = ENOTDIR;
        if (error == ENOENT) worker_fail(worker, error, "the directory of path '%s' does not exist", path);
        if (error) worker_fail_path(worker, error, path);
        if (directory >= 0) close(directory);
        directory = next;

        strcpy(target->name, name);
        target->directory = directory;
        if (fstatat(directory, name, &target->status, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno != ENOENT) worker_fail_path(worker, errno, path);
            target->exists = false;
            return;
        }
        if (!S_ISLNK(target->status.st_mode)) {
            target->exists = true;
            if (S_ISDIR(target->status.st_mode)) worker_fail_path(worker, EISDIR, path);
            if (!S_ISREG(target->status.st_mode)) worker_fail(worker, EINVAL, "path '%s' is not a regular file", path);
            return;
        }
        ssize_t length = readlinkat(directory, target->name, text, sizeof text - 1);
        if (length < 0) worker_fail_path(worker, errno, path);
        text[length] = 0;
    }
    worker_fail_path(worker, ELOOP, path);
}

static int remove_xattr(void *context, const char *name, const uint8_t *value, size_t length) {
    (void)value, (void)length;
    fremovexattr(*(const int *)context, name);
    return 0;
}

static void set_xattrs(struct worker *worker, int fd, const char *path) {
    size_t cursor = 0;
    struct field field;
    while (fields_next(worker->payload, worker->length, &cursor, &field)) {
        if (field.tag != FIELD_XATTR) continue;
        const uint8_t *equals = field.length > 0 ? memchr(field.value, '=', field.length) : NULL;
        size_t name_length = equals ? (size_t)(equals - field.value) : 0;
        char name[256];
        if (name_length <= 5 || name_length >= sizeof name || memcmp(field.value, "user.", 5) != 0 ||
            memchr(field.value, 0, name_length))
            worker_fail(worker, EINVAL, "an attribute must be 'user.name=value'");
        memcpy(name, field.value, name_length);
        name[name_length] = 0;
        if (fsetxattr(fd, name, equals + 1, field.length - name_length - 1, 0) < 0) {
            if (errno == ENOTSUP) worker_fail(worker, errno, "the file system of path '%s' has no attributes", path);
            worker_fail(worker, errno, "attribute '%s' of path '%s': %s", name, path, strerror(errno));
        }
    }
}

static void set_owner_and_mode(struct worker *worker, int fd, mode_t mode, const char *path) {
    /* In this order: chown takes the setuid bits away. */
    if (fchown(fd, worker->user.uid, worker->user.gid) < 0) {
        if (errno == EINVAL)
            worker_fail(worker, errno, "user %u:%u does not exist in this sandbox", worker->user.uid, worker->user.gid);
        worker_fail_path(worker, errno, path);
    }
    if (fchmod(fd, mode) < 0) worker_fail_path(worker, errno, path);
}

/* Everything the host sends until its EOF goes into the file. If the host goes first, worker_receive ends us. */
static void receive_into(struct worker *worker, int fd, const char *path) {
    for (;;) {
        uint8_t bytes[HEADER_BYTES];
        struct frame_header header;
        worker_receive(worker, bytes, sizeof bytes);
        if (!frame_header_parse(bytes, &header) || header.stream != worker->stream || header.channel != CHANNEL_IN)
            worker_fail(worker, EPROTO, "a broken frame in an upload");
        if (header.type == FRAME_EOF && header.length == 0) return;
        if (header.type != FRAME_DATA) worker_fail(worker, EPROTO, "frame type 0x%02x in an upload", header.type);
        size_t left = header.length;
        while (left > 0) {
            size_t part = left < sizeof chunk ? left : sizeof chunk;
            worker_receive(worker, chunk, part);
            for (size_t at = 0; at < part;) {
                ssize_t wrote = write(fd, chunk + at, part - at);
                if (wrote < 0 && errno == EINTR) continue;
                if (wrote < 0) worker_fail_path(worker, errno, path);
                at += (size_t)wrote;
            }
            left -= part;
        }
    }
}

/* Tells of the file we hold, under the name that was asked for: whoever comes next may already be replacing it. */
static void __attribute__((noreturn)) done_with(struct worker *worker, int fd, const char *path) {
    struct stat status;
    if (fstat(fd, &status) < 0) worker_fail_path(worker, errno, path);
    struct message message;
    message_begin(&message, FRAME_DONE, 0, worker->stream);
    entry_add(&message, fd, &status, path);
    /* Before the answer: whoever has read it may run the file, which nobody can while somebody writes to it. */
    close(fd);
    worker_done(worker, &message);
}

/*
 * Until now the file had another name, or none. So that whoever watches hears of a write under this one, it is changed
 * once more in a way that changes nothing: a hole is made where no byte is. A new file is given the rights that it has
 * before that: a create, a chmod and a write are what E2B's clients hear of, and count on.
 */
static void announce_write(const struct target *target) {
    int fd = openat(target->directory, target->name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return; /* gone already: that is news of its own */
    struct stat status;
    if (!target->exists && fstat(fd, &status) == 0) (void)!fchmod(fd, status.st_mode & 07777);
    (void)!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BEYOND_ANY_BYTE, 4096);
    close(fd);
}

static void __attribute__((noreturn)) write_atomic(struct worker *worker, struct target *target, mode_t mode, const char *path) {
    char name[TEMP_NAME_BYTES];
    char proc[32];
    if (target->exists) path_replacing_name(name);
    else path_temp_name(name);
    /*
     * Best a file without a name: even SIGKILL leaves nothing behind. Its name comes at the very end. Where the file
     * system cannot do that (or there is no /proc to link it by), a hidden file that worker_guard_temp watches over.
     */
    int fd = openat(target->directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    bool nameless = fd >= 0 && path_of_fd(fd, proc);
    if (!nameless) {
        if (fd >= 0) close(fd);
        fd = openat(target->directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) worker_fail_path(worker, errno, path);
        worker_guard_temp(target->directory, name);
    }
    /* Now, so that what cannot be done is said before a gigabyte was sent. */
    set_owner_and_mode(worker, fd, mode, path);
    set_xattrs(worker, fd, path);
    receive_into(worker, fd, path);
    /* Again: writing takes setuid and setgid away, unless one has CAP_FSETID. */
    if (fchmod(fd, mode) < 0) worker_fail_path(worker, errno, path);

    if (nameless) {
        worker_guard_temp(target->directory, name);
        if (linkat(AT_FDCWD, proc, target->directory, name, AT_SYMLINK_FOLLOW) < 0) worker_fail_path(worker, errno, path);
    }
    if (renameat(target->directory, name, target->directory, target->name) < 0) {
        if (errno == EBUSY)
            worker_fail(worker, errno, "path '%s' is a mount point: it can be written in place only, not replaced", path);
        worker_fail_path(worker, errno, path);
    }
    worker_release_temp();
    announce_write(target);
    done_with(worker, fd, path);
}

static void __attribute__((noreturn)) write_in_place(struct worker *worker, struct target *target, bool has_mode, mode_t mode, bool has_offset,
                           uint64_t offset, const char *path) {
    int flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    bool created = false;
    int fd = -1;
    /* Made or opened, never both in one call: we must know which, and fs.protected_regular dislikes O_CREAT on what exists. */
    for (int tries = 0; tries < 8 && fd < 0; tries++) {
        fd = openat(target->directory, target->name, flags);
        if (fd < 0 && errno == ENOENT) {
            fd = openat(target->directory, target->name, flags | O_CREAT | O_EXCL, 0600);
            created = fd >= 0;
            if (fd < 0 && errno != EEXIST) break;
        } else if (fd < 0) {
            break;
        }
    }
    if (fd < 0) worker_fail_path(worker, errno, path);
    struct stat status;
    if (fstat(fd, &status) < 0) worker_fail_path(worker, errno, path);
    if (!S_ISREG(status.st_mode)) worker_fail(worker, EINVAL, "path '%s' is not a regular file", path);

    if (created) set_owner_and_mode(worker, fd, mode, path);
    else if (has_mode && fchmod(fd, mode) < 0) worker_fail_path(worker, errno, path);
    if (has_offset) {
        if (lseek(fd, (off_t)offset, SEEK_SET) < 0) worker_fail_path(worker, errno, path);
    } else {
        if (ftruncate(fd, 0) < 0) worker_fail_path(worker, errno, path);
        /* A whole new content has a whole new set of attributes. */
        xattr_each(fd, "user.", SIZE_MAX / 2, remove_xattr, &fd);
    }
    set_xattrs(worker, fd, path);
    receive_into(worker, fd, path);
    done_with(worker, fd, path);
}

void file_write(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    uint64_t number = 0, offset = 0;
    bool has_mode = worker_number(worker, FIELD_MODE, &number);
    bool has_offset = worker_number(worker, FIELD_OFFSET, &offset);
    bool atomic = fields_u64(worker->payload, worker->length, FIELD_ATOMIC, 1) != 0;
    bool parents = fields_u64(worker->payload, worker->length, FIELD_PARENTS, 1) != 0;
    if (has_offset && atomic) worker_fail(worker, EINVAL, "a write at an offset cannot be atomic");
    if (offset > INT64_MAX) worker_fail(worker, EINVAL, "the offset is too large");

    struct target target;
    memset(&target, 0, sizeof target);
    find_target(worker, path, parents, &target);
    mode_t mode = has_mode ? (mode_t)(number & 07777) : target.exists ? target.status.st_mode & 07777 : 0644;
    if (atomic) write_atomic(worker, &target, mode, path);
    else write_in_place(worker, &target, has_mode, mode, has_offset, offset, path);
}
