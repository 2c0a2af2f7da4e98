#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "environment.h"
#include "frame.h"
#include "sudo-options.h"
#include "sudo.h"
#include "users.h"

static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT };

static _Noreturn void die(const char *what) {
    fprintf(stderr, "sudo: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the request ---- */

/* Variables that survive without -E, as in sudo's default policy. */
static bool kept_by_default(const char *entry) {
    static const char *const kept[] = { "TERM=", "LANG=", "LANGUAGE=", "LC_", "DISPLAY=", "COLORTERM=", "TZ=" };
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strncmp(entry, kept[i], strlen(kept[i])) == 0) return true;
    return false;
}

/* Variables that belong to the target user, or are always made safe, even with -E. */
static bool never_kept(const char *entry, const struct sudo_options *options) {
    static const char *const own[] = { "PATH=", "USER=", "LOGNAME=", "SHELL=", "SUDO_" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strncmp(entry, own[i], strlen(own[i])) == 0) return true;
    return options->set_home && strncmp(entry, "HOME=", 5) == 0;
}

static void put_environment(struct message *request, const struct sudo_options *options, char **environment) {
    for (char **entry = environment; *entry; entry++) {
        if (!strchr(*entry, '=') || **entry == '=' || never_kept(*entry, options)) continue;
        if (options->keep_environment || kept_by_default(*entry)) message_text(request, FIELD_ENV, *entry);
    }
    for (size_t i = 0; i < options->assignment_count; i++)
        message_text(request, FIELD_ENV, options->assignments[i]);
}

/* -s and -i give the words to a shell as one line, each of them quoted so that it stays one word. */
static char *shell_line(char *const *words) {
    size_t size = 1;
    for (char *const *word = words; *word; word++) size += 2 * strlen(*word) + 1;
    char *line = malloc(size);
    if (!line) die("memory");
    char *to = line;
    for (char *const *word = words; *word; word++) {
        if (word != words) *to++ = ' ';
        for (const char *from = *word; *from; from++) {
            bool plain = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') ||
                         (*from >= '0' && *from <= '9') || strchr("_-$", *from);
            if (!plain) *to++ = '\\';
            *to++ = *from;
        }
    }
    *to = 0;
    return line;
}

static void put_arguments(struct message *request, const struct sudo_options *options, const struct user *user) {
    if (!options->shell && !options->login) {
        for (char *const *word = options->words; *word; word++) message_text(request, FIELD_ARG, *word);
        return;
    }
    const char *caller_shell = getenv("SHELL");
    const char *shell = options->login || !caller_shell || !*caller_shell ? user->shell : caller_shell;
    message_text(request, FIELD_ARG, shell);
    if (options->login) message_text(request, FIELD_ARG, "-l");
    if (!options->words[0]) return;
    char *line = shell_line(options->words);
    message_text(request, FIELD_ARG, "-c");
    message_text(request, FIELD_ARG, line);
    free(line);
}

/* A descriptor that the caller has closed is /dev/null to the program. */
static int usable(int fd) {
    return fcntl(fd, F_GETFD) >= 0 ? fd : open("/dev/null", O_RDWR | O_CLOEXEC);
}

static void send_request(int socket, const struct message *request) {
    int fds[SUDO_FD_COUNT] = {
        [SUDO_FD_CWD] = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC),
        [SUDO_FD_STDIN] = usable(0),
        [SUDO_FD_STDOUT] = usable(1),
        [SUDO_FD_STDERR] = usable(2),
    };
    if (fds[SUDO_FD_CWD] < 0) fds[SUDO_FD_CWD] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = { .iov_base = request->bytes + HEADER_BYTES, .iov_len = request->length - HEADER_BYTES };
    struct msghdr packet = { .msg_iov = &part, .msg_iovlen = 1 };
    packet.msg_control = control.bytes;
    packet.msg_controllen = sizeof control.bytes;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(rights), fds, sizeof fds);
    if (part.iov_len > SUDO_REQUEST_BYTES_MAX) {
        errno = E2BIG;
        die("the command line");
    }
    if (sendmsg(socket, &packet, MSG_NOSIGNAL) < 0) die("cannot reach the sandbox's guest");
}

static int connect_guest(void) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path + 1, SUDO_SOCKET_NAME, strlen(SUDO_SOCKET_NAME));
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET_NAME));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) < 0) die("cannot reach the sandbox's guest");
    return fd;
}

/* ---- waiting ---- */

static int block_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++) sigaddset(&set, forwarded[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) die("signals");
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    if (fd < 0) die("signals");
    return fd;
}

/* Ends as the program did, so that a shell sees no difference. */
static _Noreturn void end_like(int status) {
    if (!WIFSIGNALED(status)) exit(WEXITSTATUS(status));
    int number = WTERMSIG(status);
    struct rlimit no_core = { 0, 0 };
    setrlimit(RLIMIT_CORE, &no_core);
    signal(number, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    exit(128 + number);
}

static _Noreturn void wait_for_end(int socket, int signals) {
    struct pollfd watched[2] = { { .fd = socket, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
    for (;;) {
        if (poll(watched, 2, -1) < 0 && errno != EINTR) die("poll");
        if (watched[1].revents & POLLIN) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
                uint8_t number = (uint8_t)info.ssi_signo;
                (void)send(socket, &number, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
        if (!(watched[0].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        struct sudo_answer answer;
        ssize_t got = recv(socket, &answer, sizeof answer, 0);
        if (got != (ssize_t)sizeof answer) {
            fprintf(stderr, "sudo: the guest refused (too many sudo at once?)\n");
            exit(1);
        }
        if (answer.error == 0) end_like(answer.status);
        answer.message[sizeof answer.message - 1] = 0;
        fprintf(stderr, "sudo: %s\n", answer.message);
        exit(1);
    }
}

int sudo_client_main(int argc, char **argv, char **environment) {
    struct sudo_options options;
    if (!sudo_options_parse(argc, argv, &options)) return 1;
    struct user user;
    if (!user_find(options.user, &user)) {
        fprintf(stderr, "sudo: unknown user %s\n", options.user);
        return 1;
    }
    if (options.list) printf("(ALL : ALL) NOPASSWD: ALL\n");
    if (options.nothing_to_run) return 0;
    struct message request;
    message_begin(&request, 0, 0, 0);
    message_text(&request, FIELD_USER, options.user);
    if (options.login) message_text(&request, FIELD_CWD, "~");
    put_arguments(&request, &options, &user);
    put_environment(&request, &options, environment);
    if (!message_finish(&request)) {
        errno = E2BIG;
        die("the command line and environment");
    }
    int signals = block_signals();
    int socket = connect_guest();
    send_request(socket, &request);
    wait_for_end(socket, signals);
}
