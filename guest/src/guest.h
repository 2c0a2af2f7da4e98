/*
 * Theory of operation.
 *
 * The guest is PID 1 of a sandbox: one thread around one epoll loop. The host connects to a socket the guest inherited
 * (connection.c) and opens streams on it (stream.c). A stream is one of
 *   - a reader of a command's output, which also carries its stdin (reader.c),
 *   - the relay of a file worker, a forked process that may block on the disk (worker.c),
 *   - a connection dialled inside, or carried out from there (dial.c),
 *   - the list of connections and DNS questions that want out (egress.c),
 *   - a list of the commands (listing.c).
 * A command (command.c) lives on when its streams go: its output is kept in bounded memory and a spill file (output.c).
 * What a command may do is decided between fork and exec (spawn.c, confine.c, seccomp.c), in its own cgroup
 * (cgroups.c). `sudo` inside reaches us over a socket (sudo-server.c). truth.c makes /proc show the sandbox's budget.
 *
 * Nothing blocks, and every queue has a bound: streams are asked for more only while their connection has room.
 */
#ifndef HOLDFAST_GUEST_H
#define HOLDFAST_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cgroups.h"
#include "egress.h"
#include "list.h"
#include "loop.h"
#include "output.h"
#include "spare.h"
#include "sudo.h"
#include "truth.h"
#include "worker.h"

/* What the inside shall see and inherit; 0 is "no limit". Set by the command line, changed by CONFIGURE. */
struct budget {
    uint64_t cpu_millis;
    uint64_t memory_bytes;
    uint64_t pids;
    uint64_t orphan_ms;
};

struct guest {
    struct loop loop;
    struct budget budget;
    struct cgroups cgroups;
    const char *default_user;
    int spill_fd;  /* directory for spill files, or -1 */
    bool outside;  /* run by a test, without a sandbox around */
    bool host_writable; /* a directory of the host can be written inside */
    uint64_t boot_ns;

    struct watch listener;
    struct list connections;
    size_t connection_count;
    struct timer orphan_timer;

    struct watch signals;
    struct list children;

    struct list commands; /* oldest first */
    size_t commands_running;
    size_t commands_ended;
    uint64_t next_serial;
    struct keep_budget keep;

    struct spare spare;
    struct workers workers;
    struct egress egress;

    struct sudo_server sudo;
    struct truth truth;
    struct timer truth_timer; /* armed while a command runs */

    bool stopping;
    struct timer stop_timer;
    bool stopped;
};

/* Answers what is under way and then exits; as PID 1 that ends the sandbox. */
void guest_stop(struct guest *guest);
/* The budget changed: /proc shall show it at once. */
void guest_budget_changed(struct guest *guest);
/* A command comes or went: /proc is kept fresh while any runs, and an idle sandbox sleeps. */
void guest_commands_changed(struct guest *guest);

#endif
