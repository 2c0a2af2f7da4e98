/* One connection of the host: frames in, frames out, and the streams that take turns on it. */
#ifndef HOLDFAST_CONNECTION_H
#define HOLDFAST_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "frame.h"
#include "list.h"
#include "loop.h"

struct guest;
struct stream;

#define STREAM_BUCKETS 32

struct connection {
    struct list link;
    struct guest *guest;
    struct watch watch;
    struct buffer in;
    struct buffer out;
    struct list streams[STREAM_BUCKETS];
    size_t stream_count;
    struct list turns;
    bool greeted;
    bool broken; /* to be closed at the end of this turn of the loop: callers up the stack still hold it */
};

/* A request: its payload is a valid sequence of fields, and its stream id is free. */
struct request {
    struct guest *guest;
    struct connection *connection;
    uint32_t stream;
    uint8_t type;
    const uint8_t *payload;
    size_t length;
};

void connections_listen(struct guest *guest, int fd);
/* Lets streams fill the buffers, writes them out, and closes what is broken. Once per turn of the loop. */
void connections_service(struct guest *guest);
void connections_close_all(struct guest *guest);
/* True if nothing waits to be written to any host. */
bool connections_flushed(const struct guest *guest);

struct stream *connection_find(struct connection *connection, uint32_t id);
/* Finishes, queues and frees the message. */
void connection_send(struct connection *connection, struct message *message);

/* Answers to requests that never became a stream of their own. */
void answer_begin_done(const struct request *request, struct message *message);
void answer_done(const struct request *request);
void answer_fail(const struct request *request, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
