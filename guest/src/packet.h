/* IPv4 packets, to and from bytes. Pure: no descriptors, no allocation. Numbers are in host byte order. */
#ifndef HOLDFAST_PACKET_H
#define HOLDFAST_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An IPv4 and a TCP header with all options that fit. */
#define SYN_BYTES_MAX 120
/* The longest answer to a SYN: IPv4 and ICMP headers, and the beginning of what it is about. */
#define REFUSAL_BYTES_MAX (20 + 8 + 60 + 8)
#define UDP_HEADERS_BYTES 28
#define UDP_DATA_MAX (65535 - UDP_HEADERS_BYTES)

struct flow {
    uint32_t source, destination;
    uint16_t source_port, destination_port;
};

/* The headers of a packet that opens a TCP connection, ready to be sent again. */
struct syn {
    struct flow flow;
    uint8_t bytes[SYN_BYTES_MAX];
    size_t length;
};

bool flow_equal(const struct flow *one, const struct flow *other);

/* False if it is no such packet, or not whole. What it carries beyond its headers is left out. */
bool packet_parse_syn(const uint8_t *bytes, size_t length, struct syn *out);
/* Answers in the name of the other end; both return how long the packet is. */
size_t packet_reset(const struct syn *syn, uint8_t out[REFUSAL_BYTES_MAX]);
size_t packet_unreachable(const struct syn *syn, bool network, uint8_t out[REFUSAL_BYTES_MAX]);
/* The headers before `length` bytes of data. */
void packet_udp_headers(const struct flow *flow, size_t length, uint8_t out[UDP_HEADERS_BYTES]);

#endif
