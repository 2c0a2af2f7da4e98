#include "connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest.h"
#include "requests.h"
#include "stream.h"

#define CONNECTIONS_MAX 64
#define STREAMS_MAX 4096
#define READ_BYTES 65536
#define PING_BYTES_MAX 64
/* Streams are pulled only while less than this waits to be written. */
#define OUT_PULL_BYTES (256 * 1024)
/* Above this (a host that asks and asks but does not read) the host is no longer listened to. */
#define OUT_PAUSE_BYTES (1024 * 1024)
/* Frames one connection may send before the others and the commands have their turn. */
#define PULLS_PER_TURN 32

/* ---- frames from the host ---- */

static bool take_hello(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    if (connection->greeted || header->stream != 0) return false;
    if (!fields_valid(payload, header->length)) return false;
    if (fields_u64(payload, header->length, FIELD_VERSION, 0) != WIRE_VERSION) return false;
    connection->greeted = true;
    return true;
}

static bool take_ping(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    if (header->length > PING_BYTES_MAX) return false;
    uint8_t pong[HEADER_BYTES];
    frame_header_write(pong, &(struct frame_header){ .length = header->length, .type = FRAME_PONG });
    return buffer_append(&connection->out, pong, sizeof pong) &&
           buffer_append(&connection->out, payload, header->length);
}

static bool take_data(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    struct stream *stream = connection_find(connection, header->stream);
    if (!stream) return header->stream != 0; /* ended while this was on its way */
    if (header->channel != CHANNEL_IN || header->length > stream->allowed) return false;
    stream->allowed -= header->length;
    if (stream->ops->data) stream->ops->data(stream, payload, header->length);
    return true;
}

static bool take_eof(struct connection *connection, const struct frame_header *header) {
    struct stream *stream = connection_find(connection, header->stream);
    if (header->length != 0 || header->channel != CHANNEL_IN || header->stream == 0) return false;
    if (stream && stream->ops->end) stream->ops->end(stream);
    return true;
}

static bool take_window(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    if (header->length != 4 || header->channel == CHANNEL_IN || header->stream == 0) return false;
    uint32_t bytes = 0;
    for (int i = 0; i < 4; i++) bytes |= (uint32_t)payload[i] << (8 * i);
    struct stream *stream = connection_find(connection, header->stream);
    if (stream) stream_add_credit(stream, header->channel, bytes);
    return true;
}

static bool take_reset(struct connection *connection, const struct frame_header *header) {
    if (header->length != 0 || header->stream == 0) return false;
    struct stream *stream = connection_find(connection, header->stream);
    if (stream) stream_fail(stream, ECANCELED, "the host abandoned this stream");
    return true;
}

static bool take_request(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    if (header->stream == 0 || connection_find(connection, header->stream)) return false;
    if (!fields_valid(payload, header->length)) return false;
    struct request request = {
        .guest = connection->guest,
        .connection = connection,
        .stream = header->stream,
        .type = header->type,
        .payload = payload,
        .length = header->length,
    };
    if (connection->stream_count >= STREAMS_MAX) {
        answer_fail(&request, EAGAIN, "more than %d streams on one connection", STREAMS_MAX);
        return true;
    }
    return request_dispatch(&request);
}

/* False if the host broke the protocol: the connection cannot go on, since nobody knows what is meant from here. */
static bool take_frame(struct connection *connection, const struct frame_header *header, const uint8_t *payload) {
    if (!connection->greeted) return header->type == FRAME_HELLO && take_hello(connection, header, payload);
    switch (header->type) {
        case FRAME_PING: return take_ping(connection, header, payload);
        case FRAME_PONG: return true;
        case FRAME_DATA: return take_data(connection, header, payload);
        case FRAME_EOF: return take_eof(connection, header);
        case FRAME_WINDOW: return take_window(connection, header, payload);
        case FRAME_RESET: return take_reset(connection, header);
        case FRAME_HELLO:
        case FRAME_DONE:
        case FRAME_FAIL:
        case FRAME_NOTE: return false; /* ours to send, not the host's; a second HELLO is none */
        default: return take_request(connection, header, payload);
    }
}

static void take_frames(struct connection *connection) {
    struct frame_header header;
    const uint8_t *payload;
    while (!connection->broken && buffer_length(&connection->out) < OUT_PAUSE_BYTES) {
        enum frame_state state = buffer_peek_frame(&connection->in, &header, &payload);
        if (state == FRAME_INCOMPLETE) return;
        if (state == FRAME_BROKEN || !take_frame(connection, &header, payload))
            connection->broken = true;
        else
            buffer_consume_frame(&connection->in, &header);
    }
}

static void read_host(struct connection *connection) {
    uint8_t *room = buffer_reserve(&connection->in, READ_BYTES);
    if (!room) {
        connection->broken = true;
        return;
    }
    ssize_t got = read(connection->watch.fd, room, READ_BYTES);
    if (got > 0) {
        buffer_commit(&connection->in, (size_t)got);
        take_frames(connection);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        connection->broken = true;
    }
}

static void connection_ready(struct watch *watch, uint32_t events) {
    struct connection *connection = container_of(watch, struct connection, watch);
    if (connection->broken) return;
    if (events & EPOLLIN) read_host(connection);
    else if (events & (EPOLLHUP | EPOLLERR)) connection->broken = true;
}

/* ---- frames to the host ---- */

void connection_send(struct connection *connection, struct message *message) {
    if (!message_finish(message) || !buffer_append(&connection->out, message->bytes, message->length))
        connection->broken = true;
    message_free(message);
}

void answer_begin_done(const struct request *request, struct message *message) {
    message_begin(message, FRAME_DONE, 0, request->stream);
}

void answer_done(const struct request *request) {
    struct message message;
    answer_begin_done(request, &message);
    connection_send(request->connection, &message);
}

void answer_fail(const struct request *request, int error, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct message message;
    message_begin(&message, FRAME_FAIL, 0, request->stream);
    message_u64(&message, FIELD_ERRNO, (uint64_t)error);
    message_text(&message, FIELD_ERRNO_NAME, errno_name(error));
    message_text(&message, FIELD_MESSAGE, text);
    connection_send(request->connection, &message);
}

struct stream *connection_find(struct connection *connection, uint32_t id) {
    struct list *bucket = &connection->streams[id % STREAM_BUCKETS];
    list_each(item, after, bucket) {
        struct stream *stream = container_of(item, struct stream, bucket);
        if (stream->id == id) return stream;
    }
    return NULL;
}

static void pull_streams(struct connection *connection) {
    for (int pulls = 0; pulls < PULLS_PER_TURN; pulls++) {
        if (connection->broken || list_empty(&connection->turns)) return;
        if (buffer_length(&connection->out) >= OUT_PULL_BYTES) return;
        struct stream *stream = container_of(connection->turns.next, struct stream, turn);
        list_remove(&stream->turn);
        /* A stream that says true still exists, and goes to the end of the queue: the others come first. */
        if (stream->ops->pull(stream)) stream_wake(stream);
    }
}

static void write_host(struct connection *connection) {
    while (!connection->broken && buffer_length(&connection->out) > 0) {
        ssize_t sent = send(connection->watch.fd, buffer_head(&connection->out), buffer_length(&connection->out),
                            MSG_NOSIGNAL);
        if (sent > 0) {
            buffer_consume(&connection->out, (size_t)sent);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            connection->broken = true;
        }
    }
}

static void connection_close(struct connection *connection) {
    struct guest *guest = connection->guest;
    for (int i = 0; i < STREAM_BUCKETS; i++)
        while (!list_empty(&connection->streams[i]))
            stream_close(container_of(connection->streams[i].next, struct stream, bucket));
    watch_close(&guest->loop, &connection->watch);
    buffer_release(&connection->in);
    buffer_release(&connection->out);
    list_remove(&connection->link);
    free(connection);
    guest->connection_count--;
    watch_arm(&guest->loop, &guest->listener, EPOLLIN);
    if (guest->connection_count == 0 && guest->budget.orphan_ms > 0)
        timer_arm(&guest->loop, &guest->orphan_timer, guest->budget.orphan_ms);
}

static void connection_service(struct connection *connection) {
    struct loop *loop = &connection->guest->loop;
    bool was_paused = buffer_length(&connection->out) >= OUT_PAUSE_BYTES;
    pull_streams(connection);
    bool had_output = buffer_length(&connection->out) > 0;
    write_host(connection);
    /* Requests may wait in the buffer since the host was paused; epoll does not know of them. */
    if (was_paused && buffer_length(&connection->out) < OUT_PAUSE_BYTES) {
        take_frames(connection);
        loop->again = true;
    }
    if (connection->broken) {
        connection_close(connection);
        return;
    }
    size_t waiting = buffer_length(&connection->out);
    uint32_t events = waiting < OUT_PAUSE_BYTES ? EPOLLIN : 0;
    if (waiting > 0) events |= EPOLLOUT;
    if (!watch_arm(loop, &connection->watch, events)) {
        connection_close(connection);
        return;
    }
    if (!list_empty(&connection->turns) && waiting < OUT_PULL_BYTES) loop->again = true;
    /* Idle sandboxes are many: an idle connection holds no memory. */
    if (!had_output && buffer_length(&connection->in) == 0) {
        buffer_release(&connection->in);
        buffer_release(&connection->out);
    }
}

void connections_service(struct guest *guest) {
    list_each(item, after, &guest->connections) connection_service(container_of(item, struct connection, link));
}

bool connections_flushed(const struct guest *guest) {
    for (const struct list *item = guest->connections.next; item != &guest->connections; item = item->next)
        if (buffer_length(&container_of(item, struct connection, link)->out) > 0) return false;
    return true;
}

void connections_close_all(struct guest *guest) {
    list_each(item, after, &guest->connections) connection_close(container_of(item, struct connection, link));
}

/* ---- the listening socket ---- */

static void connection_open(struct guest *guest, int fd) {
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        close(fd);
        return;
    }
    connection->guest = guest;
    watch_init(&connection->watch, fd, connection_ready);
    for (int i = 0; i < STREAM_BUCKETS; i++) list_init(&connection->streams[i]);
    list_init(&connection->turns);
    list_insert_before(&guest->connections, &connection->link);
    guest->connection_count++;
    timer_disarm(&guest->orphan_timer);
    struct message hello;
    message_begin(&hello, FRAME_HELLO, 0, 0);
    message_u64(&hello, FIELD_VERSION, WIRE_VERSION);
    message_u64(&hello, FIELD_BOOT_NS, guest->boot_ns);
    connection_send(connection, &hello);
}

static void listener_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct guest *guest = container_of(watch, struct guest, listener);
    while (guest->connection_count < CONNECTIONS_MAX) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            return;
        }
        connection_open(guest, fd);
    }
    watch_arm(&guest->loop, watch, 0); /* until one of them closes */
}

void connections_listen(struct guest *guest, int fd) {
    watch_init(&guest->listener, fd, listener_ready);
    watch_arm(&guest->loop, &guest->listener, EPOLLIN);
}
