#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "report.h"
#include "root.h"
#include "unpack.h"

/* Below this many free blocks a refused attribute may well mean a full disk. */
#define FREE_BLOCKS_ENOUGH 64

/* What waits for the end, when nothing is put into the directory any more. */
struct pending_directory {
    char *path;
    size_t order;
    int64_t mtime;
    uint32_t mtime_nsec;
    mode_t mode;
    bool set_mode;
};
static struct pending_directory *pending;
static size_t pending_count;
static size_t pending_capacity;

mode_t mode_of(const struct unpack *unpack, const struct tar_entry *entry) {
    mode_t mode = unpack->options->has_mode ? unpack->options->mode : (mode_t)entry->mode;
    /* Whoever may read a directory may enter it: nobody means 0644 to lock directories. */
    if (unpack->options->has_mode && entry->kind == TAR_DIRECTORY) mode |= (mode & 0444) >> 2;
    return mode;
}

static bool is_kept(struct slice name) {
    static const char USER[] = "user.";
    static const char OVERLAY[] = "user.overlay."; /* some overlays take these for their own marks */
    static const char CAPABILITY[] = "security.capability";
    if (name.length == strlen(CAPABILITY) && memcmp(name.bytes, CAPABILITY, name.length) == 0) return true;
    if (name.length > XATTR_NAME_BYTES || name.length <= strlen(USER)) return false;
    if (memcmp(name.bytes, USER, strlen(USER)) != 0) return false;
    return name.length < strlen(OVERLAY) || memcmp(name.bytes, OVERLAY, strlen(OVERLAY)) != 0;
}

/* ext4 says ENOSPC also of an attribute that is too large for it. */
static bool disk_is_full(int fd) {
    struct statvfs status;
    return fstatvfs(fd, &status) < 0 || status.f_bavail < FREE_BLOCKS_ENOUGH;
}

static void apply_xattrs(struct unpack *unpack, int fd, const struct tar_entry *entry) {
    for (size_t i = 0; i < entry->xattr_count; i++) {
        const struct tar_xattr *xattr = &entry->xattrs[i];
        char name[XATTR_NAME_BYTES + 1];
        if (!is_kept(xattr->name)) {
            unpack->skipped_xattrs++;
            continue;
        }
        memcpy(name, xattr->name.bytes, xattr->name.length);
        name[xattr->name.length] = 0;
        if (fsetxattr(fd, name, xattr->value.bytes, xattr->value.length, 0) == 0) continue;
        if (errno == EDQUOT || errno == EIO || errno == EROFS || (errno == ENOSPC && disk_is_full(fd)))
            fail_errno("set an extended attribute");
        unpack->skipped_xattrs++;
    }
}

static void wait_for_end(const char *path, const struct tar_entry *entry, mode_t mode, bool set_mode) {
    if (pending_count == pending_capacity) {
        pending_capacity = pending_capacity ? pending_capacity * 2 : 64;
        pending = allocate(pending, pending_capacity * sizeof *pending);
    }
    /* The list grows by doubling: at worst it takes three times its entries while it does. */
    remember_more(3 * sizeof *pending);
    char *copy = remember_path(path);
    pending[pending_count] = (struct pending_directory){
        .path = copy,
        .order = pending_count,
        .mtime = entry->mtime,
        .mtime_nsec = entry->mtime_nsec,
        .mode = mode,
        .set_mode = set_mode,
    };
    pending_count++;
}

static void set_owner(const struct unpack *unpack, int fd, const char *base, const struct tar_entry *entry) {
    if (!unpack->is_root) return;
    uid_t uid = unpack->options->owner ? unpack->uid : entry->uid;
    gid_t gid = unpack->options->owner ? unpack->gid : entry->gid;
    int flags = AT_SYMLINK_NOFOLLOW | (*base ? 0 : AT_EMPTY_PATH);
    if (fchownat(fd, base, uid, gid, flags) < 0) fail_errno("change the owner");
}

void apply_metadata(struct unpack *unpack, int fd, const char *path, const struct tar_entry *entry) {
    mode_t mode = mode_of(unpack, entry);
    bool is_directory = entry->kind == TAR_DIRECTORY;
    bool later = is_directory && !unpack->is_root && (mode & 0700) != 0700;
    /* In this order: a change of the owner clears set-id bits and capabilities. */
    set_owner(unpack, fd, "", entry);
    if (fchmod(fd, later ? mode | 0700 : mode) < 0) fail_errno("change the mode");
    apply_xattrs(unpack, fd, entry);
    if (is_directory) {
        wait_for_end(path, entry, mode, later);
        return;
    }
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = entry->mtime, .tv_nsec = entry->mtime_nsec } };
    if (futimens(fd, times) < 0) fail_errno("set the modification time");
}

void apply_link_metadata(struct unpack *unpack, int parent, const char *base, const struct tar_entry *entry) {
    set_owner(unpack, parent, base, entry);
    unpack->skipped_xattrs += entry->xattr_count;
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = entry->mtime, .tv_nsec = entry->mtime_nsec } };
    if (utimensat(parent, base, times, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("set the modification time");
}

/* Children before their parents; of one directory named twice, the last first. */
static int compare_pending(const void *a, const void *b) {
    const struct pending_directory *first = a;
    const struct pending_directory *second = b;
    int order = strcmp(second->path, first->path);
    if (order != 0) return order;
    return first->order < second->order ? 1 : -1;
}

void finish_directories(void) {
    if (pending_count > 0) qsort(pending, pending_count, sizeof *pending, compare_pending);
    for (size_t i = 0; i < pending_count; i++) {
        const struct pending_directory *directory = &pending[i];
        if (i > 0 && strcmp(directory->path, pending[i - 1].path) == 0) continue;
        report_entry((struct slice){ directory->path, strlen(directory->path) });
        int fd = root_open_at(directory->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (fd < 0) {
            /* A later entry has put something else in its place. */
            if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) continue;
            fail_errno("open a directory");
        }
        struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
                                     { .tv_sec = directory->mtime, .tv_nsec = directory->mtime_nsec } };
        if (futimens(fd, times) < 0) fail_errno("set the modification time");
        if (directory->set_mode && fchmod(fd, directory->mode) < 0) fail_errno("change the mode");
        close(fd);
    }
    for (size_t i = 0; i < pending_count; i++) free(pending[i].path);
    free(pending);
    pending = NULL;
}
