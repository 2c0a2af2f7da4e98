/* Connections that the host reads and writes: dialled by it (DIAL), or made from inside and carried out (ACCEPT). */
#ifndef HOLDFAST_DIAL_H
#define HOLDFAST_DIAL_H

#include <stdint.h>

#include "connection.h"

struct dial;

/* A stream whose connection is yet to come. `gone` is called if the stream ends before that. NULL without memory. */
struct dial *dial_wait(const struct request *request, uint32_t window, void (*gone)(void *owner), void *owner);
/* It has come: bytes go both ways from here. */
void dial_carry(struct dial *dial, int fd);
/* It will not come. */
void dial_give_up(struct dial *dial, int error);

#endif
