/*
 * The control groups of commands. The launcher hands us directory descriptors of the sandbox's `cmd` directory, one
 * per hierarchy; no cgroup file system is visible inside. The host removes what we make: it wants the counters first.
 */
#ifndef HOLDFAST_CGROUPS_H
#define HOLDFAST_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* -1 where there is none. A v2-only host gives `unified` alone, which then has all controllers. */
struct cgroups {
    int memory;
    int pids;
    int unified;
};

struct cgroup_limits {
    uint64_t memory_bytes; /* 0: none of its own */
    uint64_t pids;
};

bool cgroups_any(const struct cgroups *cgroups);
/* Makes the command's directories and sets its limits; false with errno, and nothing is left behind. */
bool cgroups_make(const struct cgroups *cgroups, uint64_t command, const struct cgroup_limits *limits);
/* The same for a command whose directories are there. */
bool cgroups_limit(const struct cgroups *cgroups, uint64_t command, const struct cgroup_limits *limits);
/* Only for a command that never started. */
void cgroups_remove(const struct cgroups *cgroups, uint64_t command);

/*
 * fork() whose child is born in the command's unified cgroup, if the kernel can do that; `born_inside` tells, on both
 * sides. The child must then call cgroups_enter for the hierarchies it was not born into.
 */
pid_t cgroups_fork(const struct cgroups *cgroups, uint64_t command, bool *born_inside);
bool cgroups_enter(const struct cgroups *cgroups, uint64_t command, bool born_inside);

/*
 * For a file worker that writes: what it writes to a tmpfs is memory, and shall be the sandbox's, not the guest's. False
 * with errno.
 */
bool cgroups_enter_as_writer(const struct cgroups *cgroups);

/* Signals every process of the command; how many there were. SIGKILL leaves none, whatever they fork meanwhile. */
size_t cgroups_signal(const struct cgroups *cgroups, uint64_t command, int signal_number);
/* Which command a process belongs to, by /proc/<pid>/cgroup. */
bool cgroups_command_of(pid_t pid, uint64_t *command);

/* Memory of all commands together; false if no hierarchy tells. */
struct cgroup_memory {
    uint64_t used_bytes;
    uint64_t cache_bytes;    /* page cache, part of used */
    uint64_t inactive_bytes; /* the part of it that is given up first */
};
bool cgroups_memory(const struct cgroups *cgroups, struct cgroup_memory *out);

#endif
