#include "file-watch-nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "file-internal.h"


/* A worker serves one watch and then ends: one table is all there is. */
struct node_table node_table = { .root = -1 };

/* Where names are put together, from the end. */
static char path[ENTRY_PATH_MAX + 1];

static struct node **node_slot(int watch) {
    struct node **slot = &node_table.buckets[(unsigned)watch % NODE_BUCKETS];
    while (*slot && (*slot)->watch != watch) slot = &(*slot)->next;
    return slot;
}

struct node *node_find(int watch) { return *node_slot(watch); }

void node_forget(int watch) {
    struct node **slot = node_slot(watch);
    struct node *node = *slot;
    if (!node) return;
    *slot = node->next;
    if (node->detached) node_table.detached_count--;
    node_table.count--;
    free(node);
}

/* Puts a node where the directory was just found. */
int node_put(int watch, int parent, const char *name, bool *is_new) {
    struct node **slot = node_slot(watch);
    struct node *old = *slot;
    *is_new = !old;
    if (old && old->parent == parent && strcmp(old->name, name) == 0) {
        if (old->detached) node_table.detached_count--;
        old->detached = false;
        old->generation = node_table.generation;
        return 0;
    }
    if (!old && node_table.count >= WATCH_DIRECTORIES_MAX) return ENOSPC;
    size_t length = strlen(name);
    struct node *node = malloc(sizeof *node + length + 1);
    if (!node) return ENOMEM;
    *node = (struct node){ .next = old ? old->next : NULL, .watch = watch, .parent = parent, .generation = node_table.generation };
    memcpy(node->name, name, length + 1);
    *slot = node;
    if (old && old->detached) node_table.detached_count--;
    if (!old) node_table.count++;
    free(old);
    return 0;
}

/*
 * "a/b" for the directory b in a, with "/name" added if there is one. NULL if the way to the root is broken: then a rename
 * is still in the queue. Steps are counted, since racing renames could make nodes each other's parent for a moment.
 */
const char *node_path(const struct node *node, const char *name) {
    char *at = path + sizeof path - 1;
    *at = 0;
    const char *part = name;
    for (size_t steps = 0; steps <= WATCH_DIRECTORIES_MAX; steps++) {
        if (part && part[0]) {
            size_t length = strlen(part);
            if ((size_t)(at - path) < length + 1) return NULL;
            if (*at) *--at = '/';
            at -= length;
            memcpy(at, part, length);
        }
        if (!node) return NULL;
        if (node->watch == node_table.root) return at;
        part = node->name;
        node = node_find(node->parent);
    }
    return NULL;
}

static bool lies_in_detached(const struct node *node) {
    for (size_t steps = 0; node && steps <= WATCH_DIRECTORIES_MAX; steps++) {
        if (node->detached) return true;
        if (node->watch == node_table.root) return false;
        node = node_find(node->parent);
    }
    return true; /* leads nowhere */
}

/* Drops what was moved out for good, or, after everything was gone through, what was not met. */
void drop_nodes(int inotify, bool stale) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < NODE_BUCKETS; i++)
            for (struct node *node = node_table.buckets[i], *next; node; node = next) {
                next = node->next;
                if (pass == 0) {
                    node->doomed = stale ? node->generation != node_table.generation : lies_in_detached(node);
                } else if (node->doomed && node->watch != node_table.root) {
                    inotify_rm_watch(inotify, node->watch);
                    node_forget(node->watch);
                }
            }
}

struct node *node_child(int parent, const char *name) {
    for (size_t i = 0; i < NODE_BUCKETS; i++)
        for (struct node *node = node_table.buckets[i]; node; node = node->next)
            if (node->parent == parent && strcmp(node->name, name) == 0) return node;
    return NULL;
}
