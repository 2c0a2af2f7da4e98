/*
 * Tells of what the kernel only tells to whoever holds a descriptor: a memory cgroup of v1 that comes near its limit or has
 * run out of memory (eventfds), a file of v2 that has changed (inotify). One process for all sandboxes of a server.
 *
 * On stdin, a line each: `oom ID BYTES DIRECTORY`, `file ID PATH`, `drop ID`; whoever is watched already is watched anew.
 * On stdout: `oom ID` or `file ID` when something happened, `failed ID why` when it cannot be watched. A line may come
 * although nothing is the matter (a cgroup that goes away says so too): whoever reads it looks for itself. The end of stdin
 * is the end of it all.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch.h"

#define ID_SIZE 65
#define LINE_SIZE 4608

struct watch {
    char id[ID_SIZE];
    /* The eventfds, or -1: one for being out of memory, one for coming near to it. */
    int event;
    int near;
    /* The inotify watch, or -1. */
    int mark;
};

/* Grown as needed; a free place has an empty id. */
static struct watch *watches;
static size_t watch_count;
static int poller;
static int notifier;

static void say(const char *what, const char *id, const char *why) {
    char line[LINE_SIZE];
    int length = why == NULL ? snprintf(line, sizeof line, "%s %s\n", what, id)
                             : snprintf(line, sizeof line, "%s %s %s\n", what, id, why);
    if (length < 0) return;
    size_t size = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
    /* Less than a pipe takes at once; a reader that is gone ends us. */
    if (write(STDOUT_FILENO, line, size) < 0) _exit(125);
}

static struct watch *find(const char *id) {
    for (size_t i = 0; i < watch_count; i++)
        if (strcmp(watches[i].id, id) == 0) return &watches[i];
    return NULL;
}

static struct watch *take_place(const char *id) {
    struct watch *place = find("");
    if (place == NULL) {
        size_t count = watch_count == 0 ? 64 : watch_count * 2;
        struct watch *more = realloc(watches, count * sizeof *more);
        if (more == NULL) return NULL;
        watches = more;
        for (size_t i = watch_count; i < count; i++) watches[i] = (struct watch){ .event = -1, .near = -1, .mark = -1 };
        place = &watches[watch_count];
        watch_count = count;
    }
    snprintf(place->id, sizeof place->id, "%s", id);
    return place;
}

static void drop(struct watch *watch) {
    if (watch->event >= 0) close(watch->event);
    if (watch->near >= 0) close(watch->near);
    if (watch->mark >= 0) inotify_rm_watch(notifier, watch->mark);
    *watch = (struct watch){ .event = -1, .near = -1, .mark = -1 };
}

static int open_in(const char *directory, const char *name, int flags) {
    char path[LINE_SIZE];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, flags | O_CLOEXEC);
}

/* The kernel keeps what it needs of both files; only the eventfd stays ours. */
static int listen_to(const char *directory, const char *name, const char *threshold) {
    int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int subject = open_in(directory, name, O_RDONLY);
    int registry = open_in(directory, "cgroup.event_control", O_WRONLY);
    bool done = false;
    if (event >= 0 && subject >= 0 && registry >= 0) {
        char line[128];
        int length = snprintf(line, sizeof line, "%d %d %s", event, subject, threshold);
        done = length > 0 && (size_t)length < sizeof line && write(registry, line, (size_t)length) == length;
    }
    int reason = errno;
    if (subject >= 0) close(subject);
    if (registry >= 0) close(registry);
    if (!done && event >= 0) close(event);
    errno = reason;
    return done ? event : -1;
}

static bool poll_for(int event) {
    struct epoll_event interest = { .events = EPOLLIN, .data.fd = event };
    return event >= 0 && epoll_ctl(poller, EPOLL_CTL_ADD, event, &interest) == 0;
}

static void add_oom(const char *id, const char *threshold, const char *directory) {
    struct watch *watch = take_place(id);
    if (watch == NULL) {
        say("failed", id, strerror(errno));
        return;
    }
    watch->event = listen_to(directory, "memory.oom_control", "");
    if (poll_for(watch->event)) watch->near = listen_to(directory, "memory.usage_in_bytes", threshold);
    if (watch->near < 0 || !poll_for(watch->near)) {
        say("failed", id, strerror(errno));
        drop(watch);
        return;
    }
    /* What happened before we listened. */
    say("oom", id, NULL);
}

static void add_file(const char *id, const char *path) {
    struct watch *watch = take_place(id);
    if (watch == NULL) {
        say("failed", id, strerror(errno));
        return;
    }
    watch->mark = inotify_add_watch(notifier, path, IN_MODIFY);
    if (watch->mark < 0) {
        say("failed", id, strerror(errno));
        drop(watch);
        return;
    }
    say("file", id, NULL);
}

static void obey(char *line) {
    char *rest = NULL;
    const char *verb = strtok_r(line, " ", &rest);
    const char *id = strtok_r(NULL, " ", &rest);
    if (verb == NULL || id == NULL || strlen(id) >= ID_SIZE) return;
    struct watch *known = find(id);
    if (known != NULL) drop(known);
    if (strcmp(verb, "oom") == 0) {
        const char *threshold = strtok_r(NULL, " ", &rest);
        if (threshold != NULL) add_oom(id, threshold, rest);
    }
    if (strcmp(verb, "file") == 0) add_file(id, rest);
}

/* False at the end of stdin. */
static bool read_commands(void) {
    static char buffer[LINE_SIZE * 4];
    static size_t used;
    ssize_t got = read(STDIN_FILENO, buffer + used, sizeof buffer - used);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (got <= 0) return false;
    used += (size_t)got;
    char *start = buffer;
    for (char *end; (end = memchr(start, '\n', used - (size_t)(start - buffer))) != NULL; start = end + 1) {
        *end = 0;
        obey(start);
    }
    used -= (size_t)(start - buffer);
    memmove(buffer, start, used);
    /* Nobody sends lines as long as that. */
    return used < sizeof buffer;
}

static void read_marks(void) {
    static char buffer[65536] __attribute__((aligned(8)));
    ssize_t got;
    while ((got = read(notifier, buffer, sizeof buffer)) > 0) {
        for (char *at = buffer; at < buffer + got;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            at += sizeof *event + event->len;
            for (size_t i = 0; i < watch_count; i++) {
                /* After an overflow everybody looks. */
                bool concerned = watches[i].mark >= 0 && (watches[i].mark == event->wd || (event->mask & IN_Q_OVERFLOW));
                if (concerned && watches[i].id[0] != 0) say("file", watches[i].id, NULL);
            }
        }
    }
}

static void read_event(int fd) {
    for (size_t i = 0; i < watch_count; i++) {
        if (watches[i].event != fd && watches[i].near != fd) continue;
        uint64_t count;
        if (read(fd, &count, sizeof count) == (ssize_t)sizeof count) say("oom", watches[i].id, NULL);
        return;
    }
}

int watch_main(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    poller = epoll_create1(EPOLL_CLOEXEC);
    notifier = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    struct epoll_event commands = { .events = EPOLLIN, .data.fd = STDIN_FILENO };
    struct epoll_event marks = { .events = EPOLLIN, .data.fd = notifier };
    if (poller < 0 || notifier < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &commands) < 0 ||
        epoll_ctl(poller, EPOLL_CTL_ADD, notifier, &marks) < 0)
        die("watch", "epoll");
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(poller, events, 64, -1);
        if (count < 0 && errno != EINTR) die("watch", "epoll");
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == STDIN_FILENO && !read_commands()) return 0;
            if (fd == notifier) read_marks();
            if (fd != STDIN_FILENO && fd != notifier) read_event(fd);
        }
    }
}
