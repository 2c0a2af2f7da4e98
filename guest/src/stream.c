#include "stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "connection.h"

void stream_open(struct stream *stream, struct connection *connection, uint32_t id, const struct stream_ops *ops,
                 uint64_t window) {
    stream->connection = connection;
    stream->id = id;
    stream->ops = ops;
    stream->credit[CHANNEL_IN] = 0;
    stream->credit[CHANNEL_OUT] = window;
    stream->credit[CHANNEL_ERR] = window;
    stream->allowed = 0;
    list_init(&stream->turn);
    list_insert_before(&connection->streams[id % STREAM_BUCKETS], &stream->bucket);
    connection->stream_count++;
}

void stream_close(struct stream *stream) {
    list_remove(&stream->bucket);
    list_remove(&stream->turn);
    stream->connection->stream_count--;
    stream->ops->drop(stream);
}

void stream_wake(struct stream *stream) {
    if (list_empty(&stream->turn)) list_insert_before(&stream->connection->turns, &stream->turn);
}

void stream_add_credit(struct stream *stream, uint8_t channel, uint32_t bytes) {
    uint64_t *credit = &stream->credit[channel];
    *credit = bytes > UINT64_MAX - *credit ? UINT64_MAX : *credit + bytes;
    stream_wake(stream);
}

static void queue_frame(struct stream *stream, uint8_t type, uint8_t channel, const void *payload, uint32_t length) {
    struct connection *connection = stream->connection;
    uint8_t header[HEADER_BYTES];
    frame_header_write(header, &(struct frame_header){
        .length = length, .type = type, .channel = channel, .stream = stream->id });
    if (!buffer_append(&connection->out, header, sizeof header) || !buffer_append(&connection->out, payload, length))
        connection->broken = true;
}

void stream_grant(struct stream *stream, uint32_t bytes) {
    if (bytes == 0) return;
    stream->allowed += bytes;
    uint8_t value[4];
    for (int i = 0; i < 4; i++) value[i] = (uint8_t)(bytes >> (8 * i));
    queue_frame(stream, FRAME_WINDOW, CHANNEL_IN, value, sizeof value);
}

uint8_t *stream_data_reserve(struct stream *stream, size_t length) {
    uint8_t *room = buffer_reserve(&stream->connection->out, HEADER_BYTES + length);
    if (!room) {
        stream->connection->broken = true;
        return NULL;
    }
    return room + HEADER_BYTES;
}

void stream_data_commit(struct stream *stream, uint8_t channel, size_t length) {
    struct buffer *out = &stream->connection->out;
    frame_header_write(out->bytes + out->end, &(struct frame_header){
        .length = (uint32_t)length, .type = FRAME_DATA, .channel = channel, .stream = stream->id });
    buffer_commit(out, HEADER_BYTES + length);
    stream->credit[channel] -= length;
}

void stream_send_eof(struct stream *stream, uint8_t channel) {
    queue_frame(stream, FRAME_EOF, channel, NULL, 0);
}

void stream_begin_note(struct stream *stream, struct message *message, uint64_t kind) {
    message_begin(message, FRAME_NOTE, 0, stream->id);
    message_u64(message, FIELD_NOTE_KIND, kind);
}

void stream_begin_done(struct stream *stream, struct message *message) {
    message_begin(message, FRAME_DONE, 0, stream->id);
}

void stream_send(struct stream *stream, struct message *message) {
    connection_send(stream->connection, message);
}

void stream_done(struct stream *stream) {
    queue_frame(stream, FRAME_DONE, 0, NULL, 0);
    stream_close(stream);
}

void stream_fail(struct stream *stream, int error, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct request request = { .connection = stream->connection, .stream = stream->id };
    answer_fail(&request, error, "%s", text);
    stream_close(stream);
}
