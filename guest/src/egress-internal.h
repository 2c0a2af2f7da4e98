/* What the parts of the way out (egress*.c) share. */
#ifndef HOLDFAST_EGRESS_INTERNAL_H
#define HOLDFAST_EGRESS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "egress.h"
#include "frame.h"

/*
 * Addresses, in host byte order. Our own is of the range for benchmarks: nobody is there whom a program could want to
 * reach. The sockets of the guest stand where no program has any business, so that every port of 127.0.0.1 stays free.
 */
#define OWN_ADDRESS 0xc6120002u   /* 198.18.0.2 */
#define GATE_ADDRESS 0x7f120001u  /* 127.18.0.1 */
#define GATE_PORT 1
#define LOOPBACK_NETWORK 127u
#define DNS_PORT 53
/* On packets that shall come to the guest. Only the guest can set it: it takes CAP_NET_ADMIN or CAP_NET_RAW. */
#define CARRY_MARK 1
#define CARRY_TABLE 100
#define SYN_GROUP 1

/* False, with errno, and the step that failed in *step. */
bool egress_link_up(const char **step);
bool egress_rules_load(const char **step);
/* A socket on which the kernel reports packets that open a connection; -1 with errno. */
int egress_open_syns(void);

/* ---- egress-dns.c ---- */

void egress_dns_ready(struct watch *watch, uint32_t events);
/*
 * Tells the host of the next question that it has not heard of. False if there is none, or the host's credit does not
 * cover it.
 */
bool egress_dns_announce(struct egress *egress);
/* The host is gone: the next one has to hear of everything again. */
void egress_dns_forget_host(struct egress *egress);

/* ---- egress.c ---- */

/* Sends the note if the host's credit covers it. */
bool egress_send_note(struct egress *egress, struct message *note);
/* There is something new for the host, if there is one. */
void egress_wake(struct egress *egress);

#endif
