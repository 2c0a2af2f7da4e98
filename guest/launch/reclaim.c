/*
 * Writing to memory.force_empty (v1) or memory.reclaim (v2) returns when nothing more can be had, which may take long. A
 * signal ends it early and what was released stays released; that needs a process of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "launch.h"

static void on_alarm(int number) {
    (void)number;
}

int reclaim_main(const char *file, const char *value, uint64_t limit_ms) {
    /* Without SA_RESTART: the write is to end. */
    struct sigaction action = { .sa_handler = on_alarm };
    if (sigaction(SIGALRM, &action, NULL) < 0) die("reclaim", "signal");
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0) die("reclaim", file);
    /* It repeats, should it come before the write begins. */
    struct itimerval timer = {
        .it_value = { .tv_sec = (time_t)(limit_ms / 1000), .tv_usec = (suseconds_t)(limit_ms % 1000 * 1000) },
        .it_interval = { .tv_usec = 50000 },
    };
    if (setitimer(ITIMER_REAL, &timer, NULL) < 0) die("reclaim", "timer");
    /* EAGAIN and EBUSY: less was released than asked for. */
    if (write(fd, value, strlen(value)) < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY)
        die("reclaim", file);
    return 0;
}
