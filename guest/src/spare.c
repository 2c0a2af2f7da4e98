#include "spare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cgroups.h"
#include "guest.h"
#include "spawn.h"

#define FIRST_COMMAND 1
/* Larger orders might not fit into the socket, and we do not wait for it. */
#define TEXT_BYTES_MAX (32 * 1024)
/* The failure pipe and the three of stdio; then perhaps a directory. */
#define FDS_LEAST 4
#define FDS_MOST 5
/* Below this are the numbers that a child gives to what it keeps. */
#define FIRST_FREE_FD 16

/* What it is to run. The strings follow: arguments, environment, then the directory if there is one. */
struct order {
    struct user user;
    struct budget budget;
    uint32_t arguments;
    uint32_t variables;
    uint32_t text_bytes;
    bool has_cwd;
    bool has_cwd_fd;
    bool terminal;
};

/* ---- the guest's side ---- */

static size_t count(char **strings, size_t *bytes) {
    size_t found = 0;
    for (; strings[found]; found++) *bytes += strlen(strings[found]) + 1;
    return found;
}

static char *append(char *to, const char *text) {
    size_t length = strlen(text) + 1;
    memcpy(to, text, length);
    return to + length;
}

static char *write_text(const struct spawn *spawn, size_t bytes) {
    char *text = malloc(bytes > 0 ? bytes : 1);
    char *end = text;
    if (!text) return NULL;
    for (char **string = spawn->argv; *string; string++) end = append(end, *string);
    for (char **string = spawn->envp; *string; string++) end = append(end, *string);
    if (spawn->cwd) append(end, spawn->cwd);
    return text;
}

/* All of it or nothing: what does not go out at once is not waited for. */
static bool send_order(int socket, const struct order *order, const char *text, const int *fds, size_t fd_count) {
    struct iovec parts[] = {
        { .iov_base = (void *)(uintptr_t)order, .iov_len = sizeof *order },
        { .iov_base = (void *)(uintptr_t)text, .iov_len = order->text_bytes },
    };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control = { 0 };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes };
    message.msg_controllen = (socklen_t)CMSG_SPACE(fd_count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = (socklen_t)CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    /* One message: it arrives whole. */
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)(sizeof *order + order->text_bytes);
}

pid_t spare_use(struct guest *guest, const struct spawn *spawn, int failure_fd) {
    struct spare *spare = &guest->spare;
    if (spare->pid <= 0) return -1;
    size_t bytes = spawn->cwd ? strlen(spawn->cwd) + 1 : 0;
    size_t arguments = count(spawn->argv, &bytes), variables = count(spawn->envp, &bytes);
    pid_t pid = -1;
    char *text = spare->command == spawn->command && bytes <= TEXT_BYTES_MAX ? write_text(spawn, bytes) : NULL;
    if (text) {
        struct order order = {
            .user = *spawn->user,
            .budget = guest->budget,
            .arguments = (uint32_t)arguments,
            .variables = (uint32_t)variables,
            .text_bytes = (uint32_t)bytes,
            .has_cwd = spawn->cwd != NULL,
            .has_cwd_fd = spawn->cwd_fd >= 0,
            .terminal = spawn->terminal,
        };
        int fds[FDS_MOST] = { failure_fd, spawn->stdio[0], spawn->stdio[1], spawn->stdio[2], spawn->cwd_fd };
        if (send_order(spare->socket, &order, text, fds, order.has_cwd_fd ? FDS_MOST : FDS_LEAST)) pid = spare->pid;
        free(text);
    }
    spare_drop(guest);
    return pid;
}

void spare_drop(struct guest *guest) {
    struct spare *spare = &guest->spare;
    if (spare->pid <= 0) return;
    /* One without an order reads the end of the socket, and ends. */
    close(spare->socket);
    spare->pid = 0;
    spare->socket = -1;
}

bool spare_made_cgroup(const struct guest *guest, uint64_t command) {
    return guest->spare.command == command;
}

/* ---- its own side ---- */

static bool receive(int socket, char *buffer, size_t size, size_t *length, int *fds, size_t *fd_count) {
    struct iovec part = { .iov_base = buffer, .iov_len = size };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control
    };
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    struct cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!rights || rights->cmsg_type != SCM_RIGHTS || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) return false;
    *length = (size_t)got;
    *fd_count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(rights), *fd_count * sizeof(int));
    return *fd_count >= FDS_LEAST && *fd_count <= FDS_MOST;
}

static char **read_strings(char **cursor, const char *end, size_t number) {
    char **strings = calloc(number + 1, sizeof *strings);
    for (size_t i = 0; strings && i < number; i++) {
        size_t length = strnlen(*cursor, (size_t)(end - *cursor));
        if (*cursor + length >= end) return NULL;
        strings[i] = *cursor;
        *cursor += length + 1;
    }
    return strings;
}

/* Nothing that is left open here is ours to keep; the cgroups have been entered. */
static void close_all_but(int socket) {
    if (socket != FIRST_FREE_FD && dup3(socket, FIRST_FREE_FD, O_CLOEXEC) < 0) _exit(1);
    (void)syscall(SYS_close_range, 3u, (unsigned)FIRST_FREE_FD - 1, 0u);
    (void)syscall(SYS_close_range, (unsigned)FIRST_FREE_FD + 1, ~0u, 0u);
}

static _Noreturn void wait_for_order(struct guest *guest, int socket, bool born_inside) {
    bool entered = spawn_enter(guest, FIRST_COMMAND, born_inside);
    int error = errno;
    close_all_but(socket);
    static char buffer[sizeof(struct order) + TEXT_BYTES_MAX];
    int fds[FDS_MOST];
    size_t length, fd_count;
    if (!receive(FIRST_FREE_FD, buffer, sizeof buffer, &length, fds, &fd_count)) _exit(0);
    static struct order order;
    if (length < sizeof order) _exit(1);
    memcpy(&order, buffer, sizeof order);
    char *cursor = buffer + sizeof order;
    const char *end = buffer + length;
    char **argv = read_strings(&cursor, end, order.arguments);
    char **envp = argv ? read_strings(&cursor, end, order.variables) : NULL;
    if (!envp) _exit(1);
    guest->budget = order.budget;
    struct spawn spawn = {
        .argv = argv,
        .envp = envp,
        .user = &order.user,
        .cwd = order.has_cwd ? cursor : NULL,
        .cwd_fd = order.has_cwd_fd ? fds[FDS_LEAST] : -1,
        .stdio = { fds[1], fds[2], fds[3] },
        .terminal = order.terminal,
        .command = FIRST_COMMAND,
    };
    errno = error;
    spawn_run(guest, &spawn, fds[0], entered);
}

void spare_make(struct guest *guest) {
    struct spare *spare = &guest->spare;
    int ends[2];
    struct cgroup_limits none = { 0 };
    if (!cgroups_any(&guest->cgroups) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return;
    if (!cgroups_make(&guest->cgroups, FIRST_COMMAND, &none)) {
        close(ends[0]);
        close(ends[1]);
        return;
    }
    bool born_inside = false;
    pid_t pid = cgroups_fork(&guest->cgroups, FIRST_COMMAND, &born_inside);
    if (pid == 0) wait_for_order(guest, ends[1], born_inside);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        cgroups_remove(&guest->cgroups, FIRST_COMMAND);
        return;
    }
    *spare = (struct spare){ .wanted = true, .pid = pid, .socket = ends[0], .command = FIRST_COMMAND };
}
