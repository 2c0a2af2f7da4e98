/* A stream that follows a command: its output from an offset on, and input for it. */
#include <errno.h>
#include <stdlib.h>

#include "command.h"
#include "connection.h"

#define INPUT_WINDOW_BYTES 65536

struct reader {
    struct stream stream;
    struct list link; /* in the command's readers */
    struct command *command;
    uint64_t offset[2];
    bool block;
    bool told_started;
    bool told_exit;
    bool told_end[2];
    size_t next_channel;       /* which one has its turn */
    uint32_t unacknowledged;   /* input bytes for which no credit was given back yet */
};

static struct reader *reader_of(struct stream *stream) {
    return container_of(stream, struct reader, stream);
}

static void tell_started(struct reader *reader) {
    struct message note;
    stream_begin_note(&reader->stream, &note, NOTE_STARTED);
    message_u64(&note, FIELD_PID, (uint64_t)reader->command->pid);
    message_u64(&note, FIELD_START_NS, reader->command->start_ns);
    /* For a host that comes back and does not know what it once asked for. */
    const struct command *command = reader->command;
    if (command->timeout_ms > 0) message_u64(&note, FIELD_TIMEOUT_MS, command->timeout_ms);
    if (command->limits.memory_bytes > 0) message_u64(&note, FIELD_MEMORY_BYTES, command->limits.memory_bytes);
    if (command->limits.pids > 0) message_u64(&note, FIELD_PIDS, command->limits.pids);
    bool takes_input = command_input_open(command);
    if (takes_input) message_u64(&note, FIELD_STDIN, 1);
    stream_send(&reader->stream, &note);
    reader->told_started = true;
    if (!takes_input) return;
    /* While what others sent waits to be read, a newcomer waits too: readers that come and go shall not pile up input. */
    if (buffer_length(&command->input_pending) == 0) stream_grant(&reader->stream, INPUT_WINDOW_BYTES);
    else reader->unacknowledged = INPUT_WINDOW_BYTES;
}

static void tell_exit(struct reader *reader) {
    struct message note;
    stream_begin_note(&reader->stream, &note, NOTE_EXITED);
    command_put_exit(reader->command, &note);
    command_put_totals(reader->command, &note);
    stream_send(&reader->stream, &note);
    reader->told_exit = true;
}

static void tell_gap(struct reader *reader, size_t channel, uint64_t until) {
    struct message note;
    stream_begin_note(&reader->stream, &note, NOTE_GAP);
    message_u64(&note, FIELD_CHANNEL, channel + CHANNEL_OUT);
    message_u64(&note, FIELD_OFFSET, reader->offset[channel]);
    message_u64(&note, FIELD_LENGTH, until - reader->offset[channel]);
    stream_send(&reader->stream, &note);
    reader->offset[channel] = until;
}

/* Sends one frame of this channel if it can. */
static bool pull_channel(struct reader *reader, size_t index) {
    const struct command_channel *channel = &reader->command->channels[index];
    uint8_t number = (uint8_t)(index + CHANNEL_OUT);
    /* A reader may have asked for a place that the output has not come to yet. */
    uint64_t total = channel->output.total;
    uint64_t available = total > reader->offset[index] ? total - reader->offset[index] : 0;
    if (available == 0) {
        if (!channel->ended || reader->told_end[index]) return false;
        stream_send_eof(&reader->stream, number);
        reader->told_end[index] = true;
        return true;
    }
    /* A gap is told only when what follows can be sent, so that a slow reader gets one note and not thousands. */
    uint64_t credit = reader->stream.credit[number];
    if (credit == 0) return false;
    uint64_t kept = output_next_kept(&channel->output, reader->offset[index]);
    if (kept > reader->offset[index]) {
        tell_gap(reader, index, kept);
        return true;
    }
    size_t length = DATA_BYTES;
    if (available < length) length = (size_t)available;
    if (credit < length) length = (size_t)credit;
    uint8_t *room = stream_data_reserve(&reader->stream, length);
    if (!room) return false;
    length = output_copy(&channel->output, reader->offset[index], room, length);
    if (length == 0) { /* the spill file cannot be read: as good as lost */
        tell_gap(reader, index, reader->offset[index] + 1);
        return true;
    }
    stream_data_commit(&reader->stream, number, length);
    reader->offset[index] += length;
    return true;
}

static bool reader_pull(struct stream *stream) {
    struct reader *reader = reader_of(stream);
    struct command *command = reader->command;
    if (command->phase == COMMAND_STARTING) return false;
    if (!reader->told_started) {
        tell_started(reader);
        return true;
    }
    if (command->phase == COMMAND_ENDED && !reader->told_exit) {
        tell_exit(reader);
        return true;
    }
    for (int i = 0; i < 2; i++) {
        size_t channel = reader->next_channel;
        reader->next_channel = 1 - channel;
        if (!pull_channel(reader, channel)) continue;
        if (reader->block) command_io_reader_moved(command);
        return true;
    }
    if (reader->told_exit && reader->told_end[0] && reader->told_end[1]) {
        struct message done;
        stream_begin_done(stream, &done);
        command_put_totals(command, &done);
        stream_send(stream, &done);
        stream_close(stream);
    }
    return false;
}

static void reader_data(struct stream *stream, const uint8_t *bytes, size_t length) {
    struct reader *reader = reader_of(stream);
    reader->unacknowledged += (uint32_t)length;
    command_input(reader->command, bytes, length);
}

static void reader_end(struct stream *stream) {
    command_input_end(reader_of(stream)->command);
}

static void reader_drop(struct stream *stream) {
    struct reader *reader = reader_of(stream);
    struct command *command = reader->command;
    list_remove(&reader->link);
    free(reader);
    command_io_reader_moved(command);
}

static const struct stream_ops reader_ops = {
    .pull = reader_pull, .data = reader_data, .end = reader_end, .drop = reader_drop
};

bool reader_open(struct connection *connection, uint32_t stream, struct command *command,
                 const struct reader_options *options) {
    struct reader *reader = calloc(1, sizeof *reader);
    if (!reader) return false;
    reader->command = command;
    reader->block = options->block;
    for (size_t i = 0; i < 2; i++) {
        uint64_t total = command->channels[i].output.total;
        reader->offset[i] = options->offset[i] == UINT64_MAX ? total : options->offset[i];
    }
    reader->told_end[1] = command->pty; /* a terminal has one channel only */
    list_insert_before(&command->readers, &reader->link);
    stream_open(&reader->stream, connection, stream, &reader_ops, options->window);
    stream_wake(&reader->stream);
    return true;
}

void readers_wake(struct command *command) {
    list_each(item, after, &command->readers) stream_wake(&container_of(item, struct reader, link)->stream);
}

void readers_fail(struct command *command, int error, const char *message) {
    while (!list_empty(&command->readers))
        stream_fail(&container_of(command->readers.next, struct reader, link)->stream, error, "%s", message);
}

uint64_t readers_needed_from(const struct command *command, size_t channel) {
    uint64_t lowest = UINT64_MAX;
    for (const struct list *item = command->readers.next; item != &command->readers; item = item->next) {
        const struct reader *reader = container_of(item, struct reader, link);
        if (!reader->block) continue;
        /* Bytes that are lost already are no reason to hold anything up. */
        const struct output *output = &command->channels[channel].output;
        uint64_t needed = reader->offset[channel] < output->total ? output_next_kept(output, reader->offset[channel])
                                                                  : output->total;
        if (needed < lowest) lowest = needed;
    }
    return lowest;
}

void readers_input_drained(struct command *command) {
    list_each(item, after, &command->readers) {
        struct reader *reader = container_of(item, struct reader, link);
        stream_grant(&reader->stream, reader->unacknowledged);
        reader->unacknowledged = 0;
    }
}
