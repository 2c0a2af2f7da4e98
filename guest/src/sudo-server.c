#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cgroups.h"
#include "children.h"
#include "environment.h"
#include "frame.h"
#include "guest.h"
#include "spawn.h"
#include "sudo.h"

#define SESSIONS_MAX 64
#define REQUEST_MS 5000
#define ARGS_MAX 8192
#define ENVIRONMENT_MAX 2048

struct sudo_session {
    struct list link;
    struct guest *guest;
    struct watch watch; /* the client */
    struct timer patience; /* for its request */
    struct ucred caller;
    struct child child;
    struct watch failure;
    struct spawn_failure failed;
    char *program;
};

/* What came in the one request packet. */
struct sudo_request {
    uint8_t *bytes;
    size_t length;
    int fds[SUDO_FD_COUNT];
    struct user user;
    bool login; /* start in the user's home */
    char **argv;
    size_t argc;
    struct environment environment;
};

static void session_close(struct sudo_session *session) {
    struct guest *guest = session->guest;
    timer_disarm(&session->patience);
    child_forget(&session->child);
    watch_close(&guest->loop, &session->failure);
    watch_close(&guest->loop, &session->watch);
    list_remove(&session->link);
    guest->sudo.session_count--;
    free(session->program);
    free(session);
}

/* Says how it ended and closes. A client that does not take it is not waited for. */
static void session_answer(struct sudo_session *session, int status, int error, const char *message) {
    struct sudo_answer answer = { .status = status, .error = error };
    snprintf(answer.message, sizeof answer.message, "%s", message);
    (void)send(session->watch.fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
    session_close(session);
}

/* ---- the request ---- */

static void request_free(struct sudo_request *request) {
    for (int i = 0; i < SUDO_FD_COUNT; i++)
        if (request->fds[i] >= 0) close(request->fds[i]);
    for (size_t i = 0; i < request->argc; i++) free(request->argv[i]);
    free(request->argv);
    environment_free(&request->environment);
    free(request->bytes);
}

/*
 * Takes the descriptors of a packet; false unless there are exactly those we expect. There is room for no more than
 * these: of others the kernel keeps what does not fit, and says so.
 */
static bool take_descriptors(struct msghdr *packet, int fds[SUDO_FD_COUNT]) {
    const struct cmsghdr *rights = CMSG_FIRSTHDR(packet);
    if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return false;
    size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (count > SUDO_FD_COUNT) return false;
    memcpy(fds, CMSG_DATA(rights), count * sizeof(int));
    return count == SUDO_FD_COUNT && !(packet->msg_flags & MSG_CTRUNC);
}

/* 0, or the errno of what is wrong with it. */
static int receive_request(int socket, struct sudo_request *request) {
    ssize_t length = recv(socket, NULL, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (length < 0) return errno;
    if (length > SUDO_REQUEST_BYTES_MAX) return E2BIG;
    request->bytes = malloc((size_t)length + 1);
    if (!request->bytes) return ENOMEM;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SUDO_FD_COUNT)];
    } control;
    struct iovec part = { .iov_base = request->bytes, .iov_len = (size_t)length };
    struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
    packet.msg_control = control.bytes;
    packet.msg_controllen = sizeof control.bytes;
    ssize_t got = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return errno;
    request->length = (size_t)got;
    return take_descriptors(&packet, request->fds) && fields_valid(request->bytes, request->length) ? 0 : EPROTO;
}

static bool add_argument(struct sudo_request *request, const struct field *field) {
    if (request->argc >= ARGS_MAX || (field->length > 0 && memchr(field->value, 0, field->length))) return false;
    char *text = strndup((const char *)field->value, field->length);
    if (!text) return false;
    request->argv[request->argc++] = text;
    return true;
}

static bool parse_fields(struct sudo_request *request) {
    request->argv = calloc(ARGS_MAX + 1, sizeof *request->argv);
    if (!request->argv || !environment_for_user(&request->environment, &request->user)) return false;
    struct field field;
    for (size_t cursor = 0; fields_next(request->bytes, request->length, &cursor, &field);) {
        if (field.tag == FIELD_ARG && !add_argument(request, &field)) return false;
        if (field.tag == FIELD_ENV &&
            (request->environment.count >= ENVIRONMENT_MAX ||
             !environment_put(&request->environment, (const char *)field.value, field.length)))
            return false;
    }
    request->login = fields_has(request->bytes, request->length, FIELD_CWD);
    return request->argc > 0;
}

/* What sudo tells the program about its caller; from the kernel, whatever the client says. */
static bool describe_caller(struct sudo_request *request, const struct ucred *caller) {
    char number[32];
    struct user user;
    snprintf(number, sizeof number, "%lu", (unsigned long)caller->uid);
    if (!user_find(number, &user)) return false;
    bool done = environment_set(&request->environment, "SUDO_USER", user.name) &&
                environment_set(&request->environment, "SUDO_UID", number);
    snprintf(number, sizeof number, "%lu", (unsigned long)caller->gid);
    return done && environment_set(&request->environment, "SUDO_GID", number) &&
           environment_set(&request->environment, "SUDO_COMMAND", request->argv[0]);
}

static bool choose_user(struct sudo_request *request) {
    char *who = fields_text(request->bytes, request->length, FIELD_USER);
    bool known = user_find(who ? who : "0", &request->user);
    free(who);
    return known;
}

/* ---- the program ---- */

static void program_ended(struct child *child, int status, const struct rusage *usage) {
    (void)usage;
    struct sudo_session *session = container_of(child, struct sudo_session, child);
    if (session->failure.fd >= 0) (void)spawn_outcome(session->failure.fd, &session->failed);
    if (session->failed.stage == 0) {
        session_answer(session, status, 0, "");
        return;
    }
    char message[200];
    spawn_explain(&session->failed, session->program, NULL, message, sizeof message);
    session_answer(session, 0, session->failed.error, message);
}

static void failure_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct sudo_session *session = container_of(watch, struct sudo_session, failure);
    if (spawn_outcome(watch->fd, &session->failed) != SPAWN_PENDING) watch_close(&session->guest->loop, watch);
}

static void start_program(struct sudo_session *session, struct sudo_request *request) {
    struct guest *guest = session->guest;
    uint64_t command = 0;
    if (cgroups_any(&guest->cgroups) && !cgroups_command_of(session->caller.pid, &command)) {
        session_answer(session, 0, EPERM, "the caller belongs to no command");
        return;
    }
    struct spawn spawn = {
        .argv = request->argv,
        .envp = request->environment.entries,
        .user = &request->user,
        .cwd_fd = request->login ? -1 : request->fds[SUDO_FD_CWD],
        .stdio = { request->fds[SUDO_FD_STDIN], request->fds[SUDO_FD_STDOUT], request->fds[SUDO_FD_STDERR] },
        .command = command,
    };
    session->program = strdup(request->argv[0]);
    int failure_fd;
    pid_t pid = session->program ? spawn_start(guest, &spawn, &failure_fd) : -1;
    if (pid < 0) {
        session_answer(session, 0, errno, strerror(errno));
        return;
    }
    child_watch(&guest->children, &session->child, pid);
    session->failure.fd = failure_fd;
    watch_arm(&guest->loop, &session->failure, EPOLLIN);
}

static void take_request(struct sudo_session *session) {
    struct sudo_request request = { .fds = { -1, -1, -1, -1 } };
    int error = receive_request(session->watch.fd, &request);
    timer_disarm(&session->patience);
    if (error != 0)
        session_answer(session, 0, error, error == E2BIG ? "arguments too long" : "bad request");
    else if (!choose_user(&request))
        session_answer(session, 0, EINVAL, "unknown user");
    else if (!parse_fields(&request) || !describe_caller(&request, &session->caller))
        session_answer(session, 0, EINVAL, "bad request");
    else
        start_program(session, &request);
    request_free(&request);
}

/* ---- the client ---- */

/* Terminal signals reach the whole group, as they would from a terminal; others the program alone. */
static void forward_signal(const struct sudo_session *session, int number) {
    switch (number) {
        case SIGINT:
        case SIGQUIT:
        case SIGHUP: (void)kill(-session->child.pid, number); break;
        case SIGTERM:
        case SIGUSR1:
        case SIGUSR2:
        case SIGCONT: (void)kill(session->child.pid, number); break;
        default: break;
    }
}

static void session_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct sudo_session *session = container_of(watch, struct sudo_session, watch);
    if (!child_alive(&session->child)) {
        take_request(session);
        return;
    }
    uint8_t number;
    ssize_t got = recv(watch->fd, &number, 1, MSG_DONTWAIT);
    if (got == 1) {
        forward_signal(session, number);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        (void)kill(-session->child.pid, SIGHUP); /* the client is gone, as a terminal would be */
        session_close(session);
    }
}

static void patience_over(struct timer *timer) {
    session_close(container_of(timer, struct sudo_session, patience));
}

static void session_open(struct guest *guest, int fd) {
    struct sudo_session *session = calloc(1, sizeof *session);
    socklen_t length = sizeof session->caller;
    if (!session || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &session->caller, &length) < 0 ||
        session->caller.pid <= 0) {
        free(session);
        close(fd);
        return;
    }
    session->guest = guest;
    watch_init(&session->watch, fd, session_ready);
    watch_init(&session->failure, -1, failure_ready);
    child_init(&session->child, program_ended);
    timer_init(&session->patience, patience_over);
    timer_arm(&guest->loop, &session->patience, REQUEST_MS);
    list_insert_before(&guest->sudo.sessions, &session->link);
    guest->sudo.session_count++;
    if (!watch_arm(&guest->loop, &session->watch, EPOLLIN)) session_close(session);
}

static void listener_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct guest *guest = container_of(watch, struct guest, sudo.listener);
    int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (guest->sudo.session_count >= SESSIONS_MAX) close(fd); /* one per turn: a flood cannot hold us here */
    else session_open(guest, fd);
}

bool sudo_server_start(struct guest *guest) {
    list_init(&guest->sudo.sessions);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path + 1, SUDO_SOCKET_NAME, strlen(SUDO_SOCKET_NAME));
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET_NAME));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    watch_init(&guest->sudo.listener, fd, listener_ready);
    if (fd < 0) return false;
    if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 64) == 0)
        return watch_arm(&guest->loop, &guest->sudo.listener, EPOLLIN);
    int error = errno;
    watch_close(&guest->loop, &guest->sudo.listener);
    errno = error;
    return false;
}
