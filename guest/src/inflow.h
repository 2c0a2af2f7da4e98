/* Bytes from the host on their way to a socket inside: bounded by the credit the host was given. */
#ifndef HOLDFAST_INFLOW_H
#define HOLDFAST_INFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"

struct stream;

struct inflow {
    struct buffer pending;
    uint32_t unacknowledged; /* bytes of the host for which no credit was given back yet */
};

enum inflow_state { INFLOW_DRAINED, INFLOW_BLOCKED, INFLOW_BROKEN };

/* Writes what it can. Once all is written, or nobody takes it any more, the host gets its credit back. */
enum inflow_state inflow_flush(struct inflow *inflow, int socket, struct stream *stream);

#endif
