/*
 * Inode numbers. Every subvolume counts its own from 256 on, and an overlay shows the numbers of what lies below it: two
 * files of two layers would have one number, and programs take them for one file (tar leaves it out, cp refuses, ld.so loads the
 * wrong library). So no two layers of a pool share a number, and none of them one that a disk is likely to reach.
 *
 * A new subvolume that is a snapshot counts on from the highest number in it. The pool has a small one that is there to be
 * snapshotted, with a file in it whose number is above those of all layers. Whoever finishes a layer moves it up. A layer
 * that was not begun there, or while another one was finished, is copied (its blocks are shared) and so numbered anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel.h"
#include "launch.h"

#define STEP "number layer"
#define MARK "first-inode"
#define SEED "inodes"
/* A pool of our own making begins here (see the pool); disks stay below, as do numbers that fit into 32 bits above. */
#define LAYERS_BEGIN (UINT64_C(1) << 31)
/* Elsewhere every number has to be counted through, at some ten microseconds each. */
#define LAYERS_BEGIN_COUNTED (UINT64_C(1) << 17)

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

static uint64_t number_of(int directory, const char *name) {
    struct stat info;
    return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : (uint64_t)info.st_ino;
}

/* The number after the highest that was ever given out in this subvolume. */
static uint64_t next_number(int directory, const char *path) {
    int fd = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) die(STEP, path);
    close(fd);
    return (uint64_t)info.st_ino;
}

static void make_mark(int directory, const char *path) {
    int fd = openat(directory, MARK ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || renameat(directory, MARK ".new", directory, MARK) < 0) die(STEP, path);
    close(fd);
}

static void count_up_to(int directory, uint64_t number, const char *path) {
    while (next_number(directory, path) < number) continue;
    make_mark(directory, path);
}

/* Once for each pool, under its lock. */
int seed_make_main(const char *pool) {
    char seed[4096], draft[4096];
    if (snprintf(seed, sizeof seed, "%s/" SEED, pool) >= (int)sizeof seed ||
        snprintf(draft, sizeof draft, "%s/" SEED ".new", pool) >= (int)sizeof draft) {
        errno = ENAMETOOLONG;
        die(STEP, pool);
    }
    int root = open_directory(STEP, pool);
    if (faccessat(root, SEED, F_OK, 0) == 0) return 0;
    disk_remove_main(draft);
    bool is_far = number_of(root, MARK) >= LAYERS_BEGIN;
    if (is_far) disk_clone(pool, draft);
    else subvolume_create(root, SEED ".new", draft);
    int fd = open_directory(STEP, draft);
    if (!is_far) count_up_to(fd, LAYERS_BEGIN_COUNTED, draft);
    if (mkdirat(fd, "upper", 0755) < 0) die(STEP, draft);
    make_mark(fd, draft);
    if (syncfs(fd) < 0 || renameat(root, SEED ".new", root, SEED) < 0) die(STEP, seed);
    if (unlinkat(root, MARK, 0) < 0 && errno != ENOENT) die(STEP, pool);
    return 0;
}

static void copy_upper(const char *from, const char *to) {
    char source[4096], target[4096];
    if (snprintf(source, sizeof source, "%s/upper", from) >= (int)sizeof source ||
        snprintf(target, sizeof target, "%s/upper", to) >= (int)sizeof target) {
        errno = ENAMETOOLONG;
        die(STEP, to);
    }
    if (rmdir(target) < 0) die(STEP, target);
    pid_t child = fork();
    if (child < 0) die(STEP, "fork");
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) die(STEP, "parent");
        copy_tree(source, target);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) die(STEP, "wait");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    errno = EIO;
    die(STEP, to);
}

/* `fresh` is where a copy may be made; whoever asked sweeps it should we not live to remove it. */
void number_layer(const char *path, const char *seed, const char *fresh) {
    int source = open_directory(STEP, seed);
    if (flock(source, LOCK_EX) < 0) die(STEP, seed);
    int layer = open_directory(STEP, path);
    uint64_t begun_at = number_of(layer, MARK);
    if (begun_at == 0 || begun_at != number_of(source, MARK)) {
        disk_clone(seed, fresh);
        copy_upper(path, fresh);
        if (syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, fresh, RENAME_EXCHANGE) < 0) die(STEP, path);
        close(layer);
        disk_remove_main(fresh);
        layer = open_directory(STEP, path);
    }
    count_up_to(source, next_number(layer, path), seed);
    close(layer);
    close(source);
}
