/*
 * Everything bubblewrap binds is first placed in a stage: a tmpfs in a mount namespace of our own. Reasons:
 * - ids: each tree is mounted with the sandbox's id map, so that files owned by root on disk are root's inside, and the
 *   disk never holds shifted ids;
 * - read-only is set here, outside, by the host's root: bubblewrap's own namespace then inherits it *locked*, so that
 *   even CAP_SYS_ADMIN inside could not remount it writable;
 * - bubblewrap runs as the sandbox's uid, which may not even search the directories the sources lie in;
 * - sources are resolved once, to descriptors, before anything is mounted over anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel.h"
#include "launch.h"

/*
 * A copy of the mount at `path`, in no namespace: from a descriptor of it `..` leads nowhere. With `no_links` no part of
 * the path may be a symbolic link, for a path that somebody hostile may have a hand in.
 */
int open_detached(const char *path, bool no_links) {
    int place = AT_FDCWD;
    if (no_links) {
        struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
        place = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
        if (place < 0) return -1;
    }
    unsigned flags = OPEN_TREE_CLONE | O_CLOEXEC | (no_links ? AT_EMPTY_PATH : 0);
    int tree = (int)syscall(SYS_open_tree, place, no_links ? "" : path, flags);
    int error = errno;
    if (no_links) close(place);
    errno = error;
    return tree;
}

void mounts_open(struct staged_mount *mounts, size_t count, int userns_fd) {
    for (size_t i = 0; i < count; i++) {
        struct staged_mount *mount = &mounts[i];
        mount->tree_fd = open_detached(mount->source, mount->no_links);
        if (mount->tree_fd < 0) die(mount->no_links && errno == ELOOP ? "mount source" : "open tree", mount->source);
        struct stat info;
        if (fstat(mount->tree_fd, &info) < 0) die("open tree", mount->source);
        mount->is_directory = S_ISDIR(info.st_mode);
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
        if (mount->read_only) attr.attr_set |= MOUNT_ATTR_RDONLY;
        if (mount->idmapped) {
            attr.attr_set |= MOUNT_ATTR_IDMAP;
            attr.userns_fd = (uint64_t)userns_fd;
        }
        if (syscall(SYS_mount_setattr, mount->tree_fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
            die("map ids of", mount->source);
    }
}

static void make_target(const char *name, bool is_directory) {
    if (is_directory) {
        if (mkdir(name, 0755) < 0) die("stage", name);
        return;
    }
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) die("stage", name);
    close(fd);
}

/*
 * Names are relative to the stage, our current directory: the option string stays short, however deep the layers lie. The
 * features that tie an upper layer to the very lower one it was first mounted with stay off, whatever the kernel's default:
 * a sandbox that was stopped may find its image made anew. So does the one that renames a directory of the image by a mark
 * on it: what a sandbox writes may become a layer, and no archive of layers knows such marks.
 */
static void mount_overlay(const struct staged_overlay *overlay) {
    char options[4096];
    int length = overlay->upper[0] == 0
        ? snprintf(options, sizeof options, "lowerdir=%s", overlay->lowers)
        : snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,xino=off,index=off,metacopy=off,redirect_dir=off",
                   overlay->lowers, overlay->upper, overlay->upper);
    if (length < 0 || length >= (int)sizeof options) {
        errno = E2BIG;
        die("overlay", overlay->name);
    }
    make_target(overlay->name, true);
    unsigned long flags = MS_NOSUID | MS_NODEV | (overlay->upper[0] == 0 ? MS_RDONLY : 0);
    if (mount("overlay", overlay->name, "overlay", flags, options) < 0) die("overlay", options);
}

/*
 * An overlay works with the credentials of whoever mounted it. Its layers are id-mapped, and the host's root is not in
 * that map: it could create nothing there. So the mount is made with the sandbox's file system ids, and root's
 * capabilities, which NO_SETUID_FIXUP lets us keep meanwhile.
 */
static void take_fs_ids(uid_t id) {
    if (prctl(PR_SET_SECUREBITS, id == 0 ? 0 : SECBIT_NO_SETUID_FIXUP) < 0) die("overlay", "securebits");
    setfsgid(id);
    setfsuid(id);
    /* These two calls report the former id and never an error; asking with -1 shows what is in force. */
    if (setfsuid((uid_t)-1) != (int)id || setfsgid((gid_t)-1) != (int)id) {
        errno = EPERM;
        die("overlay", "file system ids");
    }
}

void mounts_stage(const char *stage) {
    if (mount("holdfast-stage", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") < 0) die("stage", stage);
    if (chdir(stage) < 0) die("stage", stage);
}

void mounts_place(uid_t ids, struct staged_mount *mounts, size_t count, struct staged_overlay *overlays,
                  size_t overlay_count) {
    for (size_t i = 0; i < count; i++) {
        make_target(mounts[i].name, mounts[i].is_directory);
        if (syscall(SYS_move_mount, mounts[i].tree_fd, "", AT_FDCWD, mounts[i].name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            die("place", mounts[i].source);
        close(mounts[i].tree_fd);
    }
    take_fs_ids(ids);
    for (size_t i = 0; i < overlay_count; i++) mount_overlay(&overlays[i]);
    take_fs_ids(0);
}

/*
 * The place may be in files that a sandbox wrote: it is opened without following a link, and mounted onto by descriptor.
 */
void mounts_nest(const struct nested_mount *nested, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int root = open(nested[i].into, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (root < 0) die("nest", nested[i].into);
        if (strchr(nested[i].directory, '/')) {
            errno = EINVAL;
            die("nest", nested[i].directory);
        }
        int target = openat(root, nested[i].directory, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (target < 0) die("nest", nested[i].directory);
        if (syscall(SYS_move_mount, AT_FDCWD, nested[i].name, target, "", MOVE_MOUNT_T_EMPTY_PATH) < 0)
            die("nest", nested[i].name);
        close(target);
        close(root);
    }
}
