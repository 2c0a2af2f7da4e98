/*
 * File operations: each runs in a process of its own, since disks block and the loop must not.
 *
 * They are bounded by kind, so that transfers whose host does not read, and watches that last for days, leave the
 * short operations their places.
 */
#ifndef HOLDFAST_WORKER_H
#define HOLDFAST_WORKER_H

#include <stddef.h>

#include "list.h"

enum worker_kind { WORKER_SHORT, WORKER_TRANSFER, WORKER_WATCH, WORKER_KINDS };

struct workers {
    struct {
        struct list waiting;
        size_t running;
    } pools[WORKER_KINDS];
    size_t waiting_count;
    size_t waiting_bytes;
};

void workers_init(struct workers *workers);

#endif
