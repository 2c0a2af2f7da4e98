/* One request and its answer, on one connection: ids, credit and turns. */
#ifndef HOLDFAST_STREAM_H
#define HOLDFAST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "list.h"

struct connection;
struct stream;

/* The largest DATA payload we send: a turn of one stream is no longer than this. */
#define DATA_BYTES 65536

struct stream_ops {
    /* Sends at most one frame or so; true if there may be more to send at once. Called only when there is room. */
    bool (*pull)(struct stream *stream);
    /* DATA from the host; NULL if this kind takes none. Its bytes were checked against the credit. */
    void (*data)(struct stream *stream, const uint8_t *bytes, size_t length);
    /* EOF from the host. */
    void (*end)(struct stream *stream);
    /* The stream is over for whatever reason: releases everything, the stream itself included. */
    void (*drop)(struct stream *stream);
};

struct stream {
    struct connection *connection;
    uint32_t id;
    const struct stream_ops *ops;
    struct list bucket; /* in the connection's table */
    struct list turn;   /* in the connection's queue of streams that have something to send */
    uint64_t credit[3]; /* what we may send, by channel */
    uint64_t allowed;   /* what the host may still send on channel 0 */
};

/* `window` is the first credit of channels 1 and 2. */
void stream_open(struct stream *stream, struct connection *connection, uint32_t id, const struct stream_ops *ops,
                 uint64_t window);
/* Leaves the connection and drops the stream. */
void stream_close(struct stream *stream);
/* It may have something to send: it gets a turn. */
void stream_wake(struct stream *stream);

/* Credit towards the host. */
void stream_add_credit(struct stream *stream, uint8_t channel, uint32_t bytes);
/* Allows the host to send `bytes` more. */
void stream_grant(struct stream *stream, uint32_t bytes);

/* Room for a DATA payload of up to `length` bytes, or NULL (then the connection is done for). */
uint8_t *stream_data_reserve(struct stream *stream, size_t length);
/* Sends the `length` bytes written there, and takes them off the credit. */
void stream_data_commit(struct stream *stream, uint8_t channel, size_t length);
void stream_send_eof(struct stream *stream, uint8_t channel);
void stream_begin_note(struct stream *stream, struct message *message, uint64_t kind);
void stream_begin_done(struct stream *stream, struct message *message);
/* Finishes, sends and frees the message. */
void stream_send(struct stream *stream, struct message *message);

/* The two ends of a stream; both close it. */
void stream_done(struct stream *stream);
void stream_fail(struct stream *stream, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
