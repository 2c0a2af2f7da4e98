/*
 * Layers lie beside the disks and look like them: a directory, on btrfs a subvolume, with `upper` in it. Nobody writes to a
 * layer that is finished.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernel.h"
#include "launch.h"

/* `subvolume` or `directory`: the pool decides, not what the host's file system happens to be. */
static bool wants_subvolume(const char *kind) {
    if (strcmp(kind, "subvolume") == 0) return true;
    if (strcmp(kind, "directory") == 0) return false;
    errno = EINVAL;
    die("layer", kind);
}

int open_directory(const char *step, const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) die(step, path);
    return fd;
}

/* Whoever asked and was killed could not say when we are done, and somebody else is going to remove what we make. */
static void end_with_parent(void) {
    pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) die("layer", "parent");
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int layer_make_main(const char *path, const char *kind, const char *seed) {
    char copy[4096];
    const char *name;
    bool is_subvolume = wants_subvolume(kind);
    if (is_subvolume && seed != NULL) {
        disk_clone(seed, path);
        return 0;
    }
    int parent = open_parent(path, copy, sizeof copy, &name);
    if (is_subvolume) subvolume_create(parent, name, path);
    else if (mkdirat(parent, name, 0755) < 0) die("layer", path);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || mkdirat(fd, "upper", 0755) < 0) die("layer", path);
    return 0;
}

/* Says in microseconds what the sync took: whoever stands still meanwhile wants to know. */
int disk_clone_main(const char *from, const char *path) {
    end_with_parent();
    int fd = open_directory("clone disk", from);
    uint64_t begin = now_us();
    if (syncfs(fd) < 0) die("clone disk", from);
    printf("%llu\n", (unsigned long long)(now_us() - begin));
    disk_clone(from, path);
    return 0;
}

/*
 * cp(1) knows holes, links, attributes and reflinks. Attributes are named: what `-a` implies may fail in silence, and they
 * are how an overlay remembers deletions.
 */
int disk_copy_main(const char *from, const char *path) {
    char source[4096], target[4096];
    if (snprintf(source, sizeof source, "%s/upper", from) >= (int)sizeof source ||
        snprintf(target, sizeof target, "%s/upper", path) >= (int)sizeof target) {
        errno = ENAMETOOLONG;
        die("copy disk", path);
    }
    end_with_parent();
    if (mkdir(path, 0755) < 0) die("copy disk", path);
    copy_tree(source, target);
}

_Noreturn void copy_tree(const char *source, const char *target) {
    execlp("cp", "cp", "-R", "-P", "--preserve=mode,ownership,timestamps,links,xattr", "--reflink=auto", "--sparse=auto",
           "--", source, target, (char *)NULL);
    die("copy disk", "cp");
}

/*
 * Only what the sandbox wrote stays. It is a whole disk or a whole layer at every moment: what goes is made anew whenever
 * a disk is used. `synced` says that what stays is on the disk already, as after disk-clone. With a seed its inode numbers
 * become those of no other layer.
 */
int layer_finish_main(const char *path, const char *kind, const char *state, const char *seed, const char *fresh) {
    bool is_subvolume = wants_subvolume(kind);
    bool is_synced = strcmp(state, "synced") == 0;
    end_with_parent();
    int fd = open_directory("finish layer", path);
    /* First: in a disk that is full nothing can be removed. */
    if (is_subvolume) set_limit(fd, path, BTRFS_QGROUP_NO_LIMIT);
    if (remove_tree_at(fd, "work") < 0 || remove_tree_at(fd, "spill") < 0) die("finish layer", path);
    if (is_subvolume && seed != NULL) {
        number_layer(path, seed, fresh);
        close(fd);
        fd = open_directory("finish layer", path);
    }
    if (!is_synced && syncfs(fd) < 0) die("finish layer", path);
    printf("%llu\n", is_subvolume ? (unsigned long long)subvolume_id(fd, path) : 0ull);
    return 0;
}

int layer_id_main(const char *path) {
    int fd = open_directory("layer", path);
    printf("%llu\n", (unsigned long long)subvolume_id(fd, path));
    return 0;
}
