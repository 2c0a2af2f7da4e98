#include "netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAMILY_NETLINK 16

/* From linux/netlink.h, which musl does not have. */
struct netlink_address {
    uint16_t family;
    uint16_t padding;
    uint32_t port;
    uint32_t groups;
};

void netlink_begin(struct netlink_batch *batch) {
    memset(batch, 0, sizeof *batch);
}

void netlink_append(struct netlink_batch *batch, const void *value, size_t length) {
    size_t aligned = netlink_align(length);
    if (aligned > sizeof batch->bytes - batch->length) {
        batch->failed = true;
        return;
    }
    if (length > 0) memcpy(batch->bytes + batch->length, value, length);
    batch->length += aligned;
    uint32_t total = (uint32_t)(batch->length - batch->message);
    memcpy(batch->bytes + batch->message, &total, sizeof total);
}

void netlink_message(struct netlink_batch *batch, unsigned type, unsigned flags, const void *head, size_t length) {
    struct netlink_header header = {
        .type = (uint16_t)type,
        .flags = (uint16_t)(NETLINK_REQUEST | flags),
        .sequence = ++batch->sequence,
    };
    batch->message = batch->length;
    if (sizeof header > sizeof batch->bytes - batch->length) batch->message = 0; /* append then says that it failed */
    netlink_append(batch, &header, sizeof header);
    netlink_append(batch, head, length);
}

void netlink_put(struct netlink_batch *batch, unsigned type, const void *value, size_t length) {
    struct netlink_attribute attribute = {
        .length = (uint16_t)(sizeof attribute + length),
        .type = (uint16_t)type,
    };
    netlink_append(batch, &attribute, sizeof attribute);
    netlink_append(batch, value, length);
}

void netlink_put_u32(struct netlink_batch *batch, unsigned type, uint32_t value) {
    netlink_put(batch, type, &value, sizeof value);
}

void netlink_put_text(struct netlink_batch *batch, unsigned type, const char *text) {
    netlink_put(batch, type, text, strlen(text) + 1);
}

size_t netlink_nest(struct netlink_batch *batch, unsigned type) {
    size_t nest = batch->length;
    netlink_put(batch, type | NETLINK_NESTED, NULL, 0);
    return nest;
}

void netlink_unnest(struct netlink_batch *batch, size_t nest) {
    if (batch->failed) return;
    uint16_t length = (uint16_t)(batch->length - nest);
    memcpy(batch->bytes + nest, &length, sizeof length);
}

int netlink_open(int protocol, bool nonblocking) {
    return socket(FAMILY_NETLINK, SOCK_RAW | SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0), protocol);
}

/* The first refusal in what was received, 0 if the last message was acknowledged, or -1 if neither was there yet. */
static int find_answer(const uint8_t *bytes, size_t length, uint32_t last) {
    size_t at = 0;
    struct netlink_header header;
    while (length - at >= sizeof header + sizeof(int32_t)) {
        memcpy(&header, bytes + at, sizeof header);
        if (header.length < sizeof header || header.length > length - at) break;
        if (header.type == NETLINK_MESSAGE_ERROR && header.length >= sizeof header + sizeof(int32_t)) {
            int32_t error;
            memcpy(&error, bytes + at + sizeof header, sizeof error);
            if (error != 0) return -error;
            if (header.sequence == last) return 0;
        }
        size_t step = netlink_align(header.length);
        if (step > length - at) break;
        at += step;
    }
    return -1;
}

int netlink_transact(int fd, struct netlink_batch *batch) {
    if (batch->failed) return EMSGSIZE;
    struct netlink_address kernel = { .family = FAMILY_NETLINK };
    if (sendto(fd, batch->bytes, batch->length, 0, (const struct sockaddr *)(const void *)&kernel, sizeof kernel) < 0)
        return errno;
    for (;;) {
        _Alignas(8) uint8_t answer[8192];
        ssize_t got = recv(fd, answer, sizeof answer, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? errno : EPROTO;
        int error = find_answer(answer, (size_t)got, batch->sequence);
        if (error >= 0) return error;
    }
}
