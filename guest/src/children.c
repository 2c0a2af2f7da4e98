#include "children.h"

#include <sys/wait.h>

void child_init(struct child *child, void (*ended)(struct child *, int, const struct rusage *)) {
    list_init(&child->link);
    child->pid = 0;
    child->ended = ended;
}

void child_watch(struct list *children, struct child *child, pid_t pid) {
    child->pid = pid;
    list_insert_before(children, &child->link);
}

void child_forget(struct child *child) {
    list_remove(&child->link);
    child->pid = 0;
}

bool child_alive(const struct child *child) {
    return child->pid > 0;
}

static struct child *find(struct list *children, pid_t pid) {
    list_each(item, after, children) {
        struct child *child = container_of(item, struct child, link);
        if (child->pid == pid) return child;
    }
    return NULL;
}

void children_reap(struct list *children) {
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        struct child *child = find(children, pid);
        if (!child) continue;
        child_forget(child);
        child->ended(child, status, &usage);
    }
}
