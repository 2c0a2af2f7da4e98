/* fork, confine, exec: the only way a program of the sandbox is started. */
#ifndef HOLDFAST_SPAWN_H
#define HOLDFAST_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "users.h"

struct guest;

struct spawn {
    char **argv;
    char **envp;
    const struct user *user;
    const char *cwd; /* NULL: the user's home if it is there, else "/" */
    int cwd_fd;      /* used instead of cwd if not -1 */
    int stdio[3];    /* all above 2 */
    bool terminal;   /* stdio[0] becomes the controlling terminal */
    uint64_t command; /* whose cgroup it is born in */
};

enum spawn_stage { SPAWN_CGROUP = 1, SPAWN_TERMINAL, SPAWN_CONFINE, SPAWN_CWD, SPAWN_EXEC };

/* What the child writes to the failure pipe if it does not get as far as exec. The pipe closes on exec. */
struct spawn_failure {
    int32_t stage;
    int32_t error;
};

/* The two halves of what a child does: it joins the command's cgroups, then becomes the command. False with errno. */
bool spawn_enter(const struct guest *guest, uint64_t command, bool born_inside);
_Noreturn void spawn_run(const struct guest *guest, const struct spawn *spawn, int failure_fd, bool entered);

/* The child's pid, and in `failure_fd` the (non-blocking) pipe; -1 with errno. */
pid_t spawn_start(struct guest *guest, const struct spawn *spawn, int *failure_fd);
enum spawn_outcome { SPAWN_PENDING, SPAWN_STARTED, SPAWN_FAILED };
/* Asks the failure pipe how far the child got. Once it has ended, the answer is never SPAWN_PENDING. */
enum spawn_outcome spawn_outcome(int failure_fd, struct spawn_failure *failure);
/* The failure in words, for the host or for sudo's caller. */
void spawn_explain(const struct spawn_failure *failure, const char *program, const char *cwd, char *to, size_t size);

#endif
