/* A byte queue: appended at the end, consumed at the start, grown when needed. The caller bounds its length. */
#ifndef HOLDFAST_BUFFER_H
#define HOLDFAST_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"

struct buffer {
    uint8_t *bytes;
    size_t start;
    size_t end;
    size_t capacity;
};

static inline size_t buffer_length(const struct buffer *buffer) {
    return buffer->end - buffer->start;
}

static inline const uint8_t *buffer_head(const struct buffer *buffer) {
    return buffer->bytes + buffer->start;
}

/* Room for `length` bytes at the end, or NULL without memory; buffer_commit says how many were written there. */
uint8_t *buffer_reserve(struct buffer *buffer, size_t length);
void buffer_commit(struct buffer *buffer, size_t length);
bool buffer_append(struct buffer *buffer, const void *bytes, size_t length);
void buffer_consume(struct buffer *buffer, size_t length);
/* Gives the memory back; what was queued is gone. */
void buffer_release(struct buffer *buffer);

enum frame_state { FRAME_INCOMPLETE, FRAME_COMPLETE, FRAME_BROKEN };

/*
 * Looks at the start of the queue for a whole frame. When there is one, `payload` points into the buffer and stays
 * valid until the frame is taken with buffer_consume_frame.
 */
enum frame_state buffer_peek_frame(const struct buffer *buffer, struct frame_header *header, const uint8_t **payload);
void buffer_consume_frame(struct buffer *buffer, const struct frame_header *header);

#endif
