/*
 * The way out. The sandbox's network namespace has no way to anywhere; its packets come to us.
 *
 * A packet that opens a TCP connection never leaves: the kernel hands us a copy and drops it (egress-rules.c). We tell the
 * host where it wants to go. If the host is connected there, we send the packet again, marked, and the kernel gives the
 * connection to our listener, as if we were the other end; from there it is carried like a dialled one (dial.c). If the
 * host refuses, we answer in the name of the other end, so that connect(2) fails as it would have there. While no host is
 * there, programs wait as for a slow network: their kernel repeats the packet.
 *
 * Questions to any DNS server come to a socket of ours, go to the host whole, and are answered in that server's name.
 * Everything else is refused by the kernel at once.
 */
#ifndef HOLDFAST_EGRESS_H
#define HOLDFAST_EGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "loop.h"

struct guest;
struct stream;

struct egress {
    bool enabled; /* by the command line */
    struct guest *guest;
    struct watch syns;
    struct watch listener;
    struct watch datagrams;
    int raw;        /* sends packets as they are */
    int raw_marked; /* and those that shall come to the listener */
    struct stream *host; /* the host that hears of connections and questions, or NULL */
    struct list connections; /* those that are not carried yet, oldest first */
    size_t connection_count;
    struct list queries;     /* those without an answer, oldest first */
    size_t query_count;
    uint64_t next_number;
};

/* Before anything else runs inside. False after saying on stderr what the kernel lacks. */
bool egress_start(struct guest *guest);

#endif
