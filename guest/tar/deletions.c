/*
 * OCI layers delete by files with special names, overlayfs by a character device 0:0 and an attribute:
 *   .wh.NAME       NAME of the layers below is gone
 *   .wh..wh..opq   all that the layers below have in this directory is gone
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "report.h"
#include "root.h"
#include "unpack.h"

#define MARK ".wh."
#define MARK_LENGTH 4
#define OPAQUE ".wh..wh..opq"
#define INTERNAL ".wh..wh." /* other names of this kind belonged to aufs, and say nothing about files */

static bool has_marked_parent(const char *path, const char *base) {
    for (const char *at = path; at < base; at = strchr(at, '/') + 1)
        if (strncmp(at, MARK, MARK_LENGTH) == 0) return true;
    return false;
}

static int parent_for(const char *path) {
    int parent = root_parent(path, true);
    if (parent < 0) fail_errno("open its parent");
    return parent;
}

static void mark_opaque(int parent, const char *base) {
    int fd = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail_errno("open a directory");
    set_opaque(fd);
    close(fd);
}

static void delete_name(int parent, const char *name) {
    struct stat status;
    if (name[0] == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) fail("hostile", "it deletes no name");
    if (mknodat(parent, name, S_IFCHR, makedev(0, 0)) == 0) return;
    if (errno != EEXIST) fail_errno("make a deletion");
    /* The archive has an entry of this name too: that one stays, without what is below it in the layers below. */
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("look at what a deletion meets");
    if (S_ISDIR(status.st_mode)) mark_opaque(parent, name);
}

bool place_deletion(struct unpack *unpack, const char *path) {
    const char *base = path_base(path);
    if (has_marked_parent(path, base)) fail("hostile", "a mark of deletion is used as a directory");
    if (strncmp(base, MARK, MARK_LENGTH) != 0) return false;
    if (strcmp(base, OPAQUE) == 0) {
        mark_opaque(parent_for(path), ".");
        /* On the top of a layer overlayfs does not look for it: whoever stacks the layers has to know. */
        size_t prefix = strlen(unpack->prefix);
        if (base == path + prefix + (prefix > 0)) unpack->opaque = true;
    } else if (strncmp(base, INTERNAL, strlen(INTERNAL)) != 0) {
        delete_name(parent_for(path), base + MARK_LENGTH);
    }
    return true;
}
