/*
 * Writing to memory.force_empty (v1) or memory.reclaim (v2) returns when nothing more can be had, and writing a lower limit when
 * there is room for it, which may take long. A signal ends it early and what was released stays released; that needs a process
 * of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include "launch.h"

static void on_alarm(int number) {
    (void)number;
}

int reclaim_main(const char *file, const char *value, uint64_t limit_ms, pid_t parent) {
    /* Whoever takes the sandbox over from a parent that died must not find its limit lowered behind its back. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) die("reclaim", "parent");
    if (getppid() != parent) {
        errno = ESRCH;
        die("reclaim", "parent");
    }
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
