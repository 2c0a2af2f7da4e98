/*
 * A truthful view: /proc/meminfo, /proc/stat, /proc/cpuinfo and the lists of CPUs in /sys show the sandbox's budget,
 * not the host. Otherwise programs start 64 workers on one CPU and size their heaps for memory they do not have. And
 * boot_id names this boot of the sandbox: the host's would tell which sandboxes share a machine, and not that one of
 * them was started again.
 */
#ifndef HOLDFAST_TRUTH_H
#define HOLDFAST_TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cgroups.h"

struct truth_file {
    int fd; /* on a tmpfs of ours, or -1 */
    size_t size;
};

struct truth {
    bool active;
    int real_meminfo;
    int real_stat;
    int real_cpuinfo;
    struct truth_file meminfo;
    struct truth_file stat;
    struct truth_file cpuinfo;
    struct truth_file cpu_lists[3]; /* online, possible, present */
    struct truth_file boot_id;
    size_t shown_cpus; /* what the files that seldom change were written for */
};

struct budget;

/* Mounts the files over the real ones; false after saying why on stderr. */
bool truth_start(struct truth *truth, const struct budget *budget, const struct cgroups *cgroups);
/* Writes what is true now. Cheap; does nothing if truth_start was not called. */
void truth_refresh(struct truth *truth, const struct budget *budget, const struct cgroups *cgroups);

#endif
