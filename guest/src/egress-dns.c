/* DNS questions: whoever they were meant for, the host answers them. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "egress-internal.h"
#include "guest.h"
#include "packet.h"
#include "requests.h"
#include "stream.h"

#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif

#define QUERIES_MAX 64
/* Longer than any resolver waits before it asks again. */
#define FORGET_MS 10000
#define QUESTION_BYTES_MAX 4096
#define TURN_MAX 64

struct query {
    struct list link;
    uint64_t number;
    uint64_t since_ms;
    struct flow flow;
    bool announced;
    size_t length;
    uint8_t bytes[];
};

static struct query *query_at(struct list *item) {
    return container_of(item, struct query, link);
}

static void query_free(struct egress *egress, struct query *query) {
    list_remove(&query->link);
    egress->query_count--;
    free(query);
}

/* Programs ask again: of too many the newest are not heard. */
static void query_add(struct egress *egress, const struct flow *flow, const uint8_t *bytes, size_t length) {
    uint64_t now = now_ms();
    while (!list_empty(&egress->queries) && now - query_at(egress->queries.next)->since_ms >= FORGET_MS)
        query_free(egress, query_at(egress->queries.next));
    if (egress->query_count >= QUERIES_MAX) return;
    struct query *query = calloc(1, sizeof *query + length);
    if (!query) return;
    query->number = ++egress->next_number;
    query->since_ms = now;
    query->flow = *flow;
    query->length = length;
    memcpy(query->bytes, bytes, length);
    list_insert_before(&egress->queries, &query->link);
    egress->query_count++;
    egress_wake(egress);
}

/* Where the datagram was meant to go; false if it came straight to our door. */
static bool meant_for(struct msghdr *message, struct sockaddr_in *to) {
    struct cmsghdr *part = CMSG_FIRSTHDR(message); /* we asked for no other */
    if (!part || part->cmsg_level != IPPROTO_IP || part->cmsg_type != IP_RECVORIGDSTADDR) return false;
    memcpy(to, CMSG_DATA(part), sizeof *to);
    return to->sin_family == AF_INET && ntohs(to->sin_port) == DNS_PORT;
}

void egress_dns_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct egress *egress = container_of(watch, struct egress, datagrams);
    for (int i = 0; i < TURN_MAX; i++) {
        uint8_t bytes[QUESTION_BYTES_MAX];
        struct sockaddr_in from, to;
        _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof to)];
        struct iovec part = { .iov_base = bytes, .iov_len = sizeof bytes };
        struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                                  .msg_control = control, .msg_controllen = sizeof control };
        ssize_t got = recvmsg(watch->fd, &message, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return;
        if (got == 0 || (message.msg_flags & MSG_TRUNC) || !meant_for(&message, &to)) continue;
        struct flow flow = { .source = ntohl(from.sin_addr.s_addr), .source_port = ntohs(from.sin_port),
                             .destination = ntohl(to.sin_addr.s_addr), .destination_port = DNS_PORT };
        query_add(egress, &flow, bytes, (size_t)got);
    }
}

bool egress_dns_announce(struct egress *egress) {
    list_each(item, after, &egress->queries) {
        struct query *query = query_at(item);
        if (query->announced) continue;
        struct message note;
        stream_begin_note(egress->host, &note, NOTE_QUERY);
        message_u64(&note, FIELD_QUERY, query->number);
        message_bytes(&note, FIELD_DATAGRAM, query->bytes, query->length);
        query->announced = egress_send_note(egress, &note);
        return query->announced;
    }
    return false;
}

void egress_dns_forget_host(struct egress *egress) {
    list_each(item, after, &egress->queries) query_at(item)->announced = false;
}

static void send_answer(const struct egress *egress, const struct flow *asked, const uint8_t *bytes, size_t length) {
    struct flow back = { .source = asked->destination, .source_port = asked->destination_port,
                         .destination = asked->source, .destination_port = asked->source_port };
    uint8_t headers[UDP_HEADERS_BYTES];
    packet_udp_headers(&back, length, headers);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(back.destination) };
    union {
        const uint8_t *bytes;
        void *base;
    } data = { .bytes = bytes }; /* sendmsg only reads */
    struct iovec parts[] = { { .iov_base = headers, .iov_len = sizeof headers },
                             { .iov_base = data.base, .iov_len = length } };
    struct msghdr message = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = parts, .msg_iovlen = 2 };
    (void)sendmsg(egress->raw, &message, MSG_DONTWAIT); /* programs ask again */
}

void request_answer(const struct request *request) {
    struct egress *egress = &request->guest->egress;
    struct field datagram;
    if (!egress->enabled) {
        answer_fail(request, ENOTSUP, "this sandbox has no way out");
        return;
    }
    if (!fields_find(request->payload, request->length, FIELD_DATAGRAM, &datagram) || datagram.length > UDP_DATA_MAX) {
        answer_fail(request, EINVAL, "ANSWER needs a DATAGRAM of at most %d bytes", UDP_DATA_MAX);
        return;
    }
    uint64_t number = fields_u64(request->payload, request->length, FIELD_QUERY, 0);
    list_each(item, after, &egress->queries) {
        struct query *query = query_at(item);
        if (query->number != number) continue;
        send_answer(egress, &query->flow, datagram.value, datagram.length);
        query_free(egress, query);
        break;
    }
    answer_done(request);
}
