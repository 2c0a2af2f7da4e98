/* The event loop: descriptors and timers. One thread; every callback returns soon. */
#ifndef HOLDFAST_LOOP_H
#define HOLDFAST_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "list.h"

#define LOOP_BATCH 64

/* A descriptor and what to do when it is ready. The owner embeds it and keeps the descriptor; -1 is none. */
struct watch {
    int fd;
    uint32_t events;
    void (*ready)(struct watch *watch, uint32_t events);
};

struct timer {
    struct list link;
    uint64_t deadline_ms;
    bool armed;
    void (*fire)(struct timer *timer);
};

struct loop {
    int epoll;
    struct list timers; /* soonest first */
    struct epoll_event batch[LOOP_BATCH];
    int batch_length;
    bool again; /* somebody has work left: do not sleep */
};

bool loop_init(struct loop *loop);
/* Waits for events that can be waited for no longer than the next timer, and runs their callbacks. */
bool loop_turn(struct loop *loop);

void watch_init(struct watch *watch, int fd, void (*ready)(struct watch *, uint32_t));
/*
 * Sets which events are wanted. With 0 the descriptor leaves epoll altogether, since epoll would go on reporting
 * hang-ups of it and the level-triggered loop would spin.
 */
bool watch_arm(struct loop *loop, struct watch *watch, uint32_t events);
/* Leaves epoll, forgets events already fetched (so that the owner may be freed at once) and closes the descriptor. */
void watch_close(struct loop *loop, struct watch *watch);

void timer_init(struct timer *timer, void (*fire)(struct timer *));
void timer_arm(struct loop *loop, struct timer *timer, uint64_t after_ms);
void timer_disarm(struct timer *timer);

uint64_t now_ms(void); /* CLOCK_MONOTONIC */
uint64_t now_us(void);
uint64_t wall_clock_ns(void);

#endif
