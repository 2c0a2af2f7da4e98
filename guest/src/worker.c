/*
 * A worker speaks the same frames as we do; here they are relayed, against the host's credit. While there is none the
 * worker's socket is not read, fills up, and so holds the worker.
 */
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "buffer.h"
#include "children.h"
#include "confine.h"
#include "file-worker.h"
#include "guest.h"
#include "inflow.h"
#include "requests.h"
#include "stream.h"


/* How long a worker whose upload was abandoned may take to remove its temporary file. */
#define CLEAN_UP_MS 3000
#define WAITING_MAX 256
#define WAITING_BYTES_MAX (1024 * 1024)
#define UPLOAD_WINDOW_BYTES (256 * 1024)
#define WORKER_SOCKET 3

/*
 * Ten watches, because the kernel's queue of one that nobody reads holds up to 16,384 events, some 6 MB, and is charged to
 * the guest's own small budget.
 */
static const size_t running_max[WORKER_KINDS] = { [WORKER_SHORT] = 16, [WORKER_TRANSFER] = 16, [WORKER_WATCH] = 10 };

struct worker {
    struct stream stream;
    enum worker_kind kind;
    struct guest *guest;
    struct list waiting; /* in the guest's queue until it runs */
    uint8_t type;
    uint8_t *payload; /* of the request, until it runs */
    size_t payload_length;
    bool running;
    struct child child;
    struct watch watch;
    struct buffer frame;  /* the one frame being received or relayed */
    size_t data_relayed;  /* of its payload, if it is DATA */
    bool wants_frames;
    struct inflow inflow; /* frames for the worker */
};

static struct worker *worker_of(struct stream *stream) {
    return container_of(stream, struct worker, stream);
}

static void rearm(struct worker *worker) {
    uint32_t events = worker->wants_frames ? EPOLLIN : 0;
    if (buffer_length(&worker->inflow.pending) > 0) events |= EPOLLOUT;
    watch_arm(&worker->guest->loop, &worker->watch, events);
}

/* ---- frames from the worker ---- */

/* Reads towards one whole frame, never beyond it. 1: it is there, 0: not yet, -1: the worker is gone or broken. */
static int receive_frame(struct worker *worker, struct frame_header *header, const uint8_t **payload) {
    for (;;) {
        enum frame_state state = buffer_peek_frame(&worker->frame, header, payload);
        if (state == FRAME_COMPLETE) return 1;
        if (state == FRAME_BROKEN) return -1;
        size_t have = buffer_length(&worker->frame);
        size_t needed = have < HEADER_BYTES ? HEADER_BYTES : HEADER_BYTES + (size_t)header->length;
        uint8_t *room = buffer_reserve(&worker->frame, needed - have);
        if (!room) return -1;
        ssize_t got = recv(worker->watch.fd, room, needed - have, MSG_DONTWAIT);
        if (got > 0) buffer_commit(&worker->frame, (size_t)got);
        else if (got < 0 && errno == EAGAIN) return 0;
        else if (got == 0 || errno != EINTR) return -1;
    }
}

static void frame_done(struct worker *worker) {
    worker->frame.start = worker->frame.end = 0;
    worker->data_relayed = 0;
}

/* As it is, but with the stream's own number. */
static void relay(struct worker *worker, const struct frame_header *header, const uint8_t *payload) {
    struct frame_header out = *header;
    out.stream = worker->stream.id;
    uint8_t bytes[HEADER_BYTES];
    frame_header_write(bytes, &out);
    struct connection *connection = worker->stream.connection;
    if (!buffer_append(&connection->out, bytes, sizeof bytes) ||
        !buffer_append(&connection->out, payload, header->length))
        connection->broken = true;
    frame_done(worker);
}

/* Part of a DATA frame, as much as the credit allows; false if it allows none. */
static bool relay_data(struct worker *worker, const struct frame_header *header, const uint8_t *payload) {
    struct stream *stream = &worker->stream;
    size_t left = header->length - worker->data_relayed;
    if (left > DATA_BYTES) left = DATA_BYTES;
    if (left > stream->credit[CHANNEL_OUT]) left = (size_t)stream->credit[CHANNEL_OUT];
    if (left == 0 && header->length > 0) return false;
    uint8_t *room = stream_data_reserve(stream, left);
    if (!room) return false;
    memcpy(room, payload + worker->data_relayed, left);
    stream_data_commit(stream, CHANNEL_OUT, left);
    worker->data_relayed += left;
    if (worker->data_relayed == header->length) frame_done(worker);
    return true;
}

/* The notes of LIST and WATCH are what was asked for, however many there are: they are paid for like data. */
static bool relay_note(struct worker *worker, const struct frame_header *header, const uint8_t *payload) {
    if (worker->type == FRAME_LIST || worker->type == FRAME_WATCH) {
        if (worker->stream.credit[CHANNEL_OUT] < header->length) return false;
        worker->stream.credit[CHANNEL_OUT] -= header->length;
    }
    relay(worker, header, payload);
    return true;
}

static bool worker_pull(struct stream *stream) {
    struct worker *worker = worker_of(stream);
    struct frame_header header;
    const uint8_t *payload;
    if (!worker->running) return false;
    int received = receive_frame(worker, &header, &payload);
    if (received == 0) {
        worker->wants_frames = true;
        rearm(worker);
        return false;
    }
    if (received < 0) {
        stream_fail(stream, EIO, "file worker died");
        return false;
    }
    switch (header.type) {
        case FRAME_DATA: return relay_data(worker, &header, payload);
        case FRAME_NOTE: return relay_note(worker, &header, payload);
        case FRAME_EOF: relay(worker, &header, payload); return true;
        case FRAME_DONE:
        case FRAME_FAIL:
            relay(worker, &header, payload);
            stream_close(stream);
            return false;
        default: stream_fail(stream, EIO, "file worker sent a frame of type %u", header.type); return false;
    }
}

/* ---- frames to the worker ---- */

static void feed(struct worker *worker, uint8_t type, const uint8_t *bytes, size_t length) {
    uint8_t header[HEADER_BYTES];
    frame_header_write(header, &(struct frame_header){
        .length = (uint32_t)length, .type = type, .channel = CHANNEL_IN, .stream = worker->stream.id });
    worker->inflow.unacknowledged += (uint32_t)length;
    size_t sent = 0;
    if (worker->running && buffer_length(&worker->inflow.pending) == 0) {
        struct iovec parts[2] = { { header, sizeof header }, { (void *)(uintptr_t)bytes, length } };
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = length > 0 ? 2 : 1 };
        ssize_t taken = sendmsg(worker->watch.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (taken > 0) sent = (size_t)taken;
    }
    size_t of_header = sent < sizeof header ? sent : sizeof header;
    if (!buffer_append(&worker->inflow.pending, header + of_header, sizeof header - of_header) ||
        !buffer_append(&worker->inflow.pending, bytes + (sent - of_header), length - (sent - of_header))) {
        stream_fail(&worker->stream, ENOMEM, "no memory for the upload");
        return;
    }
    if (!worker->running) return; /* the worker is not yet there; the host has no credit for data either */
    /* A worker that no longer reads has failed and says why in its last frame. */
    (void)inflow_flush(&worker->inflow, worker->watch.fd, &worker->stream);
    rearm(worker);
}

static void worker_data(struct stream *stream, const uint8_t *bytes, size_t length) {
    feed(worker_of(stream), FRAME_DATA, bytes, length);
}

/* Of an upload it is the end. A watch is asked by it to tell all that has happened, and say when it has. */
static void worker_end(struct stream *stream) {
    uint8_t type = worker_of(stream)->type;
    if (type == FRAME_WRITE || type == FRAME_WATCH) feed(worker_of(stream), FRAME_EOF, NULL, 0);
}

static void worker_ready(struct watch *watch, uint32_t events) {
    struct worker *worker = container_of(watch, struct worker, watch);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        worker->wants_frames = false;
        stream_wake(&worker->stream);
    }
    (void)inflow_flush(&worker->inflow, watch->fd, &worker->stream);
    rearm(worker);
}

/* ---- life ---- */

static _Noreturn void run_child(const struct worker *worker, int socket) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    bool writes = worker->type == FRAME_WRITE || worker->type == FRAME_MOVE;
    if (writes && !cgroups_enter_as_writer(&worker->guest->cgroups)) _exit(1);
    /* Nothing of ours, above all no cgroup descriptor, may be within reach of a process that follows hostile paths. */
    if (socket != WORKER_SOCKET && dup2(socket, WORKER_SOCKET) < 0) _exit(1);
    if (syscall(SYS_close_range, (unsigned)WORKER_SOCKET + 1, ~0u, 0u) < 0)
        _exit(1);
    if (!confine_worker(worker->guest)) _exit(1);
    file_worker_run(WORKER_SOCKET, worker->type, worker->stream.id, worker->payload, worker->payload_length,
                    worker->guest->default_user);
}

/* Its last frames may still be in the socket: the socket's end is what counts. */
static void worker_process_ended(struct child *child, int status, const struct rusage *usage) {
    (void)child, (void)status, (void)usage;
}

static void run(struct worker *worker) {
    struct guest *guest = worker->guest;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        stream_fail(&worker->stream, errno, "no socket for a file worker: %s", strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (pid == 0) run_child(worker, pair[1]);
    int error = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        stream_fail(&worker->stream, error, "cannot start a file worker: %s", strerror(error));
        return;
    }
    free(worker->payload);
    worker->payload = NULL;
    child_watch(&guest->children, &worker->child, pid);
    worker->watch.fd = pair[0];
    worker->running = true;
    worker->wants_frames = true;
    guest->workers.pools[worker->kind].running++;
    if (worker->type == FRAME_WRITE) stream_grant(&worker->stream, UPLOAD_WINDOW_BYTES);
    (void)inflow_flush(&worker->inflow, worker->watch.fd, &worker->stream);
    rearm(worker);
}

static void leave_queue(struct worker *worker) {
    list_remove(&worker->waiting);
    worker->guest->workers.waiting_count--;
    worker->guest->workers.waiting_bytes -= worker->payload_length;
}

static void run_waiting(struct guest *guest, enum worker_kind kind) {
    list_each(item, after, &guest->workers.pools[kind].waiting) {
        struct worker *worker = container_of(item, struct worker, waiting);
        if (guest->workers.pools[kind].running >= running_max[kind]) return;
        if (worker->stream.connection->broken) continue; /* about to be dropped */
        leave_queue(worker);
        run(worker);
    }
}

static void worker_drop(struct stream *stream) {
    struct worker *worker = worker_of(stream);
    struct guest *guest = worker->guest;
    enum worker_kind kind = worker->kind;
    bool was_running = worker->running;
    watch_close(&guest->loop, &worker->watch);
    /* The end of its socket tells one that writes to clean up behind itself; the others have nothing to clean up. */
    bool cleans_up = worker->type == FRAME_WRITE || worker->type == FRAME_MOVE;
    child_leave(&worker->child, &guest->children, &guest->loop, cleans_up ? CLEAN_UP_MS : 0);
    if (!list_empty(&worker->waiting)) leave_queue(worker);
    buffer_release(&worker->frame);
    buffer_release(&worker->inflow.pending);
    free(worker->payload);
    free(worker);
    if (!was_running) return;
    guest->workers.pools[kind].running--;
    run_waiting(guest, kind);
}

static const struct stream_ops worker_ops = {
    .pull = worker_pull, .data = worker_data, .end = worker_end, .drop = worker_drop
};

static struct worker *worker_new(const struct request *request) {
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker) return NULL;
    worker->payload = malloc(request->length ? request->length : 1);
    if (!worker->payload) {
        free(worker);
        return NULL;
    }
    memcpy(worker->payload, request->payload, request->length);
    worker->payload_length = request->length;
    worker->guest = request->guest;
    worker->type = request->type;
    list_init(&worker->waiting);
    child_init(&worker->child, worker_process_ended);
    worker->child.must_run = true;
    watch_init(&worker->watch, -1, worker_ready);
    stream_open(&worker->stream, request->connection, request->stream, &worker_ops,
                fields_u64(request->payload, request->length, FIELD_WINDOW, 0));
    return worker;
}

static enum worker_kind kind_of(uint8_t type) {
    if (type == FRAME_WATCH) return WORKER_WATCH;
    return type == FRAME_READ || type == FRAME_WRITE ? WORKER_TRANSFER : WORKER_SHORT;
}

void workers_init(struct workers *workers) {
    for (int kind = 0; kind < WORKER_KINDS; kind++) list_init(&workers->pools[kind].waiting);
}

void request_file(const struct request *request) {
    struct workers *workers = &request->guest->workers;
    enum worker_kind kind = kind_of(request->type);
    bool full = workers->waiting_count >= WAITING_MAX || workers->waiting_bytes + request->length > WAITING_BYTES_MAX;
    /* A watch never ends by itself: waiting for one would be for ever. */
    if (kind == WORKER_WATCH) full = workers->pools[kind].running >= running_max[kind];
    if (full) {
        answer_fail(request, EAGAIN, kind == WORKER_WATCH ? "too many watches at once: there can be 10 in a sandbox"
                                                          : "too many file operations at once");
        return;
    }
    struct worker *worker = worker_new(request);
    if (!worker) {
        answer_fail(request, ENOMEM, "no memory for a file operation");
        return;
    }
    worker->kind = kind;
    list_insert_before(&workers->pools[kind].waiting, &worker->waiting);
    workers->waiting_count++;
    workers->waiting_bytes += worker->payload_length;
    run_waiting(request->guest, kind);
}
