/* DIAL: the host reaches a port or a unix socket inside. What was accepted for the host is carried in the same way. */
#include "dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "guest.h"
#include "inflow.h"
#include "requests.h"
#include "stream.h"

/* linux/openat2.h, which musl does not have. */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define RESOLVE_NO_MAGICLINKS 0x02
struct open_how {
    uint64_t flags, mode, resolve;
};

#define DIAL_WINDOW_BYTES (256 * 1024)
/* A program may have ended and left its connection half open. */
#define PROBE_IDLE_S 30
#define PROBE_EVERY_S 10

struct dial {
    struct stream stream;
    struct guest *guest;
    struct watch watch;
    struct inflow inflow;
    uint32_t window;
    uint16_t port;     /* 0 for a unix socket */
    bool carried;      /* made from inside */
    void (*gone)(void *owner); /* until the connection has come */
    void *owner;
    bool tried_ipv6;
    bool connected;
    bool wants_input;  /* the socket was empty: wait until it is not */
    bool host_ended;   /* the host sent EOF */
    bool write_ended;  /* and it was passed on, or nobody is there to take it */
    bool read_ended;
};

static struct dial *dial_of(struct stream *stream) {
    return container_of(stream, struct dial, stream);
}

static void rearm(struct dial *dial) {
    uint32_t events = dial->wants_input ? EPOLLIN : 0;
    if (!dial->connected || buffer_length(&dial->inflow.pending) > 0) events |= EPOLLOUT;
    /* A program that is gone says nothing more: only the kernel's probes find that out. */
    if (dial->carried && dial->read_ended && events == 0) events = EPOLLET;
    watch_arm(&dial->guest->loop, &dial->watch, events);
}

/* ---- connecting ---- */

static int begin_connect(struct dial *dial, const struct sockaddr *address, socklen_t length) {
    watch_close(&dial->guest->loop, &dial->watch);
    dial->watch.fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->watch.fd < 0) return errno;
    if (address->sa_family != AF_UNIX) {
        int on = 1; /* the host has done its own batching */
        (void)setsockopt(dial->watch.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (connect(dial->watch.fd, address, length) == 0 || errno == EINPROGRESS) return 0;
    return errno;
}

static int connect_ipv4(struct dial *dial) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(dial->port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return begin_connect(dial, (const struct sockaddr *)&address, sizeof address);
}

static int connect_ipv6(struct dial *dial) {
    struct sockaddr_in6 address = { .sin6_family = AF_INET6, .sin6_port = htons(dial->port) };
    address.sin6_addr = in6addr_loopback;
    dial->tried_ipv6 = true;
    int error = begin_connect(dial, (const struct sockaddr *)&address, sizeof address);
    /* No IPv6 here is no news; that nobody listens is. */
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL ? ECONNREFUSED : error;
}

/*
 * The sandbox may have made the path a link to one of our own descriptors: links by which the kernel jumps to another
 * process's files are not followed. What was found is then connected to by its descriptor.
 */
static int connect_unix(struct dial *dial, const char *path) {
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
    int found = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (found < 0) return errno;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", found);
    int error = begin_connect(dial, (const struct sockaddr *)&address, sizeof address);
    close(found);
    return error;
}

static void connect_failed(struct dial *dial, int error) {
    if (dial->port && !dial->tried_ipv6) error = connect_ipv6(dial);
    if (error == 0)
        rearm(dial);
    else if (dial->port)
        stream_fail(&dial->stream, error, "port %u: %s", dial->port, strerror(error));
    else
        stream_fail(&dial->stream, error, "unix socket: %s", strerror(error));
}

static void connected(struct dial *dial) {
    dial->connected = true;
    struct message note;
    stream_begin_note(&dial->stream, &note, NOTE_CONNECTED);
    stream_send(&dial->stream, &note);
    stream_grant(&dial->stream, dial->window);
    rearm(dial);
    stream_wake(&dial->stream);
}

static void connect_ended(struct dial *dial) {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(dial->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) error = errno;
    if (error != 0) connect_failed(dial, error);
    else connected(dial);
}

/* ---- bytes ---- */

static void write_inside(struct dial *dial) {
    enum inflow_state state = inflow_flush(&dial->inflow, dial->watch.fd, &dial->stream);
    if (state == INFLOW_DRAINED && dial->host_ended && !dial->write_ended) {
        (void)shutdown(dial->watch.fd, SHUT_WR);
        dial->write_ended = true;
    }
    if (state == INFLOW_BROKEN) dial->write_ended = true;
    rearm(dial);
    if (dial->write_ended) stream_wake(&dial->stream); /* perhaps that was all */
}

static void dial_ready(struct watch *watch, uint32_t events) {
    struct dial *dial = container_of(watch, struct dial, watch);
    if (!dial->connected) {
        connect_ended(dial);
        return;
    }
    if (dial->carried && dial->read_ended && (events & EPOLLERR)) {
        stream_fail(&dial->stream, ECONNRESET, "the program inside is gone");
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        dial->wants_input = false;
        stream_wake(&dial->stream);
    }
    write_inside(dial);
}

static bool dial_pull(struct stream *stream) {
    struct dial *dial = dial_of(stream);
    if (!dial->connected) return false;
    if (dial->read_ended) {
        if (dial->write_ended) stream_done(stream);
        return false;
    }
    uint64_t credit = stream->credit[CHANNEL_OUT];
    if (credit == 0) return false;
    size_t wanted = credit < DATA_BYTES ? (size_t)credit : DATA_BYTES;
    uint8_t *room = stream_data_reserve(stream, wanted);
    if (!room) return false;
    ssize_t got = recv(dial->watch.fd, room, wanted, MSG_DONTWAIT);
    if (got > 0) {
        stream_data_commit(stream, CHANNEL_OUT, (size_t)got);
        return true;
    }
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) {
        dial->wants_input = true;
        rearm(dial);
        return false;
    }
    if (got < 0) {
        stream_fail(stream, errno, "the connection inside broke: %s", strerror(errno));
        return false;
    }
    stream_send_eof(stream, CHANNEL_OUT);
    dial->read_ended = true;
    rearm(dial);
    return true;
}

static void dial_data(struct stream *stream, const uint8_t *bytes, size_t length) {
    struct dial *dial = dial_of(stream);
    dial->inflow.unacknowledged += (uint32_t)length;
    if (!dial->write_ended && !dial->host_ended && !buffer_append(&dial->inflow.pending, bytes, length)) {
        stream_fail(stream, ENOMEM, "no memory for the connection");
        return;
    }
    write_inside(dial);
}

static void dial_end(struct stream *stream) {
    struct dial *dial = dial_of(stream);
    dial->host_ended = true;
    if (dial->connected) write_inside(dial);
}

/* A program inside shall not take a connection that broke for one that ended. */
static void end_in_reset(const struct dial *dial) {
    if (!dial->carried || dial->watch.fd < 0 || (dial->read_ended && dial->write_ended)) return;
    struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
    (void)setsockopt(dial->watch.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

static void dial_drop(struct stream *stream) {
    struct dial *dial = dial_of(stream);
    if (dial->gone) dial->gone(dial->owner);
    end_in_reset(dial);
    watch_close(&dial->guest->loop, &dial->watch);
    buffer_release(&dial->inflow.pending);
    free(dial);
}

static const struct stream_ops dial_ops = { .pull = dial_pull, .data = dial_data, .end = dial_end, .drop = dial_drop };

static struct dial *dial_new(const struct request *request, uint32_t window) {
    struct dial *dial = calloc(1, sizeof *dial);
    if (!dial) {
        answer_fail(request, ENOMEM, "no memory for the connection");
        return NULL;
    }
    dial->guest = request->guest;
    dial->window = window;
    watch_init(&dial->watch, -1, dial_ready);
    stream_open(&dial->stream, request->connection, request->stream, &dial_ops,
                fields_u64(request->payload, request->length, FIELD_WINDOW, 0));
    return dial;
}

struct dial *dial_wait(const struct request *request, uint32_t window, void (*gone)(void *owner), void *owner) {
    struct dial *dial = dial_new(request, window);
    if (!dial) return NULL;
    dial->carried = true;
    dial->gone = gone;
    dial->owner = owner;
    return dial;
}

void dial_carry(struct dial *dial, int fd) {
    int on = 1; /* the other end has done its own batching */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int idle_s = PROBE_IDLE_S, every_s = PROBE_EVERY_S;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    dial->gone = NULL;
    dial->watch.fd = fd;
    connected(dial);
}

void dial_give_up(struct dial *dial, int error) {
    dial->gone = NULL;
    stream_fail(&dial->stream, error, "the connection did not come: %s", strerror(error));
}

void request_dial(const struct request *request) {
    uint64_t port = fields_u64(request->payload, request->length, FIELD_PORT, 0);
    char *path = fields_text(request->payload, request->length, FIELD_PATH);
    struct dial *dial = NULL;
    if (port > UINT16_MAX || (port == 0) == (path == NULL))
        answer_fail(request, EINVAL, "DIAL needs a PORT from 1 to %d or a PATH", UINT16_MAX);
    else
        dial = dial_new(request, DIAL_WINDOW_BYTES);
    if (dial) {
        dial->port = (uint16_t)port;
        int error = path ? connect_unix(dial, path) : connect_ipv4(dial);
        if (error != 0) connect_failed(dial, error);
        else rearm(dial);
    }
    free(path);
}
