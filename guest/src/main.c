#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "children.h"
#include "command.h"
#include "connection.h"
#include "guest.h"
#include "options.h"

#define CLOSE_RANGE_CLOEXEC_FLAG 4u
#define INHERITED_FDS_MAX 1024
/* For the last answers; a host that does not read them is not waited for longer. */
#define STOP_MS 1000
#define TRUTH_MS 1000

extern char **environ;

/* ---- what others ask of the guest as a whole ---- */

void guest_stop(struct guest *guest) {
    if (guest->stopping) return;
    guest->stopping = true;
    timer_arm(&guest->loop, &guest->stop_timer, STOP_MS);
}

void guest_budget_changed(struct guest *guest) {
    truth_refresh(&guest->truth, &guest->budget, &guest->cgroups);
}

void guest_commands_changed(struct guest *guest) {
    if (guest->commands_running == 0) {
        timer_disarm(&guest->truth_timer);
    } else if (guest->truth.active && !guest->truth_timer.armed) {
        truth_refresh(&guest->truth, &guest->budget, &guest->cgroups);
        timer_arm(&guest->loop, &guest->truth_timer, TRUTH_MS);
    }
}

static void stop_time_over(struct timer *timer) {
    container_of(timer, struct guest, stop_timer)->stopped = true;
}

static void truth_time(struct timer *timer) {
    guest_commands_changed(container_of(timer, struct guest, truth_timer));
}

static void orphaned(struct timer *timer) {
    fprintf(stderr, "holdfast-guest: no host for too long: shutting down\n");
    guest_stop(container_of(timer, struct guest, orphan_timer));
}

static void signals_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct guest *guest = container_of(watch, struct guest, signals);
    struct signalfd_siginfo info;
    while (read(watch->fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) guest_stop(guest);
    children_reap(&guest->children);
}

/* ---- start ---- */

/* 0, 1 and 2 must be taken, or a pipe of a command could get such a number and be overwritten on the way to exec. */
static bool fill_stdio(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0) return false;
    } while (fd <= 2);
    return close(fd) == 0;
}

/* No command may inherit anything of ours. */
static void close_all_on_exec(void) {
    if (syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC_FLAG) == 0) return;
    for (int fd = 3; fd < INHERITED_FDS_MAX; fd++) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static bool watch_signals(struct guest *guest) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    if (guest->outside) {
        /* As PID 1 we leave these alone: the kernel then drops them, and root inside cannot end the sandbox by kill. */
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
    }
    if (sigprocmask(SIG_SETMASK, &set, NULL) < 0) return false;
    signal(SIGPIPE, SIG_IGN);
    watch_init(&guest->signals, signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), signals_ready);
    return guest->signals.fd >= 0 && watch_arm(&guest->loop, &guest->signals, EPOLLIN);
}

static void raise_open_files(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0) return;
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
}

static bool fail(const char *what) {
    fprintf(stderr, "holdfast-guest: %s: %s\n", what, strerror(errno));
    return false;
}

static bool guest_start(struct guest *guest, int listen_fd) {
    guest->boot_ns = wall_clock_ns();
    list_init(&guest->connections);
    list_init(&guest->children);
    workers_init(&guest->workers);
    commands_init(guest);
    timer_init(&guest->orphan_timer, orphaned);
    timer_init(&guest->stop_timer, stop_time_over);
    timer_init(&guest->truth_timer, truth_time);
    close_all_on_exec();
    raise_open_files();
    if (!loop_init(&guest->loop)) return fail("epoll");
    if (!watch_signals(guest)) return fail("signals");
    if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) return fail("subreaper");
    if (!guest->outside) {
        /* Nobody inside may trace us or read our memory, whatever capabilities a mistake might leave them. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) return fail("dumpable");
        /* We were started by descriptor, and would be called by its number. */
        (void)prctl(PR_SET_NAME, "holdfast-guest", 0, 0, 0);
        if (!truth_start(&guest->truth, &guest->budget, &guest->cgroups)) return false;
    }
    if (guest->egress.enabled && !egress_start(guest)) return false;
    /* Before the first command: nobody else can take the name. */
    if (!sudo_server_start(guest) && !guest->outside) return fail("sudo socket");
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0) return fail("listening descriptor");
    if (guest->spare.wanted) spare_make(guest);
    connections_listen(guest, listen_fd);
    if (guest->budget.orphan_ms > 0) timer_arm(&guest->loop, &guest->orphan_timer, guest->budget.orphan_ms);
    return true;
}

static bool guest_run(struct guest *guest) {
    while (!guest->stopped) {
        if (!loop_turn(&guest->loop)) return fail("epoll");
        connections_service(guest);
        if (guest->stopping && connections_flushed(guest)) guest->stopped = true;
    }
    return true;
}

static bool called_as(const char *path, const char *name) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, name) == 0;
}

int main(int argc, char **argv) {
    if (called_as(argv[0], "sudo")) return sudo_client_main(argc, argv, environ);
    static struct guest guest;
    int listen_fd;
    if (!fill_stdio() || !options_parse(argc, argv, &guest, &listen_fd) || !guest_start(&guest, listen_fd)) return 1;
    umask(022);
    bool ran = guest_run(&guest);
    /* As PID 1 our exit ends everything; elsewhere this does. */
    commands_kill_all(&guest);
    connections_close_all(&guest);
    return ran ? 0 : 1;
}
