/*
 * The kernel's part of the way out, as nftables would print it:
 *
 *   table ip holdfast {
 *     chain out {
 *       type route hook output priority mangle; policy drop;   # sendto fails with EPERM: no waiting for silence
 *       meta mark 1 accept                                     # what the guest sends again
 *       ip daddr 127.0.0.0/8 accept
 *       ip daddr 198.18.0.2 accept
 *       tcp flags & (syn | ack) == syn log group 1 drop        # a copy goes to the guest
 *       meta l4proto tcp meta mark set 1 accept                # routed to this host by the rule for the mark
 *       udp dport 53 meta mark set 1 accept
 *     }
 *     chain in {
 *       type filter hook prerouting priority mangle; policy accept;
 *       meta mark 1 meta l4proto { tcp, udp } tproxy to 127.18.0.1:1 accept
 *       meta l4proto { tcp, udp } th dport 53 socket transparent accept     # a DNS server of the sandbox's own
 *       meta l4proto { tcp, udp } th dport 53 tproxy to 127.18.0.1:1 accept # or ours, on loopback too
 *     }
 *   }
 *
 * There is no connection tracking: its table is memory of the host that no sandbox would pay for, and it would slow down
 * connections that never leave loopback.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress-internal.h"
#include "netlink.h"

/* From the headers below linux/netfilter, which musl does not have. */
struct netfilter_head {
    uint8_t family, version;
    uint16_t resource;
};
enum { SUBSYSTEM_LOG = 4 << 8, SUBSYSTEM_TABLES = 10 << 8, BATCH_BEGIN = 16, BATCH_END = 17 };
enum { NEW_TABLE = SUBSYSTEM_TABLES | 0, NEW_CHAIN = SUBSYSTEM_TABLES | 3, NEW_RULE = SUBSYSTEM_TABLES | 6 };
enum { TABLE_NAME = 1 };
enum { CHAIN_TABLE = 1, CHAIN_NAME = 3, CHAIN_HOOK = 4, CHAIN_POLICY = 5, CHAIN_TYPE = 7, HOOK_NUMBER = 1, HOOK_PRIORITY = 2 };
enum { RULE_TABLE = 1, RULE_CHAIN = 2, RULE_EXPRESSIONS = 4, LIST_ELEMENT = 1, EXPRESSION_NAME = 1, EXPRESSION_DATA = 2 };
enum { META_DESTINATION = 1, META_KEY = 2, META_SOURCE = 3, META_MARK = 3, META_PROTOCOL = 16 };
enum { COMPARE_SOURCE = 1, COMPARE_OPERATION = 2, COMPARE_DATA = 3, COMPARE_EQUAL = 0 };
enum { PAYLOAD_DESTINATION = 1, PAYLOAD_BASE = 2, PAYLOAD_OFFSET = 3, PAYLOAD_LENGTH = 4, BASE_NETWORK = 1, BASE_TRANSPORT = 2 };
enum { BITWISE_SOURCE = 1, BITWISE_DESTINATION = 2, BITWISE_LENGTH = 3, BITWISE_MASK = 4, BITWISE_XOR = 5 };
enum { IMMEDIATE_DESTINATION = 1, IMMEDIATE_DATA = 2, DATA_VALUE = 1, DATA_VERDICT = 2, VERDICT_CODE = 1 };
enum { TPROXY_FAMILY = 1, TPROXY_ADDRESS = 2, TPROXY_PORT = 3, SOCKET_KEY = 1, SOCKET_DESTINATION = 2, LOG_GROUP = 1, LOG_LENGTH = 3 };
enum { REGISTER_VERDICT = 0, REGISTER_1 = 1, REGISTER_2 = 2 };
enum { VERDICT_DROP = 0, VERDICT_ACCEPT = 1, HOOK_PREROUTING = 0, HOOK_OUTPUT = 3, PRIORITY_MANGLE = -150 };
enum { IPV4_DESTINATION = 16, TCP_FLAGS = 13, PORT_DESTINATION = 2, TCP_SYN_ACK_BITS = 0x12, TCP_SYN_BIT = 0x02 };

enum { LOG_CONFIGURE = SUBSYSTEM_LOG | 1, CONFIGURE_COMMAND = 1, CONFIGURE_MODE = 2, CONFIGURE_BUFFER = 3, CONFIGURE_THRESHOLD = 5 };
enum { COMMAND_BIND = 1, COPY_PACKET = 2 };
/* Headers with all their options; what a packet carries beyond them is not needed. */
#define SYN_COPY_BYTES 128
#define SYN_MESSAGE_BYTES 512
#define SYN_SOCKET_BYTES (1024 * 1024)

#define TABLE "holdfast"

/* ---- expressions ---- */

struct expression {
    size_t element, data;
};

static void put_number(struct netlink_batch *batch, unsigned type, uint32_t value) {
    netlink_put_u32(batch, type, htonl(value)); /* in nf_tables all numbers are big endian */
}

static void put_value(struct netlink_batch *batch, unsigned type, const void *value, size_t length) {
    size_t nest = netlink_nest(batch, type);
    netlink_put(batch, DATA_VALUE, value, length);
    netlink_unnest(batch, nest);
}

static struct expression begin_expression(struct netlink_batch *batch, const char *name) {
    struct expression expression;
    expression.element = netlink_nest(batch, LIST_ELEMENT);
    netlink_put_text(batch, EXPRESSION_NAME, name);
    expression.data = netlink_nest(batch, EXPRESSION_DATA);
    return expression;
}

static void end_expression(struct netlink_batch *batch, struct expression expression) {
    netlink_unnest(batch, expression.data);
    netlink_unnest(batch, expression.element);
}

static void load_meta(struct netlink_batch *batch, uint32_t key) {
    struct expression expression = begin_expression(batch, "meta");
    put_number(batch, META_KEY, key);
    put_number(batch, META_DESTINATION, REGISTER_1);
    end_expression(batch, expression);
}

static void load_payload(struct netlink_batch *batch, uint32_t base, uint32_t offset, uint32_t length) {
    struct expression expression = begin_expression(batch, "payload");
    put_number(batch, PAYLOAD_DESTINATION, REGISTER_1);
    put_number(batch, PAYLOAD_BASE, base);
    put_number(batch, PAYLOAD_OFFSET, offset);
    put_number(batch, PAYLOAD_LENGTH, length);
    end_expression(batch, expression);
}

static void equals(struct netlink_batch *batch, const void *value, size_t length) {
    struct expression expression = begin_expression(batch, "cmp");
    put_number(batch, COMPARE_SOURCE, REGISTER_1);
    put_number(batch, COMPARE_OPERATION, COMPARE_EQUAL);
    put_value(batch, COMPARE_DATA, value, length);
    end_expression(batch, expression);
}

static void mask_byte(struct netlink_batch *batch, uint8_t mask) {
    uint8_t nothing = 0;
    struct expression expression = begin_expression(batch, "bitwise");
    put_number(batch, BITWISE_SOURCE, REGISTER_1);
    put_number(batch, BITWISE_DESTINATION, REGISTER_1);
    put_number(batch, BITWISE_LENGTH, 1);
    put_value(batch, BITWISE_MASK, &mask, 1);
    put_value(batch, BITWISE_XOR, &nothing, 1);
    end_expression(batch, expression);
}

static void set_register(struct netlink_batch *batch, uint32_t destination, const void *value, size_t length) {
    struct expression expression = begin_expression(batch, "immediate");
    put_number(batch, IMMEDIATE_DESTINATION, destination);
    put_value(batch, IMMEDIATE_DATA, value, length);
    end_expression(batch, expression);
}

static void verdict(struct netlink_batch *batch, uint32_t code) {
    struct expression expression = begin_expression(batch, "immediate");
    put_number(batch, IMMEDIATE_DESTINATION, REGISTER_VERDICT);
    size_t data = netlink_nest(batch, IMMEDIATE_DATA);
    size_t nest = netlink_nest(batch, DATA_VERDICT);
    put_number(batch, VERDICT_CODE, code);
    netlink_unnest(batch, nest);
    netlink_unnest(batch, data);
    end_expression(batch, expression);
}

/* ---- what the rules are made of ---- */

static void is_marked(struct netlink_batch *batch) {
    uint32_t mark = CARRY_MARK;
    load_meta(batch, META_MARK);
    equals(batch, &mark, sizeof mark);
}

static void set_mark(struct netlink_batch *batch) {
    uint32_t mark = CARRY_MARK;
    set_register(batch, REGISTER_1, &mark, sizeof mark);
    struct expression expression = begin_expression(batch, "meta");
    put_number(batch, META_KEY, META_MARK);
    put_number(batch, META_SOURCE, REGISTER_1);
    end_expression(batch, expression);
}

static void is_protocol(struct netlink_batch *batch, uint8_t protocol) {
    load_meta(batch, META_PROTOCOL);
    equals(batch, &protocol, sizeof protocol);
}

static void is_dns(struct netlink_batch *batch) {
    uint16_t port = htons(DNS_PORT);
    load_payload(batch, BASE_TRANSPORT, PORT_DESTINATION, sizeof port);
    equals(batch, &port, sizeof port);
}

static void opens_connection(struct netlink_batch *batch) {
    uint8_t syn = TCP_SYN_BIT;
    load_payload(batch, BASE_TRANSPORT, TCP_FLAGS, 1);
    mask_byte(batch, TCP_SYN_ACK_BITS);
    equals(batch, &syn, 1);
}

static void has_socket(struct netlink_batch *batch) {
    struct expression expression = begin_expression(batch, "socket");
    put_number(batch, SOCKET_KEY, 0);
    put_number(batch, SOCKET_DESTINATION, REGISTER_1);
    end_expression(batch, expression);
}

static void copy_to_guest(struct netlink_batch *batch) {
    uint16_t group = htons(SYN_GROUP);
    struct expression expression = begin_expression(batch, "log");
    netlink_put(batch, LOG_GROUP, &group, sizeof group);
    put_number(batch, LOG_LENGTH, SYN_COPY_BYTES);
    end_expression(batch, expression);
}

static void to_gate(struct netlink_batch *batch) {
    uint32_t address = htonl(GATE_ADDRESS);
    uint16_t port = htons(GATE_PORT);
    set_register(batch, REGISTER_1, &address, sizeof address);
    set_register(batch, REGISTER_2, &port, sizeof port);
    struct expression expression = begin_expression(batch, "tproxy");
    put_number(batch, TPROXY_FAMILY, AF_INET);
    put_number(batch, TPROXY_ADDRESS, REGISTER_1);
    put_number(batch, TPROXY_PORT, REGISTER_2);
    end_expression(batch, expression);
}

/* ---- table, chains, rules ---- */

static void message(struct netlink_batch *batch, unsigned type, unsigned flags) {
    struct netfilter_head head = { .family = AF_INET };
    netlink_message(batch, type, flags | NETLINK_ACK, &head, sizeof head);
}

static void batch_edge(struct netlink_batch *batch, unsigned type) {
    struct netfilter_head head = { .resource = htons(SUBSYSTEM_TABLES >> 8) };
    netlink_message(batch, type, 0, &head, sizeof head);
}

static void add_chain(struct netlink_batch *batch, const char *name, const char *type, uint32_t hook, uint32_t policy) {
    message(batch, NEW_CHAIN, NETLINK_CREATE | NETLINK_EXCL);
    netlink_put_text(batch, CHAIN_TABLE, TABLE);
    netlink_put_text(batch, CHAIN_NAME, name);
    size_t nest = netlink_nest(batch, CHAIN_HOOK);
    put_number(batch, HOOK_NUMBER, hook);
    put_number(batch, HOOK_PRIORITY, (uint32_t)PRIORITY_MANGLE);
    netlink_unnest(batch, nest);
    netlink_put_text(batch, CHAIN_TYPE, type);
    put_number(batch, CHAIN_POLICY, policy);
}

static size_t begin_rule(struct netlink_batch *batch, const char *chain) {
    message(batch, NEW_RULE, NETLINK_CREATE | NETLINK_APPEND);
    netlink_put_text(batch, RULE_TABLE, TABLE);
    netlink_put_text(batch, RULE_CHAIN, chain);
    return netlink_nest(batch, RULE_EXPRESSIONS);
}

static void end_rule(struct netlink_batch *batch, size_t rule, uint32_t code) {
    verdict(batch, code);
    netlink_unnest(batch, rule);
}

static void rules_out(struct netlink_batch *batch) {
    size_t rule = begin_rule(batch, "out");
    is_marked(batch);
    end_rule(batch, rule, VERDICT_ACCEPT);

    uint8_t loopback = LOOPBACK_NETWORK;
    rule = begin_rule(batch, "out");
    load_payload(batch, BASE_NETWORK, IPV4_DESTINATION, 1);
    equals(batch, &loopback, 1);
    end_rule(batch, rule, VERDICT_ACCEPT);

    uint32_t own = htonl(OWN_ADDRESS);
    rule = begin_rule(batch, "out");
    load_payload(batch, BASE_NETWORK, IPV4_DESTINATION, sizeof own);
    equals(batch, &own, sizeof own);
    end_rule(batch, rule, VERDICT_ACCEPT);

    rule = begin_rule(batch, "out");
    is_protocol(batch, IPPROTO_TCP);
    opens_connection(batch);
    copy_to_guest(batch);
    end_rule(batch, rule, VERDICT_DROP);

    rule = begin_rule(batch, "out");
    is_protocol(batch, IPPROTO_TCP);
    set_mark(batch);
    end_rule(batch, rule, VERDICT_ACCEPT);

    rule = begin_rule(batch, "out");
    is_protocol(batch, IPPROTO_UDP);
    is_dns(batch);
    set_mark(batch);
    end_rule(batch, rule, VERDICT_ACCEPT);
}

static void rules_in(struct netlink_batch *batch) {
    static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
    for (size_t i = 0; i < sizeof protocols; i++) {
        size_t rule = begin_rule(batch, "in");
        is_marked(batch);
        is_protocol(batch, protocols[i]);
        to_gate(batch);
        end_rule(batch, rule, VERDICT_ACCEPT);
    }
    for (size_t i = 0; i < sizeof protocols; i++) {
        size_t rule = begin_rule(batch, "in");
        is_protocol(batch, protocols[i]);
        is_dns(batch);
        has_socket(batch);
        end_rule(batch, rule, VERDICT_ACCEPT);

        rule = begin_rule(batch, "in");
        is_protocol(batch, protocols[i]);
        is_dns(batch);
        to_gate(batch);
        end_rule(batch, rule, VERDICT_ACCEPT);
    }
}

bool egress_rules_load(const char **step) {
    *step = "nf_tables (with nft_tproxy, nft_socket, nft_log)";
    int fd = netlink_open(NETLINK_NETFILTER, false);
    if (fd < 0) return false;
    struct netlink_batch batch;
    netlink_begin(&batch);
    batch_edge(&batch, BATCH_BEGIN);
    message(&batch, NEW_TABLE, NETLINK_CREATE | NETLINK_EXCL);
    netlink_put_text(&batch, TABLE_NAME, TABLE);
    add_chain(&batch, "out", "route", HOOK_OUTPUT, VERDICT_DROP);
    add_chain(&batch, "in", "filter", HOOK_PREROUTING, VERDICT_ACCEPT);
    rules_out(&batch);
    rules_in(&batch);
    uint32_t last = batch.sequence;
    batch_edge(&batch, BATCH_END);
    batch.sequence = last; /* the end of a batch is not acknowledged; the last rule is */
    int error = netlink_transact(fd, &batch);
    close(fd);
    errno = error;
    return error == 0;
}

/* ---- the packets that open connections ---- */

static void begin_configure(struct netlink_batch *batch) {
    struct netfilter_head head = { .resource = htons(SYN_GROUP) };
    netlink_begin(batch);
    netlink_message(batch, LOG_CONFIGURE, NETLINK_ACK, &head, sizeof head);
}

int egress_open_syns(void) {
    int fd = netlink_open(NETLINK_NETFILTER, false);
    if (fd < 0) return -1;
    /* A burst of connections shall not have to be repeated. */
    int bytes = SYN_SOCKET_BYTES;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    struct netlink_batch batch;
    uint8_t bind = COMMAND_BIND;
    begin_configure(&batch);
    netlink_put(&batch, CONFIGURE_COMMAND, &bind, sizeof bind);
    int error = netlink_transact(fd, &batch);
    if (error == 0) {
        struct {
            uint32_t range;
            uint8_t mode, padding;
        } __attribute__((packed)) mode = { .range = htonl(SYN_COPY_BYTES), .mode = COPY_PACKET };
        begin_configure(&batch);
        netlink_put(&batch, CONFIGURE_MODE, &mode, sizeof mode);
        put_number(&batch, CONFIGURE_BUFFER, SYN_MESSAGE_BYTES);
        put_number(&batch, CONFIGURE_THRESHOLD, 1);
        error = netlink_transact(fd, &batch);
    }
    if (error == 0) return fd;
    close(fd);
    errno = error;
    return -1;
}
