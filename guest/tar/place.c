#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "report.h"
#include "root.h"
#include "unpack.h"

#define WRITE_BEHIND_BYTES (8 * 1024 * 1024)

static int parent_for(const char *path) {
    int parent = root_parent(path, true);
    if (parent < 0) fail_errno("open its parent");
    return parent;
}

static void write_all(int fd, struct slice some) {
    while (some.length > 0) {
        ssize_t written = write(fd, some.bytes, some.length);
        if (written < 0) {
            if (errno == EINTR) continue;
            fail_errno("write");
        }
        some.bytes += written;
        some.length -= (size_t)written;
    }
}

/* Always a new file: one that is there may be a link, or have other names. */
void place_file(struct unpack *unpack, const char *path, const struct tar_entry *entry) {
    int parent = parent_for(path);
    const char *base = path_base(path);
    int fd;
    while ((fd = openat(parent, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0) {
        if (errno != EEXIST) fail_errno("create");
        root_remove(parent, base);
    }
    uint64_t done = 0;
    for (uint64_t begun = 0; done < entry->size;) {
        struct slice some = input_some(entry->size - done);
        write_all(fd, some);
        done += some.length;
        /* What is on its way to the disk early need not be waited for at the end. */
        if (done - begun >= WRITE_BEHIND_BYTES) {
            (void)sync_file_range(fd, (off_t)begun, (off_t)(done - begun), SYNC_FILE_RANGE_WRITE);
            begun = done;
        }
    }
    apply_metadata(unpack, fd, path, entry);
    if (close(fd) < 0) fail_errno("close");
    unpack->files++;
    unpack->bytes += entry->size;
}

static bool leads_to_directory(const char *path) {
    int fd = root_open_at(path, O_PATH | O_DIRECTORY);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

void place_directory(struct unpack *unpack, const char *path, const struct tar_entry *entry) {
    int parent = parent_for(path);
    const char *base = path_base(path);
    bool replaces_deletion = false;
    while (mkdirat(parent, base, 0700) < 0) {
        struct stat status;
        if (errno != EEXIST) fail_errno("make a directory");
        if (fstatat(parent, base, &status, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("look at a directory");
        bool merge = unpack->options->merge;
        if (S_ISDIR(status.st_mode)) {
            if (merge) return;
            break;
        }
        if (merge && S_ISLNK(status.st_mode) && leads_to_directory(path)) return;
        replaces_deletion = unpack->options->overlay_deletions && is_whiteout(&status);
        root_remove(parent, base);
    }
    int fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail_errno("open a directory");
    apply_metadata(unpack, fd, path, entry);
    /* The deletion was of what layers below have; the new directory must not show that again. */
    if (replaces_deletion) set_opaque(fd);
    close(fd);
}

void place_symlink(struct unpack *unpack, const char *path, const struct tar_entry *entry) {
    char target[PATH_BYTES];
    if (entry->link.length == 0) fail("hostile", "a link has no target");
    if (memchr(entry->link.bytes, 0, entry->link.length)) fail("hostile", "a link's target holds a NUL");
    if (entry->link.length >= PATH_BYTES) fail("too_large", "a link's target is over 4095 bytes");
    memcpy(target, entry->link.bytes, entry->link.length);
    target[entry->link.length] = 0;
    int parent = parent_for(path);
    const char *base = path_base(path);
    while (symlinkat(target, parent, base) < 0) {
        if (errno != EEXIST) fail_errno("make a symbolic link");
        root_remove(parent, base);
    }
    apply_link_metadata(unpack, parent, base, entry);
}

void place_hardlink(const char *path, const char *target) {
    const char *target_base = path_base(target);
    int target_parent = root_parent(target, false);
    struct stat wanted;
    if (target_parent < 0 || fstatat(target_parent, target_base, &wanted, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT || errno == ENOTDIR) fail("hostile", "it is a hard link to something that is not there");
        fail_errno("look at a hard link's target");
    }
    if (S_ISDIR(wanted.st_mode)) fail("hostile", "it is a hard link to a directory");
    if (S_ISCHR(wanted.st_mode) || S_ISBLK(wanted.st_mode)) fail("hostile", "it is a hard link to a device");
    /* The next look-up drops the descriptor. */
    target_parent = fcntl(target_parent, F_DUPFD_CLOEXEC, 0);
    if (target_parent < 0) fail_errno("keep a hard link's target");
    int parent = parent_for(path);
    const char *base = path_base(path);
    while (linkat(target_parent, target_base, parent, base, 0) < 0) {
        struct stat there;
        if (errno != EEXIST) fail_errno("make a hard link");
        if (fstatat(parent, base, &there, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("look at what a hard link replaces");
        if (there.st_dev == wanted.st_dev && there.st_ino == wanted.st_ino) break;
        root_remove(parent, base);
    }
    close(target_parent);
}

void place_fifo(struct unpack *unpack, const char *path, const struct tar_entry *entry) {
    int parent = parent_for(path);
    const char *base = path_base(path);
    while (mkfifoat(parent, base, mode_of(unpack, entry) & 0777) < 0) {
        if (errno != EEXIST) fail_errno("make a fifo");
        root_remove(parent, base);
    }
    apply_link_metadata(unpack, parent, base, entry);
}
