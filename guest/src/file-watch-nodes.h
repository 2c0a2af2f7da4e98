/*
 * The watched directories: watches belong to inodes, names to us. Each node knows its name and its parent's watch.
 */
#ifndef HOLDFAST_FILE_WATCH_NODES_H
#define HOLDFAST_FILE_WATCH_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NODE_BUCKETS 4096
#define WATCH_DIRECTORIES_MAX 65536

struct node {
    struct node *next; /* in its bucket */
    int watch;
    int parent; /* the parent's watch; -1 for the root */
    uint32_t generation;
    bool detached; /* moved away; dropped unless it turns up again */
    bool doomed;
    char name[]; /* at most NAME_MAX bytes */
};

struct node_table {
    int root; /* the watch of the directory that was asked for */
    uint32_t generation;
    struct node *buckets[NODE_BUCKETS];
    size_t count;
    size_t detached_count;
};
extern struct node_table node_table;

struct node *node_find(int watch);
struct node *node_child(int parent, const char *name);
void node_forget(int watch);
/* 0 or an errno. */
int node_put(int watch, int parent, const char *name, bool *is_new);
const char *node_path(const struct node *node, const char *name);
void drop_nodes(int inotify, bool stale);

#endif
