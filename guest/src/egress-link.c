/* The stub interface and its routes: enough for the kernel to let programs try. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include "egress-internal.h"
#include "netlink.h"

#define LINK_NAME "eth0"
#define PEER_NAME "eth0-peer"
/* The largest: what looks like a network is memory. */
#define LINK_MTU 65535

/* From linux/rtnetlink.h, if_link.h, if_addr.h, fib_rules.h and veth.h, which musl does not have. */
enum { NEW_LINK = 16, NEW_ADDRESS = 20, NEW_ROUTE = 24, NEW_RULE = 32 };
struct link_head {
    uint8_t family, padding;
    uint16_t type;
    int32_t index;
    uint32_t flags, change;
};
struct address_head {
    uint8_t family, prefix_length, flags, scope;
    uint32_t index;
};
struct route_head {
    uint8_t family, destination_length, source_length, tos, table, protocol, scope, type;
    uint32_t flags;
};
enum { LINK_MTU_ATTRIBUTE = 4, LINK_NAME_ATTRIBUTE = 3, LINK_INFO = 18, LINK_AF_SPEC = 26 };
enum { LINK_INFO_KIND = 1, LINK_INFO_DATA = 2, VETH_PEER = 1, INET6_ADDRESS_MODE = 8, ADDRESS_MODE_NONE = 1 };
enum { ADDRESS_ATTRIBUTE = 1, ADDRESS_LOCAL = 2 };
enum { ROUTE_DEVICE = 4, ROUTE_SOURCE = 7, ROUTE_TABLE = 15, TABLE_MAIN = 254 };
enum { ROUTE_UNICAST = 1, ROUTE_LOCAL = 2, SCOPE_LINK = 253, SCOPE_HOST = 254, PROTOCOL_STATIC = 4 };
enum { RULE_PRIORITY = 6, RULE_MARK = 10, RULE_MASK = 16, RULE_TO_TABLE = 1, CARRY_PRIORITY = 100 };

static bool transact(int fd, struct netlink_batch *batch) {
    int error = netlink_transact(fd, batch);
    if (error != 0) errno = error;
    return error == 0;
}

static bool set_up(int fd, const char *name) {
    struct link_head head = { .index = (int32_t)if_nametoindex(name), .flags = IFF_UP, .change = IFF_UP };
    if (head.index == 0) return false;
    struct netlink_batch batch;
    netlink_begin(&batch);
    netlink_message(&batch, NEW_LINK, NETLINK_ACK, &head, sizeof head);
    return transact(fd, &batch);
}

static void begin_link(struct netlink_batch *batch, size_t *info, const char *kind) {
    struct link_head head = { .family = AF_UNSPEC };
    netlink_begin(batch);
    netlink_message(batch, NEW_LINK, NETLINK_ACK | NETLINK_CREATE | NETLINK_EXCL, &head, sizeof head);
    netlink_put_text(batch, LINK_NAME_ATTRIBUTE, LINK_NAME);
    netlink_put_u32(batch, LINK_MTU_ATTRIBUTE, LINK_MTU);
    *info = netlink_nest(batch, LINK_INFO);
    netlink_put_text(batch, LINK_INFO_KIND, kind);
}

static bool add_dummy(int fd) {
    struct netlink_batch batch;
    size_t info;
    begin_link(&batch, &info, "dummy");
    netlink_unnest(&batch, info);
    return transact(fd, &batch);
}

/* Kernels without the dummy driver have this one; its other end stays here, and is good for nothing but a carrier. */
static bool add_pair(int fd) {
    struct netlink_batch batch;
    size_t info;
    begin_link(&batch, &info, "veth");
    size_t data = netlink_nest(&batch, LINK_INFO_DATA);
    size_t peer = netlink_nest(&batch, VETH_PEER);
    struct link_head head = { .family = AF_UNSPEC };
    netlink_append(&batch, &head, sizeof head);
    netlink_put_text(&batch, LINK_NAME_ATTRIBUTE, PEER_NAME);
    netlink_unnest(&batch, peer);
    netlink_unnest(&batch, data);
    netlink_unnest(&batch, info);
    return transact(fd, &batch);
}

/* IPv6 stays without any address and route: programs learn at once that it leads nowhere, and take IPv4. */
static void without_ipv6(int fd, const char *name) {
    struct link_head head = { .family = AF_UNSPEC, .index = (int32_t)if_nametoindex(name) };
    struct netlink_batch batch;
    netlink_begin(&batch);
    netlink_message(&batch, NEW_LINK, NETLINK_ACK, &head, sizeof head);
    size_t families = netlink_nest(&batch, LINK_AF_SPEC);
    size_t inet6 = netlink_nest(&batch, AF_INET6);
    uint8_t mode = ADDRESS_MODE_NONE;
    netlink_put(&batch, INET6_ADDRESS_MODE, &mode, sizeof mode);
    netlink_unnest(&batch, inet6);
    netlink_unnest(&batch, families);
    (void)transact(fd, &batch); /* fails where there is no IPv6 at all */
}

static bool add_address(int fd) {
    struct address_head head = { .family = AF_INET, .prefix_length = 32, .index = if_nametoindex(LINK_NAME) };
    struct netlink_batch batch;
    netlink_begin(&batch);
    netlink_message(&batch, NEW_ADDRESS, NETLINK_ACK | NETLINK_CREATE | NETLINK_EXCL, &head, sizeof head);
    netlink_put_u32(&batch, ADDRESS_LOCAL, htonl(OWN_ADDRESS));
    netlink_put_u32(&batch, ADDRESS_ATTRIBUTE, htonl(OWN_ADDRESS));
    return transact(fd, &batch);
}

static bool add_route(int fd, const char *device, uint8_t table, uint8_t type, uint8_t scope) {
    struct route_head head = { .family = AF_INET, .table = table, .type = type, .scope = scope, .protocol = PROTOCOL_STATIC };
    struct netlink_batch batch;
    netlink_begin(&batch);
    netlink_message(&batch, NEW_ROUTE, NETLINK_ACK | NETLINK_CREATE | NETLINK_EXCL, &head, sizeof head);
    netlink_put_u32(&batch, ROUTE_DEVICE, if_nametoindex(device));
    if (type == ROUTE_UNICAST) netlink_put_u32(&batch, ROUTE_SOURCE, htonl(OWN_ADDRESS));
    return transact(fd, &batch);
}

/* What carries our mark is for this host, whatever its address says. */
static bool add_rule(int fd) {
    struct route_head head = { .family = AF_INET, .table = CARRY_TABLE, .type = RULE_TO_TABLE };
    struct netlink_batch batch;
    netlink_begin(&batch);
    netlink_message(&batch, NEW_RULE, NETLINK_ACK | NETLINK_CREATE | NETLINK_EXCL, &head, sizeof head);
    netlink_put_u32(&batch, RULE_PRIORITY, CARRY_PRIORITY);
    netlink_put_u32(&batch, RULE_MARK, CARRY_MARK);
    netlink_put_u32(&batch, RULE_MASK, UINT32_MAX);
    return transact(fd, &batch);
}

static bool add_link(int fd) {
    if (add_dummy(fd)) return true;
    if (errno != EOPNOTSUPP) return false;
    return add_pair(fd) && set_up(fd, PEER_NAME);
}

static bool all_up(int fd, const char **step) {
    *step = "loopback";
    if (!set_up(fd, "lo")) return false;
    *step = "no dummy or veth interface";
    if (!add_link(fd)) return false;
    without_ipv6(fd, LINK_NAME);
    without_ipv6(fd, PEER_NAME);
    if (!set_up(fd, LINK_NAME)) return false;
    *step = "address";
    if (!add_address(fd)) return false;
    *step = "routes";
    return add_route(fd, LINK_NAME, TABLE_MAIN, ROUTE_UNICAST, SCOPE_LINK) &&
           add_route(fd, "lo", CARRY_TABLE, ROUTE_LOCAL, SCOPE_HOST) && add_rule(fd);
}

bool egress_link_up(const char **step) {
    *step = "rtnetlink";
    int fd = netlink_open(NETLINK_ROUTE, false);
    if (fd < 0) return false;
    bool ok = all_up(fd, step);
    int error = errno;
    close(fd);
    errno = error;
    return ok;
}
