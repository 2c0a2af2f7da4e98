/* Paths as they are asked for, and directories opened and made on the way to them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "file-internal.h"

/* In place: one slash between components, no "." and "..", no slash at the end. `path` begins with a slash. */
static void clean(char *path) {
    char *out = path; /* end of what is kept, without a trailing slash */
    const char *at = path;
    while (*at) {
        while (*at == '/') at++;
        size_t length = strcspn(at, "/");
        if (length == 0) break;
        if (length == 2 && at[0] == '.' && at[1] == '.') {
            while (out > path && *--out != '/') {
            }
        } else if (!(length == 1 && at[0] == '.')) {
            *out++ = '/';
            memmove(out, at, length);
            out += length;
        }
        at += length;
    }
    if (out == path) *out++ = '/';
    *out = 0;
}

char *path_request(struct worker *worker, uint8_t tag) {
    char *text = fields_text(worker->payload, worker->length, tag);
    if (!text && errno == ENOENT) worker_fail(worker, EINVAL, "no path was given");
    if (!text && errno == EINVAL) worker_fail(worker, EINVAL, "a path must not hold a NUL byte");
    if (!text) worker_fail(worker, errno, "out of memory");

    const char *rest = text;
    /* The home comes from a file of the sandbox and may be anything. */
    const char *base = worker->user.home[0] == '/' ? worker->user.home : "";
    if (text[0] == '/') base = "";
    else if (text[0] == '~' && (text[1] == 0 || text[1] == '/')) rest = text + 1;
    size_t size = strlen(base) + 1 + strlen(rest) + 1;
    char *path = malloc(size);
    if (!path) worker_fail(worker, ENOMEM, "out of memory");
    snprintf(path, size, "%s/%s", base, rest);
    free(text);
    clean(path);
    if (strlen(path) >= PATH_MAX) worker_fail(worker, ENAMETOOLONG, "path '%.64s...' is too long", path);
    return path;
}

const char *path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int path_make_directory(struct worker *worker, int parent, const char *name, mode_t mode) {
    /* Closed to all until it has its owner. */
    if (mkdirat(parent, name, 0700) < 0) return errno;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno;
    int error = 0;
    struct stat status;
    /* Ours is owned by us: if somebody put another one in its place, that one is not given away. */
    if (fstat(fd, &status) < 0) error = errno;
    else if (status.st_uid != geteuid()) error = EBUSY;
    else if (fchown(fd, worker->user.uid, worker->user.gid) < 0 || fchmod(fd, mode) < 0) error = errno;
    close(fd);
    if (error && error != EBUSY) unlinkat(parent, name, AT_REMOVEDIR);
    return error;
}

int path_open_directory(struct worker *worker, int start, const char *path, bool make, int *out) {
    int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = path[0] == '/' ? open("/", flags) : openat(start, ".", flags);
    if (fd < 0) return errno;
    while (*path) {
        while (*path == '/') path++;
        size_t length = strcspn(path, "/");
        if (length == 0) break;
        if (length > NAME_MAX) {
            close(fd);
            return ENAMETOOLONG;
        }
        char name[NAME_MAX + 1];
        memcpy(name, path, length);
        name[length] = 0;
        path += length;

        int next = openat(fd, name, flags);
        if (next < 0 && errno == ENOENT && make) {
            int error = path_make_directory(worker, fd, name, 0755);
            /* EEXIST: somebody else was quicker (then it opens now), or a dangling link stands there (then it does not). */
            if (error && error != EEXIST) {
                close(fd);
                return error;
            }
            next = openat(fd, name, flags);
            if (next < 0 && errno == ENOENT && error == EEXIST) errno = EEXIST;
        }
        int error = errno;
        close(fd);
        if (next < 0) return error;
        fd = next;
    }
    *out = fd;
    return 0;
}

int path_open_parent(struct worker *worker, const char *path, bool make, int *out) {
    char parent[PATH_MAX];
    size_t length = (size_t)(path_name(path) - path);
    memcpy(parent, path, length);
    parent[length] = 0;
    return path_open_directory(worker, -1, parent, make, out);
}

#define TEMP_PREFIX ".holdfast-"
#define TEMP_DIGITS 32
#define TEMP_REPLACING_END "r"

void path_temp_name(char out[TEMP_NAME_BYTES]) {
    uint64_t random[2] = { 0, 0 };
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        /* Never seen; O_EXCL keeps it safe, only the name could be guessed. */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        random[0] = (uint64_t)now.tv_nsec;
        random[1] = (uint64_t)getpid();
    }
    snprintf(out, TEMP_NAME_BYTES, TEMP_PREFIX "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
}

void path_replacing_name(char out[TEMP_NAME_BYTES]) {
    path_temp_name(out);
    strcat(out, TEMP_REPLACING_END);
}

enum temp_kind path_temp_kind(const char *name) {
    size_t prefix = strlen(TEMP_PREFIX);
    if (strncmp(name, TEMP_PREFIX, prefix) != 0 || strspn(name + prefix, "0123456789abcdef") != TEMP_DIGITS) return TEMP_NOT;
    const char *end = name + prefix + TEMP_DIGITS;
    if (*end == 0) return TEMP_NEW;
    return strcmp(end, TEMP_REPLACING_END) == 0 ? TEMP_REPLACING : TEMP_NOT;
}

bool path_of_fd(int fd, char out[32]) {
    static int proc_works = -1;
    snprintf(out, 32, "/proc/self/fd/%d", fd);
    if (proc_works < 0) {
        struct stat direct, through;
        proc_works = fstat(fd, &direct) == 0 && stat(out, &through) == 0 && direct.st_dev == through.st_dev &&
                     direct.st_ino == through.st_ino;
    }
    return proc_works > 0;
}
