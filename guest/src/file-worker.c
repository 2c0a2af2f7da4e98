#include "file-worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "file-internal.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define LINGER_MS 1000

/* Read by a signal handler: `armed` is set last and cleared first. */
static struct {
    volatile sig_atomic_t armed;
    int directory;
    char name[256];
} temp;

static struct {
    bool armed;
    struct worker *worker;
    int directory;
    char name[256];
} tree;

static struct worker *the_worker;

static void temp_unlink(void) {
    if (!temp.armed) return;
    temp.armed = 0;
    unlinkat(temp.directory, temp.name, 0);
}

void worker_guard_temp(int directory, const char *name) {
    temp.directory = directory;
    snprintf(temp.name, sizeof temp.name, "%s", name);
    temp.armed = 1;
}

void worker_release_temp(void) { temp.armed = 0; }

void worker_guard_tree(int directory, const char *name) {
    tree.worker = the_worker;
    tree.directory = directory;
    snprintf(tree.name, sizeof tree.name, "%s", name);
    tree.armed = true;
}

void worker_release_tree(void) { tree.armed = false; }

static void undo(void) {
    temp_unlink();
    if (tree.armed) {
        tree.armed = false; /* first: the removal itself may find the peer gone and come back here */
        uint64_t count = 0;
        char *where = NULL;
        tree_remove(NULL, tree.directory, tree.name, true, &count, &where);
        free(where);
    }
}

void worker_vanish(void) {
    undo();
    _exit(0);
}

static void on_signal(int number) {
    (void)number;
    temp_unlink();
    _exit(0);
}

/* The worker was forked from PID 1, which has its own handlers and a blocked mask for its event loop. */
static void signals_reset(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* a file size limit shall be EFBIG, not death */
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, NULL);
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * The host's connections and the commands' pipes were inherited with the fork: while a worker holds them they do not
 * close, and /proc/self/fd would offer them to a link made inside.
 */
static void descriptors_close(int keep) {
    bool low = keep <= 3 || syscall(SYS_close_range, 3U, (unsigned)keep - 1, 0U) == 0;
    bool high = syscall(SYS_close_range, (unsigned)(keep < 3 ? 3 : keep + 1), ~0U, 0U) == 0;
    if (low && high) return;
    long limit = sysconf(_SC_OPEN_MAX);
    if (limit < 0 || limit > 65536) limit = 65536;
    for (int fd = 3; fd < limit; fd++)
        if (fd != keep) close(fd);
}

static void wait_for(int fd, short events) {
    struct pollfd poll_fd = { .fd = fd, .events = events };
    while (poll(&poll_fd, 1, -1) < 0 && errno == EINTR) {
    }
}

static void send_all(struct worker *worker, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        ssize_t sent = send(worker->socket, bytes, length, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {
                wait_for(worker->socket, POLLOUT);
                continue;
            }
            worker_vanish();
        }
        bytes += sent;
        length -= (size_t)sent;
    }
}

void worker_send(struct worker *worker, struct message *message) {
    if (!message_finish(message)) {
        message_free(message);
        worker_fail(worker, ENOMEM, "an answer does not fit into a frame");
    }
    send_all(worker, message->bytes, message->length);
    message_free(message);
}

void worker_send_data(struct worker *worker, const uint8_t *bytes, size_t length) {
    uint8_t header[HEADER_BYTES];
    frame_header_write(header, &(struct frame_header){ .length = (uint32_t)length, .type = FRAME_DATA,
                                                       .channel = CHANNEL_OUT, .stream = worker->stream });
    send_all(worker, header, sizeof header);
    send_all(worker, bytes, length);
}

void worker_send_eof(struct worker *worker) {
    uint8_t header[HEADER_BYTES];
    frame_header_write(header, &(struct frame_header){ .type = FRAME_EOF, .channel = CHANNEL_OUT, .stream = worker->stream });
    send_all(worker, header, sizeof header);
}

/*
 * A refused upload may still be coming in. Closing now would make it a reset for the other end, which may then not read why
 * it was refused: so say that nothing more comes from us, and take what comes until the other end closes, or for a second.
 */
static void linger(struct worker *worker) {
    static uint8_t bytes[FILE_CHUNK_BYTES];
    if (worker->type != FRAME_WRITE) return;
    shutdown(worker->socket, SHUT_WR);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t end = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + LINGER_MS;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t left = end - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
        struct pollfd poll_fd = { .fd = worker->socket, .events = POLLIN };
        if (left <= 0 || poll(&poll_fd, 1, (int)left) <= 0) return;
        if (recv(worker->socket, bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return;
    }
}

void worker_done(struct worker *worker, struct message *message) {
    worker_send(worker, message);
    _exit(0);
}

void worker_done_empty(struct worker *worker) {
    struct message message;
    message_begin(&message, FRAME_DONE, 0, worker->stream);
    worker_done(worker, &message);
}

void worker_fail(struct worker *worker, int error, const char *format, ...) {
    char text[PATH_MAX + 512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    /* Before the answer: whoever has read FAIL may look, and shall find nothing of us. */
    undo();
    struct message message;
    message_begin(&message, FRAME_FAIL, 0, worker->stream);
    message_u64(&message, FIELD_ERRNO, (uint64_t)error);
    message_text(&message, FIELD_ERRNO_NAME, errno_name(error));
    message_text(&message, FIELD_MESSAGE, text);
    if (message_finish(&message)) send_all(worker, message.bytes, message.length);
    message_free(&message);
    linger(worker);
    _exit(0);
}

void worker_fail_path(struct worker *worker, int error, const char *path) {
    switch (error) {
        case ENOENT: worker_fail(worker, error, "path '%s' does not exist", path);
        case EISDIR: worker_fail(worker, error, "path '%s' is a directory", path);
        case ENOTDIR: worker_fail(worker, error, "path '%s' leads through something that is not a directory", path);
        case EEXIST: worker_fail(worker, error, "path '%s' already exists but it is not a directory", path);
        case ENOTEMPTY: worker_fail(worker, error, "path '%s' is a directory that is not empty", path);
        case ENAMETOOLONG: worker_fail(worker, error, "path '%s' is too long", path);
        case ELOOP: worker_fail(worker, error, "path '%s' has too many levels of symbolic links", path);
        case EACCES:
        case EPERM: worker_fail(worker, error, "permission denied on path '%s'", path);
        case EROFS: worker_fail(worker, error, "path '%s' is on a read-only file system", path);
        case ENOSPC: worker_fail(worker, error, "no space left for path '%s'", path);
        case EDQUOT: worker_fail(worker, error, "the disk quota is used up: path '%s'", path);
        case EBUSY: worker_fail(worker, error, "path '%s' is in use or a mount point", path);
        case EFBIG: worker_fail(worker, error, "path '%s' would become larger than a file may be", path);
        default: worker_fail(worker, error, "path '%s': %s", path, strerror(error));
    }
}

void worker_check_peer(struct worker *worker) {
    if (!worker) return; /* cleaning up after the peer has gone */
    struct pollfd poll_fd = { .fd = worker->socket, .events = 0 };
    if (poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR))) worker_vanish();
}

void worker_receive(struct worker *worker, void *bytes, size_t length) {
    uint8_t *at = bytes;
    while (length > 0) {
        ssize_t got = recv(worker->socket, at, length, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) {
            wait_for(worker->socket, POLLIN);
            continue;
        }
        if (got <= 0) worker_vanish();
        at += got;
        length -= (size_t)got;
    }
}

bool worker_number(const struct worker *worker, uint8_t tag, uint64_t *out) {
    struct field field;
    if (!fields_find(worker->payload, worker->length, tag, &field) || field.length != 8) return false;
    *out = fields_u64(worker->payload, worker->length, tag, 0);
    return true;
}

static void find_user(struct worker *worker, const char *default_user) {
    char *asked = fields_text(worker->payload, worker->length, FIELD_USER);
    if (!asked && errno != ENOENT) worker_fail(worker, errno, "invalid username");
    if (!asked || !asked[0]) {
        user_default(default_user, &worker->user);
    } else if (!user_find(asked, &worker->user)) {
        /* Root is root, even in an image that has no /etc/passwd. */
        if (strcmp(asked, "root") != 0) worker_fail(worker, EINVAL, "invalid username: '%s'", asked);
        user_default(NULL, &worker->user);
    }
    free(asked);
}

void file_worker_run(int socket_fd, uint8_t request_type, uint32_t stream, const uint8_t *payload, size_t length,
                     const char *default_user) {
    static struct worker worker;
    worker = (struct worker){
        .socket = socket_fd, .type = request_type, .stream = stream, .payload = payload, .length = length,
    };
    the_worker = &worker;
    signals_reset();
    descriptors_close(socket_fd);
    umask(0); /* modes are set exactly as asked */
    if (!fields_valid(payload, length)) worker_fail(&worker, EPROTO, "the request is not a sequence of whole fields");
    find_user(&worker, default_user);
    switch (request_type) {
        case FRAME_STAT: file_stat(&worker);
        case FRAME_LIST: file_list(&worker);
        case FRAME_READ: file_read(&worker);
        case FRAME_WRITE: file_write(&worker);
        case FRAME_MKDIR: file_mkdir(&worker);
        case FRAME_MOVE: file_move(&worker);
        case FRAME_REMOVE: file_remove(&worker);
        case FRAME_WATCH: file_watch(&worker);
        default: worker_fail(&worker, ENOSYS, "request type 0x%02x is not a file request", request_type);
    }
}
