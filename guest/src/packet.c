#include "packet.h"

#include <string.h>

#define IPV4_BYTES 20
#define TCP_BYTES 20
#define ICMP_BYTES 8
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define TIME_TO_LIVE 64
#define FRAGMENT_BITS 0x3fff /* more fragments, or not the first */
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define ICMP_UNREACHABLE 3
#define ICMP_NETWORK 0
#define ICMP_HOST 1

static uint16_t read_u16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] << 8 | bytes[1]);
}

static uint32_t read_u32(const uint8_t *bytes) {
    return (uint32_t)read_u16(bytes) << 16 | read_u16(bytes + 2);
}

static void write_u16(uint8_t *bytes, uint32_t value) {
    bytes[0] = (uint8_t)(value >> 8);
    bytes[1] = (uint8_t)value;
}

static void write_u32(uint8_t *bytes, uint32_t value) {
    write_u16(bytes, value >> 16);
    write_u16(bytes + 2, value);
}

static uint32_t sum(const uint8_t *bytes, size_t length, uint32_t start) {
    uint32_t total = start;
    for (size_t i = 0; i + 1 < length; i += 2) total += read_u16(bytes + i);
    if (length & 1) total += (uint32_t)bytes[length - 1] << 8;
    return total;
}

static uint16_t fold(uint32_t total) {
    while (total >> 16) total = (total & 0xffff) + (total >> 16);
    return (uint16_t)~total;
}

static uint16_t tcp_checksum(const uint8_t *packet, size_t header, size_t length) {
    uint32_t pseudo = sum(packet + 12, 8, PROTOCOL_TCP + (uint32_t)length);
    return fold(sum(packet + header, length, pseudo));
}

static void write_ipv4(uint8_t *out, const struct flow *flow, uint8_t protocol, size_t length) {
    memset(out, 0, IPV4_BYTES);
    out[0] = 0x45;
    write_u16(out + 2, (uint32_t)length);
    out[8] = TIME_TO_LIVE;
    out[9] = protocol;
    write_u32(out + 12, flow->source);
    write_u32(out + 16, flow->destination);
    write_u16(out + 10, fold(sum(out, IPV4_BYTES, 0)));
}

static struct flow reversed(const struct flow *flow) {
    return (struct flow){ .source = flow->destination, .destination = flow->source,
                          .source_port = flow->destination_port, .destination_port = flow->source_port };
}

bool flow_equal(const struct flow *one, const struct flow *other) {
    return one->source == other->source && one->destination == other->destination &&
           one->source_port == other->source_port && one->destination_port == other->destination_port;
}

bool packet_parse_syn(const uint8_t *bytes, size_t length, struct syn *out) {
    if (length < IPV4_BYTES + TCP_BYTES || bytes[0] >> 4 != 4 || bytes[9] != PROTOCOL_TCP) return false;
    if (read_u16(bytes + 6) & FRAGMENT_BITS) return false;
    size_t ip = (size_t)(bytes[0] & 15) * 4;
    if (ip < IPV4_BYTES || length < ip + TCP_BYTES) return false;
    const uint8_t *tcp = bytes + ip;
    size_t header = (size_t)(tcp[12] >> 4) * 4;
    if (header < TCP_BYTES || length < ip + header) return false;
    if ((tcp[13] & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) != TCP_SYN) return false;
    out->flow = (struct flow){ .source = read_u32(bytes + 12), .destination = read_u32(bytes + 16),
                               .source_port = read_u16(tcp), .destination_port = read_u16(tcp + 2) };
    out->length = ip + header; /* each at most 60 */
    memcpy(out->bytes, bytes, out->length);
    write_u16(out->bytes + 2, (uint32_t)out->length);
    /* The kernel leaves this to a network card, which we are not. */
    write_u16(out->bytes + ip + 16, 0);
    write_u16(out->bytes + ip + 16, tcp_checksum(out->bytes, ip, header));
    return true;
}

size_t packet_reset(const struct syn *syn, uint8_t out[REFUSAL_BYTES_MAX]) {
    struct flow back = reversed(&syn->flow);
    const uint8_t *theirs = syn->bytes + (size_t)(syn->bytes[0] & 15) * 4;
    write_ipv4(out, &back, PROTOCOL_TCP, IPV4_BYTES + TCP_BYTES);
    uint8_t *tcp = out + IPV4_BYTES;
    memset(tcp, 0, TCP_BYTES);
    write_u16(tcp, back.source_port);
    write_u16(tcp + 2, back.destination_port);
    write_u32(tcp + 8, read_u32(theirs + 4) + 1);
    tcp[12] = TCP_BYTES / 4 << 4;
    tcp[13] = TCP_RST | TCP_ACK;
    write_u16(tcp + 16, tcp_checksum(out, IPV4_BYTES, TCP_BYTES));
    return IPV4_BYTES + TCP_BYTES;
}

size_t packet_unreachable(const struct syn *syn, bool network, uint8_t out[REFUSAL_BYTES_MAX]) {
    struct flow back = reversed(&syn->flow);
    size_t quoted = (size_t)(syn->bytes[0] & 15) * 4 + 8;
    uint8_t *icmp = out + IPV4_BYTES;
    memset(icmp, 0, ICMP_BYTES);
    icmp[0] = ICMP_UNREACHABLE;
    icmp[1] = network ? ICMP_NETWORK : ICMP_HOST;
    memcpy(icmp + ICMP_BYTES, syn->bytes, quoted);
    write_u16(icmp + 2, fold(sum(icmp, ICMP_BYTES + quoted, 0)));
    write_ipv4(out, &back, PROTOCOL_ICMP, IPV4_BYTES + ICMP_BYTES + quoted);
    return IPV4_BYTES + ICMP_BYTES + quoted;
}

void packet_udp_headers(const struct flow *flow, size_t length, uint8_t out[UDP_HEADERS_BYTES]) {
    write_ipv4(out, flow, PROTOCOL_UDP, UDP_HEADERS_BYTES + length);
    uint8_t *udp = out + IPV4_BYTES;
    write_u16(udp, flow->source_port);
    write_u16(udp + 2, flow->destination_port);
    write_u16(udp + 4, (uint32_t)(UDP_HEADERS_BYTES - IPV4_BYTES + length));
    write_u16(udp + 6, 0); /* none: it does not leave this kernel */
}
