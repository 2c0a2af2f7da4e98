/* START: from the fields of the request to a running process. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "environment.h"
#include "guest.h"
#include "pty.h"
#include "requests.h"

#define RUNNING_COMMANDS_MAX 4096
#define ENVIRONMENT_MAX 8192
#define ARGS_KEPT_BYTES 4096
#define TAG_KEPT_BYTES 1024
#define KEEP_BYTES_LEAST 4096
#define KEEP_BYTES_MOST (16u * 1024 * 1024)
#define DEFAULT_GRACE_MS 5000

/* The request taken apart, and the descriptors of the command to be. */
struct plan {
    char **argv;
    struct environment environment;
    struct user user;
    char *cwd;
    bool pty;
    bool input;
    uint16_t columns;
    uint16_t rows;
    int child_stdio[3];
    int output_fds[2];
    int input_fd;
};

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* The child's ends are ours to close in any case; the others only if no command took them. */
static void plan_free(struct plan *plan) {
    for (size_t i = 0; plan->argv && plan->argv[i]; i++) free(plan->argv[i]);
    free(plan->argv);
    environment_free(&plan->environment);
    free(plan->cwd);
    if (plan->pty) plan->child_stdio[1] = plan->child_stdio[2] = -1; /* all three are the same descriptor */
    for (int i = 0; i < 3; i++) close_fd(&plan->child_stdio[i]);
    close_fd(&plan->output_fds[0]);
    close_fd(&plan->output_fds[1]);
    close_fd(&plan->input_fd);
}

/* ---- from fields ---- */

static bool parse_args(const struct request *request, struct plan *plan) {
    size_t count = 0;
    struct field field;
    for (size_t cursor = 0; fields_next(request->payload, request->length, &cursor, &field);)
        if (field.tag == FIELD_ARG) count++;
    plan->argv = calloc(count + 1, sizeof *plan->argv);
    if (!plan->argv) return false;
    count = 0;
    for (size_t cursor = 0; fields_next(request->payload, request->length, &cursor, &field);) {
        if (field.tag != FIELD_ARG) continue;
        errno = EINVAL;
        if (field.length > 0 && memchr(field.value, 0, field.length)) return false;
        plan->argv[count] = strndup((const char *)field.value, field.length);
        if (!plan->argv[count++]) return false;
    }
    errno = EINVAL;
    return count > 0 && plan->argv[0][0];
}

static bool parse_environment(const struct request *request, struct plan *plan) {
    if (!environment_for_user(&plan->environment, &plan->user)) return false;
    struct field field;
    for (size_t cursor = 0; fields_next(request->payload, request->length, &cursor, &field);) {
        if (field.tag != FIELD_ENV) continue;
        errno = E2BIG;
        if (plan->environment.count >= ENVIRONMENT_MAX) return false;
        if (!environment_put(&plan->environment, (const char *)field.value, field.length)) return false;
    }
    return true;
}

static bool parse_user(const struct request *request, struct plan *plan) {
    char *who = fields_text(request->payload, request->length, FIELD_USER);
    if (!who && errno == ENOENT) {
        user_default(request->guest->default_user, &plan->user);
        return true;
    }
    bool known = who && user_find(who, &plan->user);
    if (!known) answer_fail(request, EINVAL, "invalid username: '%.200s'", who ? who : "");
    free(who);
    return known;
}

static bool in_group(const struct user *user, gid_t group) {
    for (size_t i = 0; i < user->group_count; i++)
        if (user->groups[i] == group) return true;
    return user->gid == group;
}

static bool may_search(const struct user *user, const struct stat *info) {
    if (user->uid == 0) return true;
    if (info->st_uid == user->uid) return info->st_mode & S_IXUSR;
    return info->st_mode & (in_group(user, info->st_gid) ? S_IXGRP : S_IXOTH);
}

/* Whether it and all directories that its path names let the user in, as far as modes tell. */
static bool may_enter(const struct user *user, const char *path) {
    char prefix[USER_TEXT_MAX];
    size_t length = strlen(path);
    if (path[0] != '/' || length >= sizeof prefix) return false;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(prefix, path, i);
        prefix[i] = 0;
        struct stat info;
        if (stat(prefix, &info) < 0 || !S_ISDIR(info.st_mode) || !may_search(user, &info)) return false;
    }
    return true;
}

/*
 * A command that does not say where it starts is in its user's home, or in the directory that the host prefers if it can be
 * entered. A child finds its way to either by the home in its user; what it is told in HOME is settled already.
 */
static void prefer_directory(const struct request *request, struct plan *plan) {
    char *preferred = fields_text(request->payload, request->length, FIELD_PATH);
    if (preferred && may_enter(&plan->user, preferred))
        snprintf(plan->user.home, sizeof plan->user.home, "%s", preferred);
    free(preferred);
}

static uint16_t clamp_u16(uint64_t value) {
    return value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

/* Answers the request itself if something is wrong with it. */
static bool plan_parse(const struct request *request, struct plan *plan) {
    const uint8_t *payload = request->payload;
    size_t length = request->length;
    if (!parse_args(request, plan)) {
        answer_fail(request, errno, "a command needs a program, and arguments without NUL");
        return false;
    }
    if (!parse_user(request, plan)) return false;
    if (!parse_environment(request, plan)) {
        answer_fail(request, errno, "the environment must be at most %d entries of the form NAME=value",
                    ENVIRONMENT_MAX);
        return false;
    }
    plan->cwd = fields_text(payload, length, FIELD_CWD);
    if (!plan->cwd && errno != ENOENT) {
        answer_fail(request, errno, "invalid cwd");
        return false;
    }
    if (!plan->cwd) prefer_directory(request, plan);
    plan->pty = fields_has(payload, length, FIELD_PTY_COLS) || fields_has(payload, length, FIELD_PTY_ROWS);
    plan->columns = clamp_u16(fields_u64(payload, length, FIELD_PTY_COLS, 80));
    plan->rows = clamp_u16(fields_u64(payload, length, FIELD_PTY_ROWS, 24));
    plan->input = fields_u64(payload, length, FIELD_STDIN, 0) == 1;
    return true;
}

/* ---- descriptors ---- */

static bool make_pipe(int *ours, int *childs, bool child_writes) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return false;
    *ours = ends[child_writes ? 0 : 1];
    *childs = ends[child_writes ? 1 : 0];
    /* Only our end: the two are different open files, and programs do not expect EAGAIN on theirs. */
    return fcntl(*ours, F_SETFL, O_NONBLOCK) == 0;
}

static bool open_terminal(struct plan *plan) {
    int slave;
    if (!pty_open(plan->user.uid, plan->columns, plan->rows, &plan->output_fds[0], &slave)) return false;
    plan->child_stdio[0] = plan->child_stdio[1] = plan->child_stdio[2] = slave;
    /* epoll takes a descriptor once, and reading and writing are watched apart. */
    plan->input_fd = fcntl(plan->output_fds[0], F_DUPFD_CLOEXEC, 3);
    return plan->input_fd >= 0;
}

static bool open_stdio(struct plan *plan) {
    if (plan->pty) return open_terminal(plan);
    if (plan->input) {
        if (!make_pipe(&plan->input_fd, &plan->child_stdio[0], false)) return false;
    } else {
        plan->child_stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (plan->child_stdio[0] < 0) return false;
    }
    return make_pipe(&plan->output_fds[0], &plan->child_stdio[1], true) &&
           make_pipe(&plan->output_fds[1], &plan->child_stdio[2], true);
}

/* ---- the command ---- */

/* For COMMANDS: enough to recognise it, cut so that a thousand of them stay small. */
static void keep_args(struct command *command, char **argv) {
    command->args = malloc(ARGS_KEPT_BYTES);
    if (!command->args) return;
    for (size_t i = 0; argv[i] && command->args_length < ARGS_KEPT_BYTES - 1; i++) {
        size_t room = ARGS_KEPT_BYTES - 1 - command->args_length;
        size_t length = strnlen(argv[i], room);
        memcpy(command->args + command->args_length, argv[i], length);
        command->args[command->args_length + length] = 0;
        command->args_length += length + 1;
    }
    char *fitted = realloc(command->args, command->args_length);
    if (fitted) command->args = fitted;
}

static void open_outputs(struct command *command, const struct request *request) {
    struct guest *guest = request->guest;
    uint64_t keep = fields_u64(request->payload, request->length, FIELD_KEEP_BYTES, DEFAULT_KEEP_BYTES);
    if (keep < KEEP_BYTES_LEAST) keep = KEEP_BYTES_LEAST;
    if (keep > KEEP_BYTES_MOST) keep = KEEP_BYTES_MOST;
    uint64_t spill = fields_u64(request->payload, request->length, FIELD_SPILL_BYTES, 0);
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "%" PRIu64 ".%d", command->id, i + CHANNEL_OUT);
        output_init(&command->channels[i].output, &guest->keep, (size_t)keep);
        output_spill_to(&command->channels[i].output, guest->spill_fd, name, spill);
    }
}

static struct command *make_command(const struct request *request, struct plan *plan, uint64_t id,
                                    struct cgroup_limits limits) {
    struct command *command = command_new(request->guest, id);
    if (!command) return NULL;
    command->pty = plan->pty;
    command->columns = plan->columns;
    command->rows = plan->rows;
    command->tag = fields_text(request->payload, request->length, FIELD_TAG);
    if (command->tag && strlen(command->tag) > TAG_KEPT_BYTES) command->tag[TAG_KEPT_BYTES] = 0;
    command->cwd = plan->cwd ? strdup(plan->cwd) : NULL;
    command->grace_ms = fields_u64(request->payload, request->length, FIELD_GRACE_MS, DEFAULT_GRACE_MS);
    command->timeout_ms = fields_u64(request->payload, request->length, FIELD_TIMEOUT_MS, 0);
    command->limits = limits;
    keep_args(command, plan->argv);
    open_outputs(command, request);
    command_io_open(command, plan->output_fds, plan->input_fd);
    plan->output_fds[0] = plan->output_fds[1] = plan->input_fd = -1;
    if (command->args) return command;
    command_destroy(command, ENOMEM, "");
    return NULL;
}

static bool launch(struct command *command, const struct plan *plan) {
    struct spawn spawn = {
        .argv = plan->argv,
        .envp = plan->environment.entries,
        .user = &plan->user,
        .cwd = plan->cwd,
        .cwd_fd = -1,
        .stdio = { plan->child_stdio[0], plan->child_stdio[1], plan->child_stdio[2] },
        .terminal = plan->pty,
        .command = command->id,
    };
    int failure_fd;
    pid_t pid = spawn_start(command->guest, &spawn, &failure_fd);
    return pid > 0 && command_launched(command, pid, failure_fd);
}

static void start(const struct request *request, struct plan *plan, uint64_t id) {
    struct guest *guest = request->guest;
    struct cgroup_limits limits = {
        .memory_bytes = fields_u64(request->payload, request->length, FIELD_MEMORY_BYTES, 0),
        .pids = fields_u64(request->payload, request->length, FIELD_PIDS, 0),
    };
    if (!open_stdio(plan)) {
        answer_fail(request, errno, "cannot open the command's stdio: %s", strerror(errno));
        return;
    }
    bool is_made = spare_made_cgroup(guest, id);
    if (!(is_made ? cgroups_limit : cgroups_make)(&guest->cgroups, id, &limits)) {
        answer_fail(request, errno, "cannot make the command's cgroup: %s", strerror(errno));
        return;
    }
    struct command *command = make_command(request, plan, id, limits);
    if (!command) {
        cgroups_remove(&guest->cgroups, id);
        answer_fail(request, ENOMEM, "no memory for another command");
        return;
    }
    guest_commands_changed(guest);
    if (!launch(command, plan)) {
        int error = errno;
        command_destroy(command, error, "");
        answer_fail(request, error, "cannot start a process: %s", strerror(error));
        return;
    }
    if (command->timeout_ms > 0) timer_arm(&guest->loop, &command->deadline, command->timeout_ms);
    struct reader_options options = {
        .window = fields_u64(request->payload, request->length, FIELD_WINDOW, 0),
        .block = fields_u64(request->payload, request->length, FIELD_BLOCK, 0) == 1,
    };
    if (!reader_open(request->connection, request->stream, command, &options))
        answer_fail(request, ENOMEM, "no memory for another reader"); /* it runs; the host may attach */
}

void request_start(const struct request *request) {
    struct guest *guest = request->guest;
    uint64_t id = fields_u64(request->payload, request->length, FIELD_COMMAND_ID, 0);
    if (id == 0) {
        answer_fail(request, EINVAL, "COMMAND_ID is missing");
    } else if (command_find(guest, id)) {
        answer_fail(request, EEXIST, "command %" PRIu64 " exists", id);
    } else if (guest->commands_running >= RUNNING_COMMANDS_MAX) {
        answer_fail(request, EAGAIN, "%d commands are running", RUNNING_COMMANDS_MAX);
    } else if (guest->stopping) {
        answer_fail(request, ECANCELED, "the sandbox is shutting down");
    } else {
        struct plan plan = { .child_stdio = { -1, -1, -1 }, .output_fds = { -1, -1 }, .input_fd = -1 };
        if (plan_parse(request, &plan)) start(request, &plan, id);
        plan_free(&plan);
    }
}
