#include "root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "path.h"
#include "report.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define RESOLVE_NO_MAGICLINKS_FLAG 0x02 /* linux/openat2.h is not there under musl */
#define RESOLVE_IN_ROOT_FLAG 0x10

struct open_how_v0 {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

static struct root_options options;
static struct directory_defaults defaults = { .mode = 0755 };
static int root_fd = -1;

/* Entries mostly lie beside the one before. */
static char parent_path[PATH_BYTES];
static int parent_fd = -1;

static void forget_parent(void) {
    if (parent_fd >= 0) close(parent_fd);
    parent_fd = -1;
}

void root_open(const struct root_options *wanted) {
    options = *wanted;
    root_fd = open(options.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) fail_errno(options.path);
}

void root_confine(void) {
    if (geteuid() != 0) return; /* there is no way for others, and RESOLVE_IN_ROOT holds without */
    if (unshare(CLONE_FS) < 0) fail_errno("leave the file system context");
    if (fchdir(root_fd) < 0 || chroot(".") < 0) fail_errno("change the root");
}

void root_directory_defaults(struct directory_defaults wanted) { defaults = wanted; }

int root_open_at(const char *path, int flags) {
    struct open_how_v0 how = {
        .flags = (uint64_t)(flags | O_CLOEXEC),
        .resolve = RESOLVE_IN_ROOT_FLAG | RESOLVE_NO_MAGICLINKS_FLAG,
    };
    for (;;) {
        int fd = (int)syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof how);
        /* EAGAIN: something was moved while `..` in a link was followed. */
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return fd;
    }
}

bool is_whiteout(const struct stat *status) { return S_ISCHR(status->st_mode) && status->st_rdev == makedev(0, 0); }

void set_opaque(int directory_fd) {
    if (fsetxattr(directory_fd, "trusted.overlay.opaque", "y", 1, 0) < 0) fail_errno("mark a directory opaque");
}

/* One directory that the archive does not mention, in `parent`; a descriptor of it. */
static int make_implied(int parent, const char *base) {
    bool replaces_deletion = false;
    while (mkdirat(parent, base, 0700) < 0) {
        struct stat status;
        if (errno != EEXIST) fail_errno("make a parent directory");
        if (fstatat(parent, base, &status, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("look at a parent");
        if (S_ISLNK(status.st_mode)) fail("hostile", "its parent is a link that leads to no directory");
        if (!options.overlay_deletions || !is_whiteout(&status)) fail("hostile", "its parent is not a directory");
        replaces_deletion = true;
        root_remove(parent, base);
    }
    int fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail_errno("open a parent directory");
    if (defaults.owned && fchown(fd, defaults.uid, defaults.gid) < 0) fail_errno("change the owner of a parent");
    if (fchmod(fd, defaults.mode) < 0) fail_errno("change the mode of a parent");
    if (replaces_deletion) set_opaque(fd);
    return fd;
}

/* Opens as much of the path as there is, from its end, and makes the rest. */
static int open_or_make(const char *path, bool make) {
    char existing[PATH_BYTES];
    size_t length = strlen(path);
    memcpy(existing, path, length + 1);
    int fd;
    while ((fd = root_open_at(existing, O_PATH | O_DIRECTORY)) < 0) {
        if (errno == ELOOP) fail("hostile", "its parent is a link that leads to itself");
        if (!make || (errno != ENOENT && errno != ENOTDIR)) return -1;
        if (length == 0) fail_errno("open the directory to unpack into");
        char *slash = strrchr(existing, '/');
        length = slash ? (size_t)(slash - existing) : 0;
        existing[length] = 0;
    }
    const char *rest = path + length;
    while (*rest) {
        if (*rest == '/') rest++;
        size_t run = strcspn(rest, "/");
        char base[COMPONENT_BYTES + 1];
        memcpy(base, rest, run);
        base[run] = 0;
        int next = make_implied(fd, base);
        close(fd);
        fd = next;
        rest += run;
    }
    return fd;
}

int root_parent(const char *path, bool make) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (parent_fd >= 0 && strlen(parent_path) == length && memcmp(parent_path, path, length) == 0) return parent_fd;
    char wanted[PATH_BYTES];
    memcpy(wanted, path, length);
    wanted[length] = 0;
    int fd = open_or_make(wanted, make);
    if (fd < 0) return -1;
    forget_parent();
    memcpy(parent_path, wanted, length + 1);
    parent_fd = fd;
    return fd;
}

void root_make(const char *path) {
    int fd = open_or_make(path, true);
    if (fd < 0) fail_errno("make the directory to unpack into");
    close(fd);
}

/* True when the directory is empty; false when *fd went one level down. */
static bool empty_one_level(int *fd) {
    int copy = openat(*fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) fail_errno("list a directory to be replaced");
    for (struct dirent *found; (errno = 0, found = readdir(stream));) {
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
        if (unlinkat(*fd, found->d_name, 0) == 0) continue;
        if (errno == EISDIR && unlinkat(*fd, found->d_name, AT_REMOVEDIR) == 0) continue;
        if (errno != ENOTEMPTY && errno != EEXIST) fail_errno("remove what is replaced");
        int inner = openat(*fd, found->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0) fail_errno("open a directory to be replaced");
        closedir(stream);
        close(*fd);
        *fd = inner;
        return false;
    }
    if (errno != 0) fail_errno("list a directory to be replaced");
    closedir(stream);
    return true;
}

/* A tree may be deeper than there are descriptors: it is left upwards by "..", where the emptied directory is seen again. */
static void empty_tree(int parent, const char *base) {
    int fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail_errno("open a directory to be replaced");
    for (size_t depth = 0;;) {
        if (!empty_one_level(&fd)) {
            depth++;
            continue;
        }
        if (depth-- == 0) break;
        int outer = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (outer < 0) fail_errno("leave a directory to be replaced");
        close(fd);
        fd = outer;
    }
    close(fd);
}

void root_remove(int parent, const char *base) {
    /* The kept parent may be reached by way of what goes; the caller still works with its descriptor. */
    parent_path[0] = '/';
    parent_path[1] = 0;
    if (unlinkat(parent, base, 0) == 0) return;
    if (errno != EISDIR) fail_errno("remove what is replaced");
    if (options.merge) fail_errno("a directory stands in its place");
    if (unlinkat(parent, base, AT_REMOVEDIR) == 0) return;
    if (errno != ENOTEMPTY && errno != EEXIST) fail_errno("remove what is replaced");
    empty_tree(parent, base);
    if (unlinkat(parent, base, AT_REMOVEDIR) < 0) fail_errno("remove what is replaced");
}
