#include "egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dial.h"
#include "egress-internal.h"
#include "guest.h"
#include "netlink.h"
#include "packet.h"
#include "requests.h"
#include "stream.h"

#ifndef IP_TRANSPARENT
#define IP_TRANSPARENT 19
#endif
#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif

/* Beyond this a program's kernel repeats its packet until there is room. */
#define CONNECTIONS_MAX 256
/* Whoever gave up by then does not say so; whoever did not has repeated the packet. */
#define FORGET_MS 60000
/* From the packet sent again to the connection; the program may have given up. */
#define ACCEPT_MS 5000
#define LISTEN_BACKLOG 512
#define TURN_MAX 64
/* The kernel's buffers of each connection: the guest's own memory pays for them. */
#define SOCKET_BUFFER_BYTES (64 * 1024)
#define WINDOW_BYTES (256 * 1024)
/* Many slow readers inside must not use up the guest's memory. */
#define WINDOW_OF_MANY_BYTES (32 * 1024)
#define FEW_STREAMS 64

/* From linux/netfilter/nfnetlink_log.h, which musl does not have. */
#define LOG_PACKET (4 << 8)
#define LOG_PAYLOAD 9
#define LOG_HEAD_BYTES 4

/* A connection that wants out and is not carried yet. */
struct way {
    struct list link;
    struct egress *egress;
    uint64_t number;
    uint64_t since_ms;
    struct syn syn;
    int fd;            /* of one that was made already: to a DNS server on loopback; else -1 */
    bool announced;    /* to the host that is there now */
    struct dial *dial; /* the host is connected, and the packet was sent again */
    struct timer timer;
};

struct egress_stream {
    struct stream stream;
    struct egress *egress;
};

static struct way *way_at(struct list *item) {
    return container_of(item, struct way, link);
}

/* ---- packets ---- */

static void send_packet(int fd, const uint8_t *bytes, size_t length, uint32_t destination) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(destination) };
    /* What is lost here is repeated by the kernel of whoever waits for it. */
    (void)sendto(fd, bytes, length, MSG_DONTWAIT, (const struct sockaddr *)&to, sizeof to);
}

static void send_again(const struct way *way) {
    send_packet(way->egress->raw_marked, way->syn.bytes, way->syn.length, way->syn.flow.destination);
}

static void close_in_reset(int fd) {
    struct linger at_once = { .l_onoff = 1, .l_linger = 0 };
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void refuse(const struct way *way, int error) {
    uint8_t packet[REFUSAL_BYTES_MAX];
    size_t length;
    if (way->fd >= 0) return; /* closing it says so */
    if (error == ENETUNREACH || error == EHOSTUNREACH || error == ETIMEDOUT)
        length = packet_unreachable(&way->syn, error == ENETUNREACH, packet);
    else
        length = packet_reset(&way->syn, packet);
    send_packet(way->egress->raw, packet, length, way->syn.flow.source);
}

/* ---- connections that want out ---- */

static void way_free(struct way *way) {
    timer_disarm(&way->timer);
    list_remove(&way->link);
    way->egress->connection_count--;
    if (way->fd >= 0) close_in_reset(way->fd);
    free(way);
}

static void not_accepted(struct timer *timer) {
    struct way *way = container_of(timer, struct way, timer);
    struct dial *dial = way->dial;
    way_free(way);
    dial_give_up(dial, ECONNABORTED);
}

static void forget_old(struct egress *egress) {
    uint64_t now = now_ms();
    list_each(item, after, &egress->connections) {
        struct way *way = way_at(item);
        if (!way->dial && now - way->since_ms >= FORGET_MS) way_free(way);
    }
}

static struct way *way_add(struct egress *egress, const struct syn *syn, int fd) {
    if (egress->connection_count >= CONNECTIONS_MAX) forget_old(egress);
    if (egress->connection_count >= CONNECTIONS_MAX) return NULL;
    struct way *way = calloc(1, sizeof *way);
    if (!way) return NULL;
    way->egress = egress;
    way->number = ++egress->next_number;
    way->since_ms = now_ms();
    way->syn = *syn;
    way->fd = fd;
    timer_init(&way->timer, not_accepted);
    list_insert_before(&egress->connections, &way->link);
    egress->connection_count++;
    egress_wake(egress);
    return way;
}

static struct way *way_of_flow(struct egress *egress, const struct flow *flow) {
    list_each(item, after, &egress->connections)
        if (flow_equal(&way_at(item)->syn.flow, flow)) return way_at(item);
    return NULL;
}

static struct way *way_of_number(struct egress *egress, uint64_t number) {
    list_each(item, after, &egress->connections)
        if (way_at(item)->number == number) return way_at(item);
    return NULL;
}

static void take_syn(struct egress *egress, const uint8_t *packet, size_t length) {
    struct syn syn;
    if (!packet_parse_syn(packet, length, &syn)) return;
    struct way *way = way_of_flow(egress, &syn.flow);
    if (!way) {
        (void)way_add(egress, &syn, -1);
        return;
    }
    way->since_ms = now_ms();
    way->syn = syn; /* the same once more, or of a later attempt from the same port */
    if (way->dial) send_again(way);
}

static void take_log(struct egress *egress, const uint8_t *bytes, size_t length) {
    struct netlink_header header;
    for (size_t at = 0; length - at >= sizeof header;) {
        memcpy(&header, bytes + at, sizeof header);
        if (header.length < sizeof header || header.length > length - at) return;
        size_t end = at + header.length;
        size_t cursor = at + sizeof header + LOG_HEAD_BYTES;
        struct netlink_attribute attribute;
        while (header.type == LOG_PACKET && cursor < end && end - cursor >= sizeof attribute) {
            memcpy(&attribute, bytes + cursor, sizeof attribute);
            if (attribute.length < sizeof attribute || attribute.length > end - cursor) break;
            if ((attribute.type & ~NETLINK_NESTED) == LOG_PAYLOAD)
                take_syn(egress, bytes + cursor + sizeof attribute, attribute.length - sizeof attribute);
            cursor += netlink_align(attribute.length);
        }
        if (netlink_align(header.length) > length - at) return;
        at += netlink_align(header.length);
    }
}

static void syns_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct egress *egress = container_of(watch, struct egress, syns);
    for (int i = 0; i < TURN_MAX; i++) {
        _Alignas(8) uint8_t bytes[8192];
        ssize_t got = recv(watch->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) take_log(egress, bytes, (size_t)got);
        else if (got == 0 || (errno != EINTR && errno != ENOBUFS)) return; /* what did not fit is repeated */
    }
}

/* ---- connections that have come to the listener ---- */

static bool is_local_dns(const struct flow *flow) {
    return flow->destination_port == DNS_PORT &&
           (flow->destination >> 24 == LOOPBACK_NETWORK || flow->destination == OWN_ADDRESS);
}

static void take_connection(struct egress *egress, int fd, const struct sockaddr_in *from) {
    struct sockaddr_in to;
    socklen_t length = sizeof to;
    /* Where the program wanted to go: the kernel lets the connection look as if it had got there. */
    if (getsockname(fd, (struct sockaddr *)&to, &length) < 0 || to.sin_family != AF_INET) {
        close_in_reset(fd);
        return;
    }
    struct syn made = { .flow = { .source = ntohl(from->sin_addr.s_addr), .source_port = ntohs(from->sin_port),
                                  .destination = ntohl(to.sin_addr.s_addr), .destination_port = ntohs(to.sin_port) } };
    struct way *way = way_of_flow(egress, &made.flow);
    if (way && way->dial) {
        struct dial *dial = way->dial;
        way_free(way);
        dial_carry(dial, fd);
    } else if (way || !is_local_dns(&made.flow) || !way_add(egress, &made, fd)) {
        close_in_reset(fd); /* nobody was asked: a program that came straight to our door */
    }
}

static void listener_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct egress *egress = container_of(watch, struct egress, listener);
    for (int i = 0; i < TURN_MAX; i++) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        int fd = accept4(watch->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) take_connection(egress, fd, &from);
        else if (errno != EINTR && errno != ECONNABORTED) return;
    }
}

/* ---- the host ---- */

void egress_wake(struct egress *egress) {
    if (egress->host) stream_wake(egress->host);
}

bool egress_send_note(struct egress *egress, struct message *note) {
    uint64_t *credit = &egress->host->credit[CHANNEL_OUT];
    size_t cost = note->length - HEADER_BYTES;
    if (!note->failed && cost > *credit) {
        message_free(note);
        return false;
    }
    *credit -= note->failed ? 0 : cost;
    stream_send(egress->host, note);
    return true;
}

static bool announce_connection(struct egress *egress) {
    list_each(item, after, &egress->connections) {
        struct way *way = way_at(item);
        if (way->announced) continue;
        struct message note;
        stream_begin_note(egress->host, &note, NOTE_CONNECTION);
        message_u64(&note, FIELD_CONNECTION, way->number);
        message_u64(&note, FIELD_ADDRESS, way->syn.flow.destination);
        message_u64(&note, FIELD_PORT, way->syn.flow.destination_port);
        way->announced = egress_send_note(egress, &note);
        return way->announced;
    }
    return false;
}

static bool egress_pull(struct stream *stream) {
    struct egress *egress = container_of(stream, struct egress_stream, stream)->egress;
    bool question = egress_dns_announce(egress);
    return announce_connection(egress) || question;
}

static void egress_drop(struct stream *stream) {
    struct egress_stream *own = container_of(stream, struct egress_stream, stream);
    struct egress *egress = own->egress;
    if (egress->host == stream) {
        egress->host = NULL;
        egress_dns_forget_host(egress);
        list_each(item, after, &egress->connections) way_at(item)->announced = false;
    }
    free(own);
}

static const struct stream_ops egress_ops = { .pull = egress_pull, .drop = egress_drop };

static bool has_egress(const struct request *request) {
    if (!request->guest->egress.enabled) answer_fail(request, ENOTSUP, "this sandbox has no way out");
    return request->guest->egress.enabled;
}

void request_egress(const struct request *request) {
    if (!has_egress(request)) return;
    struct egress *egress = &request->guest->egress;
    struct egress_stream *own = calloc(1, sizeof *own);
    if (!own) {
        answer_fail(request, ENOMEM, "no memory for the way out");
        return;
    }
    if (egress->host) stream_fail(egress->host, ECANCELED, "another host took over");
    own->egress = egress;
    stream_open(&own->stream, request->connection, request->stream, &egress_ops,
                fields_u64(request->payload, request->length, FIELD_WINDOW, 0));
    egress->host = &own->stream;
    egress_wake(egress);
}

/* The host gave up while we waited for the connection. */
static void host_gone(void *owner) {
    struct way *way = owner;
    refuse(way, ECONNREFUSED);
    way_free(way);
}

static struct way *find_way(const struct request *request) {
    uint64_t number = fields_u64(request->payload, request->length, FIELD_CONNECTION, 0);
    struct way *way = way_of_number(&request->guest->egress, number);
    return way && !way->dial ? way : NULL;
}

void request_accept(const struct request *request) {
    if (!has_egress(request)) return;
    struct way *way = find_way(request);
    if (!way) {
        answer_fail(request, ECONNABORTED, "there is no such connection any more");
        return;
    }
    bool few = request->connection->stream_count < FEW_STREAMS;
    struct dial *dial = dial_wait(request, few ? WINDOW_BYTES : WINDOW_OF_MANY_BYTES, host_gone, way);
    if (!dial) return;
    if (way->fd >= 0) {
        int fd = way->fd;
        way->fd = -1;
        way_free(way);
        dial_carry(dial, fd);
        return;
    }
    way->dial = dial;
    timer_arm(&request->guest->loop, &way->timer, ACCEPT_MS);
    send_again(way);
}

void request_refuse(const struct request *request) {
    if (!has_egress(request)) return;
    struct way *way = find_way(request);
    if (way) {
        refuse(way, (int)fields_u64(request->payload, request->length, FIELD_ERRNO, ECONNREFUSED));
        way_free(way);
    }
    answer_done(request);
}

/* ---- start ---- */

static int open_gate(int type) {
    int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    int on = 1;
    int bytes = SOCKET_BUFFER_BYTES;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(GATE_PORT) };
    address.sin_addr.s_addr = htonl(GATE_ADDRESS);
    bool ok = setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on) == 0;
    if (type == SOCK_DGRAM) {
        ok = ok && setsockopt(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, &on, sizeof on) == 0;
    } else {
        ok = ok && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0 &&
             setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0;
    }
    ok = ok && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (type == SOCK_STREAM) ok = ok && listen(fd, LISTEN_BACKLOG) == 0;
    if (ok) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int open_raw(uint32_t mark) {
    int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd < 0 || mark == 0 || setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool open_all(struct egress *egress, const char **step) {
    if (!egress_link_up(step)) return false;
    *step = "nfnetlink_log";
    watch_init(&egress->syns, egress_open_syns(), syns_ready);
    if (egress->syns.fd < 0) return false;
    if (!egress_rules_load(step)) return false;
    *step = "sockets";
    watch_init(&egress->listener, open_gate(SOCK_STREAM), listener_ready);
    watch_init(&egress->datagrams, open_gate(SOCK_DGRAM), egress_dns_ready);
    egress->raw = open_raw(0);
    egress->raw_marked = open_raw(CARRY_MARK);
    struct loop *loop = &egress->guest->loop;
    return egress->listener.fd >= 0 && egress->datagrams.fd >= 0 && egress->raw >= 0 && egress->raw_marked >= 0 &&
           watch_arm(loop, &egress->syns, EPOLLIN) && watch_arm(loop, &egress->listener, EPOLLIN) &&
           watch_arm(loop, &egress->datagrams, EPOLLIN);
}

bool egress_start(struct guest *guest) {
    struct egress *egress = &guest->egress;
    egress->guest = guest;
    list_init(&egress->connections);
    list_init(&egress->queries);
    const char *step = "";
    if (open_all(egress, &step)) return true;
    fprintf(stderr, "holdfast-guest: no way out: %s: %s\n", step, strerror(errno));
    return false;
}
