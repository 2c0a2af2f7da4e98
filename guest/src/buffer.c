#include "buffer.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST_CAPACITY 1024

uint8_t *buffer_reserve(struct buffer *buffer, size_t length) {
    if (buffer->capacity - buffer->end >= length && buffer->bytes) return buffer->bytes + buffer->end;
    size_t queued = buffer_length(buffer);
    if (buffer->capacity - queued >= length && buffer->bytes) {
        memmove(buffer->bytes, buffer->bytes + buffer->start, queued);
    } else {
        size_t capacity = SMALLEST_CAPACITY;
        while (capacity < queued + length) capacity *= 2;
        uint8_t *bytes = malloc(capacity);
        if (!bytes) return NULL;
        if (queued > 0) memcpy(bytes, buffer->bytes + buffer->start, queued);
        free(buffer->bytes);
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    buffer->start = 0;
    buffer->end = queued;
    return buffer->bytes + buffer->end;
}

void buffer_commit(struct buffer *buffer, size_t length) {
    buffer->end += length;
}

bool buffer_append(struct buffer *buffer, const void *bytes, size_t length) {
    if (length == 0) return true;
    uint8_t *room = buffer_reserve(buffer, length);
    if (!room) return false;
    memcpy(room, bytes, length);
    buffer_commit(buffer, length);
    return true;
}

void buffer_consume(struct buffer *buffer, size_t length) {
    buffer->start += length;
    if (buffer->start == buffer->end) buffer->start = buffer->end = 0;
}

void buffer_release(struct buffer *buffer) {
    free(buffer->bytes);
    memset(buffer, 0, sizeof *buffer);
}

enum frame_state buffer_peek_frame(const struct buffer *buffer, struct frame_header *header, const uint8_t **payload) {
    if (buffer_length(buffer) < HEADER_BYTES) return FRAME_INCOMPLETE;
    if (!frame_header_parse(buffer_head(buffer), header)) return FRAME_BROKEN;
    if (buffer_length(buffer) - HEADER_BYTES < header->length) return FRAME_INCOMPLETE;
    *payload = buffer_head(buffer) + HEADER_BYTES;
    return FRAME_COMPLETE;
}

void buffer_consume_frame(struct buffer *buffer, const struct frame_header *header) {
    buffer_consume(buffer, HEADER_BYTES + (size_t)header->length);
}
