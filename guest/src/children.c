#include "children.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

void child_init(struct child *child, void (*ended)(struct child *, int, const struct rusage *)) {
    list_init(&child->link);
    child->pid = 0;
    child->must_run = false;
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

struct leaver {
    struct child child;
    struct timer timer;
};

static void leaver_ended(struct child *child, int status, const struct rusage *usage) {
    (void)status, (void)usage;
    struct leaver *leaver = container_of(child, struct leaver, child);
    timer_disarm(&leaver->timer);
    free(leaver);
}

static void leaver_is_late(struct timer *timer) {
    (void)kill(container_of(timer, struct leaver, timer)->child.pid, SIGKILL);
}

void child_leave(struct child *child, struct list *children, struct loop *loop, uint64_t after_ms) {
    if (!child_alive(child)) return;
    pid_t pid = child->pid;
    child_forget(child);
    struct leaver *leaver = malloc(sizeof *leaver);
    if (!leaver) {
        (void)kill(pid, SIGKILL);
        return;
    }
    child_init(&leaver->child, leaver_ended);
    leaver->child.must_run = true;
    child_watch(children, &leaver->child, pid);
    timer_init(&leaver->timer, leaver_is_late);
    timer_arm(loop, &leaver->timer, after_ms);
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
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &usage)) > 0) {
        struct child *child = find(children, pid);
        if (WIFSTOPPED(status)) {
            /* Root inside may stop a worker of ours, and whoever waits for it would wait for ever. */
            if (child && child->must_run) (void)kill(pid, SIGCONT);
            continue;
        }
        if (!child) continue;
        child_forget(child);
        child->ended(child, status, &usage);
    }
}
