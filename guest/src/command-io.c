#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "guest.h"

#define READ_BYTES 65536
/* Reads in a row before others have their turn. */
#define READS_PER_TURN 4
#define HOLD_MS 200

/* ---- output ---- */

static void discard_ready(struct watch *watch, uint32_t events);

/* The read end of a pipe whose command was forgotten while a descendant may still write to it. */
struct drain {
    struct guest *guest;
    struct watch watch;
};

static bool discard(int fd) {
    uint8_t bytes[READ_BYTES];
    ssize_t got = read(fd, bytes, sizeof bytes);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static void discard_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct drain *drain = container_of(watch, struct drain, watch);
    if (discard(watch->fd)) return;
    watch_close(&drain->guest->loop, watch);
    free(drain);
}

/* Reads on in the command's stead, so that nobody is killed by SIGPIPE. */
static void hand_to_drain(struct guest *guest, struct watch *from) {
    struct drain *drain = from->fd < 0 ? NULL : malloc(sizeof *drain);
    if (drain) {
        watch_arm(&guest->loop, from, 0);
        drain->guest = guest;
        watch_init(&drain->watch, from->fd, discard_ready);
        from->fd = -1;
        if (watch_arm(&guest->loop, &drain->watch, EPOLLIN)) return;
        watch_close(&guest->loop, &drain->watch);
        free(drain);
    }
    watch_close(&guest->loop, from);
}

static void channel_end(struct command_channel *channel) {
    if (channel->ended) return;
    channel->ended = true;
    channel->paused = false;
    output_seal(&channel->output);
    struct command *command = channel->command;
    if (command->channels[0].ended && command->channels[1].ended) timer_disarm(&command->hold);
    readers_wake(command);
}

/* How many bytes may be read now; 0 if a BLOCK reader would lose some. */
static size_t channel_room(struct command_channel *channel) {
    struct command *command = channel->command;
    size_t wanted = READ_BYTES;
    if (channel->closing && channel->remaining < wanted) wanted = (size_t)channel->remaining;
    uint64_t needed_from = readers_needed_from(command, (size_t)(channel - command->channels));
    if (needed_from == UINT64_MAX) return wanted;
    return output_lossless_room(&channel->output, needed_from, wanted);
}

/* The hold time is over and all that was there then is read: the rest belongs to nobody. */
static void channel_cut(struct command_channel *channel) {
    channel->command->held = true;
    channel_end(channel);
    watch_arm(&channel->command->guest->loop, &channel->watch, EPOLLIN); /* to discard */
}

/* One read; true if another one makes sense. */
static bool channel_read(struct command_channel *channel) {
    struct loop *loop = &channel->command->guest->loop;
    if (channel->ended) {
        if (discard(channel->watch.fd)) return false;
        watch_close(loop, &channel->watch);
        return false;
    }
    size_t room = channel_room(channel);
    if (room == 0) {
        channel->paused = true;
        watch_arm(loop, &channel->watch, 0);
        return false;
    }
    uint8_t bytes[READ_BYTES];
    ssize_t got = read(channel->watch.fd, bytes, room);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) {
        if (channel->closing) channel_cut(channel);
        return false;
    }
    if (got <= 0) { /* a pty whose last user is gone says EIO */
        watch_close(loop, &channel->watch);
        channel_end(channel);
        return false;
    }
    output_append(&channel->output, bytes, (size_t)got);
    readers_wake(channel->command);
    if (channel->closing) {
        channel->remaining -= (uint64_t)got;
        if (channel->remaining == 0) channel_cut(channel);
    }
    return true;
}

static void channel_ready(struct watch *watch, uint32_t events) {
    (void)events;
    struct command_channel *channel = container_of(watch, struct command_channel, watch);
    for (int i = 0; i < READS_PER_TURN && channel->watch.fd >= 0 && channel_read(channel); i++) {
    }
}

void command_io_reader_moved(struct command *command) {
    for (int i = 0; i < 2; i++) {
        struct command_channel *channel = &command->channels[i];
        if (!channel->paused || channel_room(channel) == 0) continue;
        channel->paused = false;
        watch_arm(&command->guest->loop, &channel->watch, EPOLLIN);
    }
}

static void hold_over(struct timer *timer) {
    struct command *command = container_of(timer, struct command, hold);
    for (int i = 0; i < 2; i++) {
        struct command_channel *channel = &command->channels[i];
        if (channel->ended) continue;
        int waiting = 0;
        if (ioctl(channel->watch.fd, FIONREAD, &waiting) < 0 || waiting < 0) waiting = 0;
        channel->closing = true;
        channel->remaining = (uint64_t)waiting;
        /* A paused channel still owes its reader these bytes; it is cut when they are read. */
        if (channel->remaining == 0) channel_cut(channel);
    }
}

void command_io_process_ended(struct command *command) {
    struct loop *loop = &command->guest->loop;
    watch_close(loop, &command->input);
    buffer_release(&command->input_pending);
    readers_input_drained(command);
    for (int i = 0; i < 2; i++)
        if (!command->channels[i].ended && !command->channels[i].paused)
            channel_ready(&command->channels[i].watch, EPOLLIN);
    if (!command->channels[0].ended || !command->channels[1].ended) timer_arm(loop, &command->hold, HOLD_MS);
}

/* ---- input ---- */

bool command_input_open(const struct command *command) {
    return command->input.fd >= 0 && !command->input_ending;
}

static void input_close(struct command *command) {
    watch_close(&command->guest->loop, &command->input);
    buffer_release(&command->input_pending);
}

static void input_write(struct command *command) {
    struct buffer *pending = &command->input_pending;
    while (command->input.fd >= 0 && buffer_length(pending) > 0) {
        ssize_t written = write(command->input.fd, buffer_head(pending), buffer_length(pending));
        if (written > 0) {
            buffer_consume(pending, (size_t)written);
        } else if (written < 0 && errno == EAGAIN) {
            watch_arm(&command->guest->loop, &command->input, EPOLLOUT);
            return;
        } else if (written == 0 || errno != EINTR) {
            input_close(command); /* nobody reads: the rest is discarded, the host goes on */
        }
    }
    watch_arm(&command->guest->loop, &command->input, 0);
    buffer_release(pending);
    if (command->input_ending && !command->pty) input_close(command);
    readers_input_drained(command);
}

static void input_ready(struct watch *watch, uint32_t events) {
    (void)events;
    input_write(container_of(watch, struct command, input));
}

void command_input(struct command *command, const uint8_t *bytes, size_t length) {
    if (command_input_open(command) && !buffer_append(&command->input_pending, bytes, length)) input_close(command);
    input_write(command);
}

void command_input_end(struct command *command) {
    if (!command_input_open(command)) return;
    if (command->pty) {
        /* A terminal has no end; what a user types for it is this character. */
        struct termios settings;
        uint8_t end = tcgetattr(command->input.fd, &settings) == 0 ? settings.c_cc[VEOF] : 4;
        (void)buffer_append(&command->input_pending, &end, 1);
    } else {
        command->input_ending = true;
    }
    input_write(command);
}

/* ---- both ---- */

void command_io_open(struct command *command, const int output_fds[2], int input_fd) {
    for (int i = 0; i < 2; i++) {
        struct command_channel *channel = &command->channels[i];
        channel->command = command;
        watch_init(&channel->watch, output_fds[i], channel_ready);
        channel->ended = output_fds[i] < 0;
        if (!watch_arm(&command->guest->loop, &channel->watch, EPOLLIN)) {
            watch_close(&command->guest->loop, &channel->watch);
            channel->ended = true;
        }
    }
    watch_init(&command->input, input_fd, input_ready);
    timer_init(&command->hold, hold_over);
}

void command_io_close(struct command *command) {
    timer_disarm(&command->hold);
    input_close(command);
    for (int i = 0; i < 2; i++) {
        hand_to_drain(command->guest, &command->channels[i].watch);
        output_free(&command->channels[i].output);
    }
}
