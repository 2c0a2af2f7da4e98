/* Netlink messages, by hand: the sandbox's files need not hold a program that could do it for us. */
#ifndef HOLDFAST_NETLINK_H
#define HOLDFAST_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* From linux/netlink.h, which musl does not have. */
struct netlink_header {
    uint32_t length;
    uint16_t type;
    uint16_t flags;
    uint32_t sequence;
    uint32_t port;
};
struct netlink_attribute {
    uint16_t length;
    uint16_t type;
};
#define NETLINK_ROUTE 0
#define NETLINK_NETFILTER 12
#define NETLINK_MESSAGE_ERROR 2
#define NETLINK_REQUEST 0x001u
#define NETLINK_ACK 0x004u
#define NETLINK_EXCL 0x200u
#define NETLINK_CREATE 0x400u
#define NETLINK_APPEND 0x800u
#define NETLINK_NESTED 0x8000u

static inline size_t netlink_align(size_t length) {
    return (length + 3) & ~(size_t)3;
}

/* One or more messages that are sent together. What does not fit sets `failed`. */
struct netlink_batch {
    _Alignas(8) uint8_t bytes[8192];
    size_t length;
    size_t message;     /* where the last message begins */
    uint32_t sequence;  /* of the last message */
    bool failed;
};

void netlink_begin(struct netlink_batch *batch);
/* The next message; `head` is the fixed part that its type has after the header. */
void netlink_message(struct netlink_batch *batch, unsigned type, unsigned flags, const void *head, size_t length);
void netlink_put(struct netlink_batch *batch, unsigned type, const void *value, size_t length);
void netlink_put_u32(struct netlink_batch *batch, unsigned type, uint32_t value);
void netlink_put_text(struct netlink_batch *batch, unsigned type, const char *text);
/* Attributes inside an attribute: what netlink_nest returns is handed to netlink_unnest. */
size_t netlink_nest(struct netlink_batch *batch, unsigned type);
void netlink_unnest(struct netlink_batch *batch, size_t nest);
/* Bytes of the message itself, without an attribute around them. */
void netlink_append(struct netlink_batch *batch, const void *value, size_t length);

/* A socket of the network namespace we are in, or -1. */
int netlink_open(int protocol, bool nonblocking);
/* Sends the batch and waits until the kernel has acknowledged its last message: 0, or the errno of what it refused. */
int netlink_transact(int fd, struct netlink_batch *batch);

#endif
