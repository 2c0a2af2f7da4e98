#include "loop.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec time = { 0, 0 };
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t now_ms(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1000000u;
}

uint64_t now_us(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1000u;
}

uint64_t wall_clock_ns(void) {
    return clock_ns(CLOCK_REALTIME);
}

bool loop_init(struct loop *loop) {
    memset(loop, 0, sizeof *loop);
    list_init(&loop->timers);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    return loop->epoll >= 0;
}

void watch_init(struct watch *watch, int fd, void (*ready)(struct watch *, uint32_t)) {
    watch->fd = fd;
    watch->events = 0;
    watch->ready = ready;
}

static void forget_fetched(struct loop *loop, const struct watch *watch) {
    for (int i = 0; i < loop->batch_length; i++)
        if (loop->batch[i].data.ptr == watch) loop->batch[i].data.ptr = NULL;
}

bool watch_arm(struct loop *loop, struct watch *watch, uint32_t events) {
    if (watch->fd < 0 || watch->events == events) return true;
    int operation = watch->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    struct epoll_event event = { .events = events, .data.ptr = watch };
    if (epoll_ctl(loop->epoll, operation, watch->fd, &event) < 0) return false;
    watch->events = events;
    if (events == 0) forget_fetched(loop, watch);
    return true;
}

void watch_close(struct loop *loop, struct watch *watch) {
    if (watch->fd < 0) return;
    watch_arm(loop, watch, 0);
    close(watch->fd);
    watch->fd = -1;
}

void timer_init(struct timer *timer, void (*fire)(struct timer *)) {
    list_init(&timer->link);
    timer->armed = false;
    timer->fire = fire;
}

void timer_disarm(struct timer *timer) {
    list_remove(&timer->link);
    timer->armed = false;
}

void timer_arm(struct loop *loop, struct timer *timer, uint64_t after_ms) {
    timer_disarm(timer);
    uint64_t now = now_ms();
    timer->deadline_ms = after_ms > UINT64_MAX - now ? UINT64_MAX : now + after_ms;
    struct list *place = loop->timers.next;
    while (place != &loop->timers && container_of(place, struct timer, link)->deadline_ms <= timer->deadline_ms)
        place = place->next;
    list_insert_before(place, &timer->link);
    timer->armed = true;
}

static int wait_ms(const struct loop *loop) {
    if (loop->again) return 0;
    if (list_empty(&loop->timers)) return -1;
    uint64_t deadline = container_of(loop->timers.next, struct timer, link)->deadline_ms;
    uint64_t now = now_ms();
    if (deadline <= now) return 0;
    return deadline - now > INT_MAX ? INT_MAX : (int)(deadline - now);
}

static void fire_due_timers(struct loop *loop) {
    uint64_t now = now_ms();
    while (!list_empty(&loop->timers)) {
        struct timer *timer = container_of(loop->timers.next, struct timer, link);
        if (timer->deadline_ms > now) return;
        timer_disarm(timer);
        timer->fire(timer);
    }
}

bool loop_turn(struct loop *loop) {
    int timeout = wait_ms(loop);
    loop->again = false;
    int ready = epoll_wait(loop->epoll, loop->batch, LOOP_BATCH, timeout);
    if (ready < 0 && errno != EINTR) return false;
    loop->batch_length = ready < 0 ? 0 : ready;
    for (int i = 0; i < loop->batch_length; i++) {
        struct watch *watch = loop->batch[i].data.ptr;
        if (watch) watch->ready(watch, loop->batch[i].events);
    }
    loop->batch_length = 0;
    fire_due_timers(loop);
    return true;
}
