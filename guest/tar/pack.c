#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "path.h"
#include "report.h"

#define DEPTH_MAX COMPONENTS_MAX
#define MARK ".wh."
#define OPAQUE ".wh..wh..opq"

/* One directory of those between the top and where we are. */
struct level {
    int fd;
    struct names names;
    size_t next;
    size_t path_length; /* of the directory itself, with its slash */
};

struct pack {
    const struct pack_options *options;
    struct level levels[DEPTH_MAX + 1];
    size_t depth;           /* levels in use */
    char path[PATH_BYTES + 1]; /* of what is being packed; a directory has a slash at its end */
    struct bytes header;
    uint64_t entries;
    uint64_t skipped;
    char changed[PATH_BYTES + 1]; /* the first file that was not what its header says */
};

static void put_header(struct pack *pack, const struct tar_entry *entry) {
    if (++pack->entries > pack->options->max_entries) fail("too_large", "the tree has more entries than allowed");
    pack->header.length = 0;
    if (!tar_encode(&pack->header, entry)) {
        errno = ENOMEM;
        fail_errno("make a header");
    }
    output_bytes(pack->header.data, pack->header.length);
}

/* A deletion is an empty file in the present directory. */
static void put_mark(struct pack *pack, const char *mark, const char *name) {
    char path[PATH_BYTES + 16];
    size_t directory = pack->levels[pack->depth - 1].path_length;
    int length = snprintf(path, sizeof path, "%.*s%s%s", (int)directory, pack->path, mark, name);
    if (length < 0 || (size_t)length >= PATH_BYTES) fail("too_large", "a name is over 4095 bytes");
    put_header(pack, &(struct tar_entry){ .kind = TAR_FILE, .name = { path, (size_t)length } });
}

static void enter(struct pack *pack, int fd, size_t path_length, bool opaque) {
    if (pack->depth > DEPTH_MAX) fail("too_large", "the tree is over 512 directories deep");
    if (fchdir(fd) < 0) fail_errno("enter a directory");
    pack->levels[pack->depth++] = (struct level){ .fd = fd, .names = names_read(fd), .path_length = path_length };
    if (opaque) put_mark(pack, OPAQUE, "");
}

static void leave(struct pack *pack) {
    struct level *level = &pack->levels[--pack->depth];
    names_release(&level->names);
    close(level->fd);
    if (pack->depth > 0 && fchdir(pack->levels[pack->depth - 1].fd) < 0) fail_errno("leave a directory");
}

static void fill_metadata(struct tar_entry *entry, const struct stat *status, const struct attributes *attributes) {
    entry->mode = status->st_mode & 07777;
    entry->uid = status->st_uid;
    entry->gid = status->st_gid;
    entry->mtime = status->st_mtim.tv_sec;
    entry->xattrs = attributes->kept;
    entry->xattr_count = attributes->kept_count;
}

static void pack_directory(struct pack *pack, const char *name, size_t length, struct tar_entry *entry, bool opaque) {
    entry->kind = TAR_DIRECTORY;
    if (length + 1 >= PATH_BYTES) fail("too_large", "a name is over 4095 bytes");
    memcpy(pack->path + length, "/", 2);
    entry->name.length = length + 1;
    put_header(pack, entry);
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) fail_errno("open a directory");
    enter(pack, fd, length + 1, opaque);
}

static void pack_file(struct pack *pack, const char *name, struct tar_entry *entry, const struct stat *status) {
    entry->kind = TAR_FILE;
    entry->size = (uint64_t)status->st_size;
    if (pack->options->measure || entry->size == 0) {
        put_header(pack, entry);
        if (entry->size > 0) output_file(-1, entry->size);
        return;
    }
    int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat now;
    if (fd < 0 || fstat(fd, &now) < 0) fail_errno("open");
    if (now.st_ino != status->st_ino || now.st_dev != status->st_dev) fail("changed", "it was replaced while being packed");
    put_header(pack, entry);
    if (!output_file(fd, entry->size) && !pack->changed[0]) strcpy(pack->changed, pack->path);
    close(fd);
}

static void pack_symlink(struct pack *pack, const char *name, struct tar_entry *entry) {
    char target[PATH_BYTES];
    ssize_t length = readlink(name, target, sizeof target);
    if (length < 0) fail_errno("read a link");
    entry->kind = TAR_SYMLINK;
    entry->link = (struct slice){ target, (size_t)length };
    put_header(pack, entry);
}

static void pack_entry(struct pack *pack, const char *name) {
    size_t directory = pack->levels[pack->depth - 1].path_length;
    size_t length = directory + strlen(name);
    if (length >= PATH_BYTES) fail("too_large", "a name is over 4095 bytes");
    strcpy(pack->path + directory, name);
    struct slice path = { pack->path, length };
    report_entry(path);

    bool overlay = pack->options->overlay_deletions;
    struct stat status;
    if (fstatat(AT_FDCWD, name, &status, AT_SYMLINK_NOFOLLOW) < 0) fail_errno("look at");
    bool is_device = S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode);
    /* Before hard links: overlayfs gives all deletions one inode. */
    if (overlay && S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0)) {
        put_mark(pack, MARK, name);
        return;
    }
    if (is_device || S_ISSOCK(status.st_mode)) {
        pack->skipped++;
        return;
    }
    if (overlay && strncmp(name, MARK, strlen(MARK)) == 0)
        fail("unsupported", "an image's archive would take this name for a deletion");

    struct tar_entry entry = { .name = path };
    bool is_directory = S_ISDIR(status.st_mode);
    const char *first = !is_directory && status.st_nlink > 1 ? hardlinks_seen(&status, pack->path) : NULL;
    struct attributes attributes = { 0 };
    if (!first) attributes = xattrs_read(name, overlay);
    pack->skipped += attributes.skipped;
    fill_metadata(&entry, &status, &attributes);
    if (first) {
        entry.kind = TAR_HARDLINK;
        entry.link = (struct slice){ first, strlen(first) };
        put_header(pack, &entry);
    } else if (is_directory) {
        pack_directory(pack, name, length, &entry, attributes.opaque);
    } else if (S_ISREG(status.st_mode)) {
        pack_file(pack, name, &entry, &status);
    } else if (S_ISLNK(status.st_mode)) {
        pack_symlink(pack, name, &entry);
    } else {
        entry.kind = TAR_FIFO;
        put_header(pack, &entry);
    }
}

static void pack_tree(struct pack *pack) {
    int top = open(pack->options->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) fail_errno(pack->options->from);
    if (fchdir(top) < 0) fail_errno(pack->options->from);
    bool opaque = xattrs_read(".", pack->options->overlay_deletions).opaque;
    enter(pack, top, 0, opaque);
    while (pack->depth > 0) {
        struct level *level = &pack->levels[pack->depth - 1];
        if (level->next == level->names.count) leave(pack);
        else pack_entry(pack, level->names.names[level->next++]);
    }
    report_entry((struct slice){ NULL, 0 });
}

int pack_main(const struct pack_options *options) {
    static struct pack pack;
    pack.options = options;
    output_open(options->measure, options->max_bytes);
    pack_tree(&pack);
    output_end();
    xattrs_release();
    hardlinks_release();
    bytes_release(&pack.header);
    if (pack.changed[0]) {
        report_entry((struct slice){ pack.changed, strlen(pack.changed) });
        fail("changed", "it changed its size while being packed");
    }
    fprintf(options->measure ? stdout : stderr, "{\"entries\":%llu,\"bytes\":%llu,\"skipped\":%llu}\n",
            (unsigned long long)pack.entries, (unsigned long long)output_written(), (unsigned long long)pack.skipped);
    if (fflush(NULL) != 0) fail_errno("report");
    return 0;
}
