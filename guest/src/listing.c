/* COMMANDS: one note per command, paced like any other stream. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "guest.h"
#include "requests.h"

struct listing {
    struct stream stream;
    struct guest *guest;
    uint64_t after; /* serial of the last one told: commands may come and go between turns */
};

static const struct command *next_command(const struct listing *listing) {
    const struct list *head = &listing->guest->commands;
    for (const struct list *item = head->next; item != head; item = item->next) {
        const struct command *command = container_of(item, struct command, link);
        if (command->serial > listing->after) return command;
    }
    return NULL;
}

static void tell(struct stream *stream, const struct command *command) {
    struct message note;
    stream_begin_note(stream, &note, NOTE_COMMAND);
    message_u64(&note, FIELD_COMMAND_ID, command->id);
    message_u64(&note, FIELD_PID, (uint64_t)command->pid);
    if (command->tag) message_text(&note, FIELD_TAG, command->tag);
    for (size_t at = 0; at < command->args_length; at += strlen(command->args + at) + 1)
        message_text(&note, FIELD_ARG, command->args + at);
    message_u64(&note, FIELD_START_NS, command->start_ns);
    if (command->pty) {
        message_u64(&note, FIELD_PTY_COLS, command->columns);
        message_u64(&note, FIELD_PTY_ROWS, command->rows);
    }
    command_put_totals(command, &note);
    if (command->phase == COMMAND_ENDED) command_put_exit(command, &note);
    stream_send(stream, &note);
}

static bool listing_pull(struct stream *stream) {
    struct listing *listing = container_of(stream, struct listing, stream);
    const struct command *command = next_command(listing);
    if (!command) {
        stream_done(stream);
        return false;
    }
    tell(stream, command);
    listing->after = command->serial;
    return true;
}

static void listing_drop(struct stream *stream) {
    free(container_of(stream, struct listing, stream));
}

static const struct stream_ops listing_ops = { .pull = listing_pull, .drop = listing_drop };

void request_commands(const struct request *request) {
    struct listing *listing = calloc(1, sizeof *listing);
    if (!listing) {
        answer_fail(request, ENOMEM, "no memory for the list");
        return;
    }
    listing->guest = request->guest;
    stream_open(&listing->stream, request->connection, request->stream, &listing_ops, 0);
    stream_wake(&listing->stream);
}
