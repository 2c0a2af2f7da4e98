#include "file-walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define RESOLVE_NO_XDEV_FLAG 0x01 /* linux/openat2.h is not there under musl */

struct open_how_v0 {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

/* ---- the chain of directories ---- */

int chain_push(struct chain *chain, int fd) {
    struct stat status;
    int error = fstat(fd, &status) < 0 ? errno : 0;
    if (!error && chain->count == chain->capacity) {
        size_t capacity = chain->capacity ? chain->capacity * 2 : 32;
        struct chain_level *levels = realloc(chain->levels, capacity * sizeof *levels);
        if (levels) {
            chain->levels = levels;
            chain->capacity = capacity;
        } else {
            error = ENOMEM;
        }
    }
    if (error) {
        close(fd);
        return error;
    }
    chain->levels[chain->count++] = (struct chain_level){ fd, status.st_dev, status.st_ino };
    if (chain->count > WALK_WINDOW) {
        struct chain_level *outer = &chain->levels[chain->count - 1 - WALK_WINDOW];
        if (outer->fd >= 0) close(outer->fd);
        outer->fd = -1;
    }
    return 0;
}

int chain_fd(const struct chain *chain) { return chain->levels[chain->count - 1].fd; }

int chain_pop(struct chain *chain) {
    struct chain_level *inner = &chain->levels[chain->count - 1];
    if (chain->count > 1 && inner[-1].fd < 0) {
        struct chain_level *outer = inner - 1;
        int fd = openat(inner->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) return errno;
        struct stat status;
        if (fstat(fd, &status) < 0 || status.st_dev != outer->device || status.st_ino != outer->inode) {
            close(fd);
            return EBUSY;
        }
        outer->fd = fd;
    }
    close(inner->fd);
    chain->count--;
    return 0;
}

void chain_free(struct chain *chain) {
    for (size_t i = 0; i < chain->count; i++)
        if (chain->levels[i].fd >= 0) close(chain->levels[i].fd);
    free(chain->levels);
    memset(chain, 0, sizeof *chain);
}

/* ---- batches of names ---- */

static void names_free(struct names *names) {
    free(names->arena);
    free(names->offsets);
    memset(names, 0, sizeof *names);
}

static const char *names_at(const struct names *names, size_t index) { return names->arena + names->offsets[index] + 1; }

/* qsort has no context argument in C11, and we have one thread. */
static const char *sorted_arena;

static int compare_offsets(const void *left, const void *right) {
    return strcmp(sorted_arena + *(const uint32_t *)left + 1, sorted_arena + *(const uint32_t *)right + 1);
}

static void names_sort(struct names *names) {
    if (names->count < 2) return;
    sorted_arena = names->arena;
    qsort(names->offsets, names->count, sizeof *names->offsets, compare_offsets);
}

static bool names_add(struct names *names, unsigned char type, const char *name, size_t length) {
    if (names->capacity - names->used < length + 2) {
        size_t capacity = names->capacity ? names->capacity * 2 : 2048;
        char *arena = realloc(names->arena, capacity);
        if (!arena) return false;
        names->arena = arena;
        names->capacity = capacity;
    }
    if (names->count == names->room) {
        size_t room = names->room ? names->room * 2 : 64;
        uint32_t *offsets = realloc(names->offsets, room * sizeof *offsets);
        if (!offsets) return false;
        names->offsets = offsets;
        names->room = room;
    }
    names->offsets[names->count++] = (uint32_t)names->used;
    names->arena[names->used] = (char)type;
    memcpy(names->arena + names->used + 1, name, length);
    names->arena[names->used + 1 + length] = 0;
    names->used += length + 2;
    return true;
}

/* Keeps the first names, in order, as many as make a batch. */
static bool names_trim(struct names *names) {
    names_sort(names);
    struct names kept = { 0 };
    for (size_t i = 0; i < names->count && kept.used < WALK_BATCH_BYTES; i++) {
        const char *name = names_at(names, i);
        if (!names_add(&kept, (unsigned char)name[-1], name, strlen(name))) {
            names_free(&kept);
            return false;
        }
    }
    names_free(names);
    *names = kept;
    return true;
}

/*
 * Reads the directory and keeps the first names after `after`. While it reads, twice a batch may be held; then the
 * larger names are dropped, and will be found by a later reading.
 */
static int names_load(struct names *names, int fd, const char *after, bool *complete) {
    static _Alignas(8) char buffer[32768];
    char bound[NAME_MAX + 1] = ""; /* names from here on are for a later batch */
    names->used = 0;
    names->count = 0;
    *complete = true;
    if (lseek(fd, 0, SEEK_SET) < 0) return errno;
    for (;;) {
        long got = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == ENOENT || errno == ESRCH)) break; /* removed while we hold it; a process that ended */
        if (got < 0) return errno;
        if (got == 0) break;
        for (long at = 0; at < got;) {
            /* struct linux_dirent64: u64 inode, s64 offset, u16 length, u8 type, name. */
            uint16_t record;
            memcpy(&record, buffer + at + 16, sizeof record);
            unsigned char type = (unsigned char)buffer[at + 18];
            const char *name = buffer + at + 19;
            at += record;
            size_t length = strlen(name);
            if (length == 0 || length > NAME_MAX || !strcmp(name, ".") || !strcmp(name, "..")) continue;
            if (after[0] && strcmp(name, after) <= 0) continue;
            if (bound[0] && strcmp(name, bound) > 0) continue;
            if (!names_add(names, type, name, length)) return ENOMEM;
            if (names->used >= 2 * WALK_BATCH_BYTES) {
                if (!names_trim(names)) return ENOMEM;
                strcpy(bound, names_at(names, names->count - 1));
                *complete = false;
            }
        }
    }
    names_sort(names);
    return 0;
}

/* ---- the walk ---- */

static struct walk_level *innermost(struct walk *walk) { return walk->levels[walk->chain.count - 1]; }

static int level_push(struct walk *walk, int fd) {
    size_t index = walk->chain.count;
    if (index >= walk->capacity) {
        size_t capacity = walk->capacity ? walk->capacity * 2 : 32;
        struct walk_level **levels = realloc(walk->levels, capacity * sizeof *levels);
        if (!levels) {
            close(fd);
            return ENOMEM;
        }
        walk->levels = levels;
        walk->capacity = capacity;
    }
    struct walk_level *level = calloc(1, sizeof *level);
    if (!level) {
        close(fd);
        return ENOMEM;
    }
    int error = chain_push(&walk->chain, fd);
    if (error) {
        free(level);
        return error;
    }
    walk->levels[index] = level;
    level->path_length = walk->path_length;
    if (index >= WALK_WINDOW) {
        /* Outside of the window names are not kept either: they are read again on the way back. */
        struct walk_level *outer = walk->levels[index - WALK_WINDOW];
        if (outer->next > 0) strcpy(outer->after, names_at(&outer->names, outer->next - 1));
        if (outer->next < outer->names.count) outer->complete = false;
        names_free(&outer->names);
        outer->next = 0;
    }
    return 0;
}

static bool path_reserve(struct walk *walk, size_t needed) {
    if (needed <= walk->path_capacity) return true;
    size_t capacity = walk->path_capacity ? walk->path_capacity : 512;
    while (capacity < needed) capacity *= 2;
    char *path = realloc(walk->path, capacity);
    if (!path) return false;
    walk->path = path;
    walk->path_capacity = capacity;
    return true;
}

int walk_begin(struct walk *walk, int root, const char *path) {
    memset(walk, 0, sizeof *walk);
    size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);
    if (!path_reserve(walk, length + 1)) {
        close(root);
        return ENOMEM;
    }
    memcpy(walk->path, path, length);
    walk->path[length] = 0;
    walk->path_length = length;
    int error = level_push(walk, root);
    if (error) walk_free(walk);
    return error;
}

static void fail(struct walk_item *item, int error) {
    item->kind = WALK_FAILED;
    item->error = error;
}

void walk_next(struct walk *walk, struct walk_item *item) {
    memset(item, 0, sizeof *item);
    walk->name[0] = 0;
    if (walk->pop) {
        walk->pop = false;
        if (walk->chain.count == 1) {
            item->kind = WALK_END;
            return;
        }
        int error = chain_pop(&walk->chain);
        if (error) {
            fail(item, error);
            return;
        }
        struct walk_level *inner = walk->levels[walk->chain.count];
        struct walk_level *outer = innermost(walk);
        /* The name of the one we left is the end of its path. */
        snprintf(walk->name, sizeof walk->name, "%.*s", (int)(inner->path_length - outer->path_length - 1),
                 walk->path + outer->path_length + 1);
        walk->path_length = outer->path_length;
        names_free(&inner->names);
        free(inner);
        *item = (struct walk_item){ .kind = WALK_LEFT, .directory = chain_fd(&walk->chain), .name = walk->name,
                                    .depth = walk->chain.count };
        return;
    }
    struct walk_level *level = innermost(walk);
    item->directory = chain_fd(&walk->chain);
    item->depth = walk->chain.count;
    if (level->next == level->names.count && !level->left) {
        if (level->next > 0) strcpy(level->after, names_at(&level->names, level->next - 1));
        level->next = 0;
        level->names.count = 0;
        if (!level->complete) {
            int error = names_load(&level->names, item->directory, level->after, &level->complete);
            if (error) {
                fail(item, error);
                if (error != ENOMEM) item->kind = WALK_UNREADABLE;
                return;
            }
        }
    }
    if (level->next < level->names.count) {
        const char *name = names_at(&level->names, level->next++);
        strcpy(walk->name, name);
        item->kind = WALK_ENTRY;
        item->name = walk->name;
        item->type = (unsigned char)name[-1];
        return;
    }
    level->left = true;
    walk->pop = true;
    item->kind = WALK_LEAVE;
}

int walk_descend(struct walk *walk, bool same_mount) {
    if (walk->chain.count >= WALK_DEPTH_MAX) return ENAMETOOLONG;
    int parent = chain_fd(&walk->chain);
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = -1;
    if (same_mount) {
        struct open_how_v0 how = { .flags = (uint64_t)flags, .resolve = RESOLVE_NO_XDEV_FLAG };
        fd = (int)syscall(SYS_openat2, parent, walk->name, &how, sizeof how);
        if (fd < 0 && errno != ENOSYS && errno != EPERM) return errno;
    }
    if (fd < 0) {
        fd = openat(parent, walk->name, flags);
        if (fd < 0) return errno;
        struct stat status;
        /* Without openat2 a mount of another file system is all that can be told. */
        if (same_mount && (fstat(fd, &status) < 0 || status.st_dev != walk->chain.levels[walk->chain.count - 1].device)) {
            close(fd);
            return EXDEV;
        }
    }
    size_t length = strlen(walk->name);
    if (!path_reserve(walk, walk->path_length + length + 2)) {
        close(fd);
        return ENOMEM;
    }
    walk->path[walk->path_length] = '/';
    memcpy(walk->path + walk->path_length + 1, walk->name, length + 1);
    walk->path_length += 1 + length;
    int error = level_push(walk, fd);
    if (error) walk->path_length -= 1 + length;
    return error;
}

void walk_skip(struct walk *walk) {
    struct walk_level *level = innermost(walk);
    level->names.count = 0;
    level->next = 0;
    level->complete = true;
}

const char *walk_path(struct walk *walk) {
    size_t length = strlen(walk->name);
    if (!path_reserve(walk, walk->path_length + length + 2)) return NULL;
    char *end = walk->path + walk->path_length;
    *end = 0;
    if (length > 0) {
        *end = '/';
        memcpy(end + 1, walk->name, length + 1);
    } else if (walk->path_length == 0) {
        memcpy(end, "/", 2);
    }
    return walk->path;
}

void walk_free(struct walk *walk) {
    for (size_t i = 0; i < walk->chain.count; i++) {
        names_free(&walk->levels[i]->names);
        free(walk->levels[i]);
    }
    free(walk->levels);
    free(walk->path);
    chain_free(&walk->chain);
    memset(walk, 0, sizeof *walk);
}
