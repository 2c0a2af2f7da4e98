/* A command: a process in its own cgroup, its input, and its output, kept for readers that come and go. */
#ifndef HOLDFAST_COMMAND_H
#define HOLDFAST_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "cgroups.h"
#include "children.h"
#include "frame.h"
#include "list.h"
#include "loop.h"
#include "output.h"
#include "spawn.h"
#include "stream.h"

struct guest;
struct command;

enum command_phase { COMMAND_STARTING, COMMAND_RUNNING, COMMAND_ENDED };

/* stdout, stderr, or the pty: one end of a pipe and what came out of it. */
struct command_channel {
    struct command *command;
    struct watch watch; /* stays open after `ended` while a descendant may still write: what comes is discarded */
    struct output output;
    bool ended;         /* no more bytes belong to this channel */
    bool paused;        /* a BLOCK reader is as far behind as can be kept */
    bool closing;       /* the hold time is over: only `remaining` more bytes are taken */
    uint64_t remaining;
};

struct command {
    struct list link;
    struct guest *guest;
    uint64_t id;
    uint64_t serial; /* in order of start */
    enum command_phase phase;
    struct child child;
    pid_t pid;

    struct watch failure; /* the spawn's failure pipe, while starting */
    struct spawn_failure failed;
    char *cwd;  /* as asked for, for messages */
    char *tag;
    char *args; /* NUL-separated, cut at ARGS_KEPT_BYTES */
    size_t args_length;

    bool pty;
    uint16_t columns;
    uint16_t rows;
    struct watch input;
    struct buffer input_pending;
    bool input_ending; /* close it once all is written */
    struct command_channel channels[2]; /* index 0 is CHANNEL_OUT */
    struct list readers;

    struct timer deadline; /* TIMEOUT_MS, then GRACE_MS */
    uint64_t timeout_ms;   /* 0: none */
    uint64_t grace_ms;
    struct cgroup_limits limits; /* of its own */
    bool timed_out;
    struct timer hold; /* how long descendants may keep the pipes open after the end */
    bool held;

    uint64_t start_ns; /* wall clock */
    uint64_t end_ns;
    uint64_t start_us; /* monotonic */
    uint64_t wall_us, user_us, sys_us, max_rss_bytes;
    int status; /* as from wait */
};

/* command.c: the life of a command */
struct command *command_find(struct guest *guest, uint64_t id);
struct command *command_new(struct guest *guest, uint64_t id);
/* The process exists; its failure pipe decides whether it became a program. */
bool command_launched(struct command *command, pid_t pid, int failure_fd);
/* Ends a command that never started (readers get FAIL), or forgets one that ended (they get ECANCELED). */
void command_destroy(struct command *command, int error, const char *message);
size_t command_signal(struct command *command, int signal_number, bool whole);
void command_put_exit(const struct command *command, struct message *message);
void command_put_totals(const struct command *command, struct message *message);
void commands_init(struct guest *guest);
void commands_kill_all(struct guest *guest);

/* command-io.c: its pipes */
void command_io_open(struct command *command, const int output_fds[2], int input_fd);
void command_io_close(struct command *command);
/* The process is gone: takes what is in the pipes now, and starts the hold time for those still open. */
void command_io_process_ended(struct command *command);
/* A reader went forward or away: a paused channel may go on. */
void command_io_reader_moved(struct command *command);
void command_input(struct command *command, const uint8_t *bytes, size_t length);
void command_input_end(struct command *command);
bool command_input_open(const struct command *command);

/* reader.c */
struct reader_options {
    uint64_t window;
    uint64_t offset[2];
    bool block;
};
/* Opens the stream; false without memory. */
bool reader_open(struct connection *connection, uint32_t stream, struct command *command,
                 const struct reader_options *options);
void readers_wake(struct command *command);
/* Ends all streams of the command with FAIL. */
void readers_fail(struct command *command, int error, const char *message);
/* The lowest offset that a BLOCK reader still needs; UINT64_MAX if there is none. */
uint64_t readers_needed_from(const struct command *command, size_t channel);
/* All input so far was written: the hosts may send as much again. */
void readers_input_drained(struct command *command);

#endif
