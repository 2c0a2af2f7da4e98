/* A table of those inodes only that have several names. */
#include <stdlib.h>
#include <string.h>

#include "pack.h"
#include "report.h"

struct seen {
    dev_t device;
    ino_t inode;
    char *path; /* NULL: an empty slot */
};
static struct seen *table;
static size_t capacity; /* a power of two, or 0 */
static size_t count;

static struct seen *slot_of(dev_t device, ino_t inode) {
    uint64_t hash = ((uint64_t)inode ^ (uint64_t)device << 40) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t at = (size_t)(hash >> 20);; at++) {
        struct seen *slot = &table[at & (capacity - 1)];
        if (!slot->path || (slot->device == device && slot->inode == inode)) return slot;
    }
}

static void grow(void) {
    struct seen *former = table;
    size_t former_capacity = capacity;
    capacity = capacity ? capacity * 2 : 256;
    table = allocate(NULL, capacity * sizeof *table);
    memset(table, 0, capacity * sizeof *table);
    for (size_t i = 0; i < former_capacity; i++)
        if (former[i].path) *slot_of(former[i].device, former[i].inode) = former[i];
    free(former);
}

const char *hardlinks_seen(const struct stat *status, const char *path) {
    if (2 * count >= capacity) grow();
    struct seen *slot = slot_of(status->st_dev, status->st_ino);
    if (slot->path) return slot->path;
    /* Half of the table is empty, and while it grows there are two. */
    remember_more(6 * sizeof *slot);
    *slot = (struct seen){ status->st_dev, status->st_ino, remember_path(path) };
    count++;
    return NULL;
}

void hardlinks_release(void) {
    for (size_t i = 0; i < capacity; i++) free(table[i].path);
    free(table);
    table = NULL;
    capacity = count = 0;
}
