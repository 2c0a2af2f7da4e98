/* Which of our processes are waited for by whom. Everything else that ends is only reaped: we are init. */
#ifndef HOLDFAST_CHILDREN_H
#define HOLDFAST_CHILDREN_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "list.h"
#include "loop.h"

struct child {
    struct list link;
    pid_t pid; /* 0 once it has been reaped: the number may then belong to somebody else */
    bool must_run; /* a program of ours: nobody inside may keep it stopped */
    void (*ended)(struct child *child, int status, const struct rusage *usage);
};

void child_init(struct child *child, void (*ended)(struct child *, int, const struct rusage *));
/* Between fork and this call nothing may reap: both happen in the same turn of the loop. */
void child_watch(struct list *children, struct child *child, pid_t pid);
/* The owner goes away; the process will be reaped unseen. */
void child_forget(struct child *child);
bool child_alive(const struct child *child);
/*
 * The owner goes away, and gives the process `after_ms` to clean up and end by itself before it is killed. Without
 * memory to remember that, it is killed now.
 */
void child_leave(struct child *child, struct list *children, struct loop *loop, uint64_t after_ms);
/* Reaps all that has ended, and tells the owners. */
void children_reap(struct list *children);

#endif
