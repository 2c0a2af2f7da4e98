/* What the files of truth.c say: text from text, so that it can be tested without mounts. Results are to be freed. */
#ifndef HOLDFAST_TRUTH_TEXT_H
#define HOLDFAST_TRUTH_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "cgroups.h"

/* The lines of the real file, with numbers for a machine of `total_bytes`. */
char *truth_meminfo(const char *real, uint64_t total_bytes, const struct cgroup_memory *memory);
/* The first `cpus` CPUs and their sum, in columns of constant width; the other lines as they are. */
char *truth_stat(const char *real, size_t cpus);
/* The first `cpus` processors, numbered from 0. */
char *truth_cpuinfo(const char *real, size_t cpus);
/* How many CPUs a real /proc/stat lists. */
size_t truth_count_cpus(const char *stat);

#endif
