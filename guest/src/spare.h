/*
 * A process that is ready for the first command: forked, and in the command's cgroups, before anybody has said what it is to
 * run. Entering a cgroup can take the kernel ten milliseconds on a host that is quiet, which whoever is given a sandbox that
 * was kept ready shall not wait for. It has run nothing but this, and is confined like any other before it does.
 */
#ifndef HOLDFAST_SPARE_H
#define HOLDFAST_SPARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guest;
struct spawn;

struct spare {
    bool wanted;      /* by the command line */
    pid_t pid;        /* 0: there is none */
    int socket;       /* to it */
    uint64_t command; /* whose cgroup it is in; 0: there is none */
};

/* Without one everything works as well. */
void spare_make(struct guest *guest);
/* Whether the command's cgroup is there because a spare is or was in it. */
bool spare_made_cgroup(const struct guest *guest, uint64_t command);
/* Has it run this; its pid, or -1 if a new process must. `failure_fd` is the child's end of the failure pipe. */
pid_t spare_use(struct guest *guest, const struct spawn *spawn, int failure_fd);
/* It is not needed: it ends. */
void spare_drop(struct guest *guest);

#endif
