/*
 * A sandbox's disk is a directory with `upper` and `work` (the overlay's) and `spill` (output that outgrew its ring), all
 * on one file system. On btrfs it is a subvolume with a quota of its own; elsewhere plain directories, watched.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernel.h"
#include "launch.h"

#define REUSE_SLACK_BYTES (64ull << 20)

static bool is_btrfs(int fd) {
    struct statfs info;
    return fstatfs(fd, &info) == 0 && (unsigned long)info.f_type == (unsigned long)BTRFS_SUPER_MAGIC_NUMBER;
}

/* Opens the directory that holds `path`; `name` is set to the last component, which points into `copy`. */
int open_parent(const char *path, char *copy, size_t size, const char **name) {
    if (strlen(path) >= size) {
        errno = ENAMETOOLONG;
        die("disk", path);
    }
    strcpy(copy, path);
    char *slash = strrchr(copy, '/');
    if (!slash || slash == copy || slash[1] == 0) {
        errno = EINVAL;
        die("disk", path);
    }
    *slash = 0;
    *name = slash + 1;
    int fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) die("disk", copy);
    return fd;
}

void set_limit(int fd, const char *path, uint64_t limit_bytes) {
    struct btrfs_ioctl_qgroup_limit_args args = {
        .limit = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = limit_bytes },
    };
    if (ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0) die("disk quota", path);
}

/* The number of the subvolume that a descriptor is in: its quota group is called 0/<number>. */
uint64_t subvolume_id(int fd, const char *path) {
    struct btrfs_ioctl_ino_lookup_args args = { .objectid = BTRFS_FIRST_FREE_OBJECTID };
    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0) die("disk", path);
    return args.treeid;
}

void subvolume_create(int parent, const char *name, const char *path) {
    struct btrfs_ioctl_vol_args args = { 0 };
    if (strlen(name) > 255) {
        errno = ENAMETOOLONG;
        die("disk", path);
    }
    strcpy(args.name, name);
    if (ioctl(parent, BTRFS_IOC_SUBVOL_CREATE, &args) < 0) die("disk", path);
}

/* The guest reaches its spill directory by a descriptor, not through an id-mapped mount: it needs its real uid. */
static void make_scratch(int fd, const char *path, uid_t guest_uid) {
    if (mkdirat(fd, "work", 0700) < 0 || mkdirat(fd, "spill", 0700) < 0 ||
        fchownat(fd, "spill", guest_uid, guest_uid, AT_SYMLINK_NOFOLLOW) < 0)
        die("disk", path);
}

/* A limit of 0 asks for plain directories. Returns the number of the subvolume, or 0. */
uint64_t disk_make(const char *path, uint64_t limit_bytes, uid_t guest_uid) {
    char copy[4096];
    const char *name;
    int parent = open_parent(path, copy, sizeof copy, &name);
    if (limit_bytes > 0) {
        subvolume_create(parent, name, path);
    } else if (mkdirat(parent, name, 0755) < 0) {
        die("disk", path);
    }
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) die("disk", path);
    uint64_t id = limit_bytes > 0 ? subvolume_id(fd, path) : 0;
    if (limit_bytes > 0) set_limit(fd, path, limit_bytes);
    if (mkdirat(fd, "upper", 0755) < 0) die("disk", path);
    make_scratch(fd, path, guest_uid);
    close(fd);
    close(parent);
    return id;
}

int disk_limit_main(const char *path, uint64_t limit_bytes) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) die("disk quota", path);
    set_limit(fd, path, limit_bytes);
    return 0;
}

/* btrfs counts freed space as used until the next commit; this brings the count up to date. */
int disk_settle_main(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd) < 0) die("settle disk", path);
    return 0;
}

int quota_enable_main(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) die("enable quotas", path);
    struct btrfs_ioctl_quota_ctl_args args = { .cmd = BTRFS_QUOTA_CTL_ENABLE };
    if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 && errno != EEXIST) die("enable quotas", path);
    return 0;
}

/*
 * Walks a tree that something hostile made, without recursion and without following links: depth is bounded only by the
 * sandbox's quota, so neither the stack nor the descriptor table may grow with it. `..` of an open directory is safe here:
 * the sandbox is dead, nothing moves directories about while we walk (disk-usage on a live one re-checks, see below).
 */
int remove_tree_at(int parent, const char *name) {
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return -1;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0) return 0;
    /* Flatten: every subdirectory is renamed up into `name` itself until only one level is left. */
    int top = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (top < 0) return -1;
    unsigned long serial = 0;
    for (;;) {
        int listing = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = listing < 0 ? NULL : fdopendir(listing);
        if (!dir) return -1;
        bool found = false;
        struct dirent *entry;
        while ((entry = readdir(dir))) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            found = true;
            if (unlinkat(top, entry->d_name, 0) == 0 || unlinkat(top, entry->d_name, AT_REMOVEDIR) == 0) continue;
            int child = openat(top, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            if (child < 0) return -1;
            fchmod(child, 0700);
            DIR *inner = fdopendir(child);
            if (!inner) return -1;
            struct dirent *below;
            while ((below = readdir(inner))) {
                if (strcmp(below->d_name, ".") == 0 || strcmp(below->d_name, "..") == 0) continue;
                if (unlinkat(child, below->d_name, 0) == 0 || unlinkat(child, below->d_name, AT_REMOVEDIR) == 0) continue;
                char flat[64];
                snprintf(flat, sizeof flat, ".holdfast-flat-%lu", serial++);
                if (renameat(child, below->d_name, top, flat) < 0) return -1;
            }
            closedir(inner);
            if (unlinkat(top, entry->d_name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY) return -1;
        }
        closedir(dir);
        if (!found) break;
    }
    close(top);
    return unlinkat(parent, name, AT_REMOVEDIR);
}

/*
 * The disk of a sandbox that was stopped: `upper` stays as it is, the rest belonged to the processes that are gone. A disk
 * that is full gets room for what follows; disk_confine takes it back.
 */
uint64_t disk_reuse(const char *path, uint64_t limit_bytes, uid_t guest_uid) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat upper;
    if (fd < 0 || fstatat(fd, "upper", &upper, AT_SYMLINK_NOFOLLOW) < 0) die("disk", path);
    if (!S_ISDIR(upper.st_mode)) {
        errno = ENOTDIR;
        die("disk", path);
    }
    uint64_t id = limit_bytes > 0 ? subvolume_id(fd, path) : 0;
    if (limit_bytes > 0) set_limit(fd, path, limit_bytes + REUSE_SLACK_BYTES);
    if (remove_tree_at(fd, "work") < 0 || remove_tree_at(fd, "spill") < 0) die("disk", path);
    make_scratch(fd, path, guest_uid);
    close(fd);
    return id;
}

void disk_clone(const char *from, const char *path) {
    char copy[4096];
    const char *name;
    int parent = open_parent(path, copy, sizeof copy, &name);
    struct btrfs_ioctl_vol_args_v2 args = { 0 };
    if (strlen(name) > 255) {
        errno = ENAMETOOLONG;
        die("clone disk", path);
    }
    strcpy(args.name, name);
    args.fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (args.fd < 0) die("clone disk", from);
    if (ioctl(parent, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0) die("clone disk", from);
    close((int)args.fd);
    close(parent);
}

void disk_confine(const char *path, uint64_t limit_bytes) {
    if (limit_bytes > 0) (void)disk_limit_main(path, limit_bytes);
}

int disk_remove_main(const char *path) {
    char copy[4096];
    const char *name;
    int parent = open_parent(path, copy, sizeof copy, &name);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno == ENOENT) return 0;
        die("disk", path);
    }
    /* A subvolume's root always has inode 256; dropping it whole does not depend on how much it holds. */
    struct stat info;
    if (is_btrfs(fd) && fstat(fd, &info) == 0 && info.st_ino == 256) {
        struct btrfs_ioctl_vol_args args = { 0 };
        strncpy(args.name, name, 255);
        if (ioctl(parent, BTRFS_IOC_SNAP_DESTROY, &args) == 0) return 0;
    }
    close(fd);
    if (remove_tree_at(parent, name) < 0) die("remove disk", path);
    return 0;
}

#define WALK_DEPTH_MAX 512

/* Bytes allocated below `fd`, which is consumed. Deeper than WALK_DEPTH_MAX is not counted: a directory costs a block. */
static uint64_t usage_below(int fd, int depth) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return 0;
    }
    uint64_t bytes = 0;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        struct stat info;
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0) continue;
        /* A file with n names is counted n times over n: close enough, and no table of inodes to fill up. */
        bytes += (uint64_t)info.st_blocks * 512 / (S_ISDIR(info.st_mode) || info.st_nlink == 0 ? 1 : info.st_nlink);
        if (S_ISDIR(info.st_mode) && depth < WALK_DEPTH_MAX) {
            int child = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            if (child >= 0) bytes += usage_below(child, depth + 1);
        }
    }
    closedir(dir);
    return bytes;
}

int disk_usage_main(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) die("disk usage", path);
    printf("%llu\n", (unsigned long long)usage_below(fd, 0));
    return 0;
}
