/* Requests about a command that exists. */
#include <errno.h>
#include <inttypes.h>

#include "command.h"
#include "guest.h"
#include "pty.h"
#include "requests.h"

#define SIGNAL_MAX 64

/* The command the request names; answers with ESRCH if there is none. */
static struct command *named_command(const struct request *request) {
    uint64_t id = fields_u64(request->payload, request->length, FIELD_COMMAND_ID, 0);
    struct command *command = command_find(request->guest, id);
    if (!command) answer_fail(request, ESRCH, "no command %" PRIu64, id);
    return command;
}

void request_attach(const struct request *request) {
    struct command *command = named_command(request);
    if (!command) return;
    /* An offset that is absent means the end, wherever that is now. */
    struct reader_options options = {
        .window = fields_u64(request->payload, request->length, FIELD_WINDOW, 0),
        .offset = { fields_u64(request->payload, request->length, FIELD_OFFSET_OUT, UINT64_MAX),
                    fields_u64(request->payload, request->length, FIELD_OFFSET_ERR, UINT64_MAX) },
        .block = fields_u64(request->payload, request->length, FIELD_BLOCK, 0) == 1,
    };
    if (!reader_open(request->connection, request->stream, command, &options))
        answer_fail(request, ENOMEM, "no memory for another reader");
}

void request_signal(const struct request *request) {
    struct command *command = named_command(request);
    if (!command) return;
    uint64_t number = fields_u64(request->payload, request->length, FIELD_SIGNAL, UINT64_MAX);
    if (number > SIGNAL_MAX) {
        answer_fail(request, EINVAL, "SIGNAL must be a number up to %d", SIGNAL_MAX);
        return;
    }
    bool whole = fields_u64(request->payload, request->length, FIELD_WHOLE, 0) == 1;
    struct message done;
    answer_begin_done(request, &done);
    message_u64(&done, FIELD_COUNT, command_signal(command, (int)number, whole));
    connection_send(request->connection, &done);
}

void request_resize(const struct request *request) {
    struct command *command = named_command(request);
    if (!command) return;
    uint64_t columns = fields_u64(request->payload, request->length, FIELD_PTY_COLS, 0);
    uint64_t rows = fields_u64(request->payload, request->length, FIELD_PTY_ROWS, 0);
    if (!command->pty) {
        answer_fail(request, ENOTTY, "command %" PRIu64 " has no terminal", command->id);
    } else if (columns == 0 || columns > UINT16_MAX || rows == 0 || rows > UINT16_MAX) {
        answer_fail(request, EINVAL, "PTY_COLS and PTY_ROWS must be 1 to %d", UINT16_MAX);
    } else if (command->channels[0].watch.fd < 0 ||
               !pty_resize(command->channels[0].watch.fd, (uint16_t)columns, (uint16_t)rows)) {
        answer_fail(request, EIO, "the terminal of command %" PRIu64 " is closed", command->id);
    } else {
        command->columns = (uint16_t)columns;
        command->rows = (uint16_t)rows;
        answer_done(request);
    }
}

void request_forget(const struct request *request) {
    struct command *command = named_command(request);
    if (!command) return;
    if (command->phase != COMMAND_ENDED) {
        answer_fail(request, EBUSY, "command %" PRIu64 " has not ended", command->id);
        return;
    }
    command_destroy(command, ECANCELED, "the command was forgotten");
    answer_done(request);
}
