#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

#define KEPT_BYTES_MAX (32u * 1024 * 1024)
#define ENDED_COMMANDS_MAX 1024

struct command *command_find(struct guest *guest, uint64_t id) {
    list_each(item, after, &guest->commands) {
        struct command *command = container_of(item, struct command, link);
        if (command->id == id) return command;
    }
    return NULL;
}

/* ---- bounds over all commands ---- */

/* The oldest ended command loses its output; its readers, if any, see a gap. */
static bool reclaim_oldest(struct keep_budget *keep) {
    struct guest *guest = container_of(keep, struct guest, keep);
    list_each(item, after, &guest->commands) {
        struct command *command = container_of(item, struct command, link);
        if (command->phase != COMMAND_ENDED) continue;
        size_t before = keep->used_bytes;
        for (int i = 0; i < 2; i++)
            if (command->channels[i].ended) output_drop(&command->channels[i].output);
        if (keep->used_bytes < before) return true;
    }
    return false;
}

void commands_init(struct guest *guest) {
    list_init(&guest->commands);
    guest->keep.limit_bytes = KEPT_BYTES_MAX;
    guest->keep.reclaim = reclaim_oldest;
}

static void forget_oldest(struct guest *guest) {
    list_each(item, after, &guest->commands) {
        if (guest->commands_ended <= ENDED_COMMANDS_MAX) return;
        struct command *command = container_of(item, struct command, link);
        if (command->phase == COMMAND_ENDED && list_empty(&command->readers)) command_destroy(command, ECANCELED, "");
    }
}

/* ---- signals and deadlines ---- */

size_t command_signal(struct command *command, int signal_number, bool whole) {
    struct guest *guest = command->guest;
    if (whole && cgroups_any(&guest->cgroups)) return cgroups_signal(&guest->cgroups, command->id, signal_number);
    /* Once reaped, the number may belong to anybody. */
    if (!child_alive(&command->child)) return 0;
    if (whole) (void)kill(-command->child.pid, signal_number);
    return kill(command->child.pid, signal_number) == 0 ? 1 : 0;
}

static void deadline_passed(struct timer *timer) {
    struct command *command = container_of(timer, struct command, deadline);
    bool first = !command->timed_out;
    command->timed_out = true;
    if (first && command->grace_ms > 0) {
        command_signal(command, SIGTERM, true);
        timer_arm(&command->guest->loop, &command->deadline, command->grace_ms);
    } else {
        command_signal(command, SIGKILL, true);
    }
}

void commands_kill_all(struct guest *guest) {
    list_each(item, after, &guest->commands)
        command_signal(container_of(item, struct command, link), SIGKILL, true);
}

/* ---- start and end ---- */

static void mark_running(struct command *command) {
    command->phase = COMMAND_RUNNING;
    watch_close(&command->guest->loop, &command->failure);
    free(command->cwd); /* no message will need it */
    command->cwd = NULL;
    readers_wake(command);
}

static void check_failure(struct command *command) {
    switch (spawn_outcome(command->failure.fd, &command->failed)) {
        case SPAWN_PENDING: break;
        case SPAWN_STARTED: mark_running(command); break;
        /* It is about to exit; the cgroup can be removed, and the host told, when it has. */
        case SPAWN_FAILED: watch_close(&command->guest->loop, &command->failure); break;
    }
}

static void failure_ready(struct watch *watch, uint32_t events) {
    (void)events;
    check_failure(container_of(watch, struct command, failure));
}

static void fail_start(struct command *command) {
    char message[512];
    spawn_explain(&command->failed, command->args, command->cwd, message, sizeof message);
    command_destroy(command, command->failed.error, message);
}

static uint64_t microseconds(const struct timeval *time) {
    return (uint64_t)time->tv_sec * 1000000u + (uint64_t)time->tv_usec;
}

static void process_ended(struct child *child, int status, const struct rusage *usage) {
    struct command *command = container_of(child, struct command, child);
    struct guest *guest = command->guest;
    if (command->phase == COMMAND_STARTING && command->failed.stage == 0) check_failure(command);
    if (command->failed.stage != 0) {
        fail_start(command);
        return;
    }
    command->status = status;
    command->end_ns = wall_clock_ns();
    command->wall_us = now_us() - command->start_us;
    command->user_us = microseconds(&usage->ru_utime);
    command->sys_us = microseconds(&usage->ru_stime);
    command->max_rss_bytes = (uint64_t)usage->ru_maxrss * 1024;
    command->phase = COMMAND_ENDED;
    guest->commands_running--;
    guest->commands_ended++;
    /* After a timeout the descendants are still owed the SIGKILL. */
    if (!command->timed_out || command_signal(command, 0, true) == 0) timer_disarm(&command->deadline);
    command_io_process_ended(command);
    readers_wake(command);
    forget_oldest(guest);
    guest_commands_changed(guest);
}

struct command *command_new(struct guest *guest, uint64_t id) {
    struct command *command = calloc(1, sizeof *command);
    if (!command) return NULL;
    command->guest = guest;
    command->id = id;
    command->serial = ++guest->next_serial;
    command->phase = COMMAND_STARTING;
    child_init(&command->child, process_ended);
    watch_init(&command->failure, -1, failure_ready);
    timer_init(&command->deadline, deadline_passed);
    list_init(&command->readers);
    command_io_open(command, (const int[]){ -1, -1 }, -1);
    list_insert_before(&guest->commands, &command->link);
    guest->commands_running++;
    return command;
}

bool command_launched(struct command *command, pid_t pid, int failure_fd) {
    struct guest *guest = command->guest;
    command->pid = pid;
    command->start_ns = wall_clock_ns();
    command->start_us = now_us();
    child_watch(&guest->children, &command->child, pid);
    command->failure.fd = failure_fd;
    return watch_arm(&guest->loop, &command->failure, EPOLLIN);
}

void command_destroy(struct command *command, int error, const char *message) {
    struct guest *guest = command->guest;
    if (command->phase == COMMAND_ENDED) {
        guest->commands_ended--;
        /* Nobody will count its time any more: what is left of a command past its deadline goes now. */
        if (command->deadline.armed) command_signal(command, SIGKILL, true);
    } else {
        guest->commands_running--;
        if (child_alive(&command->child)) kill(command->child.pid, SIGKILL);
        cgroups_remove(&guest->cgroups, command->id);
    }
    readers_fail(command, error, message);
    child_forget(&command->child);
    timer_disarm(&command->deadline);
    watch_close(&guest->loop, &command->failure);
    command_io_close(command);
    list_remove(&command->link);
    guest_commands_changed(guest);
    free(command->cwd);
    free(command->tag);
    free(command->args);
    free(command);
}

/* ---- what is told about it ---- */

void command_put_totals(const struct command *command, struct message *message) {
    message_u64(message, FIELD_OUT_BYTES, command->channels[0].output.total);
    message_u64(message, FIELD_ERR_BYTES, command->channels[1].output.total);
    if (command->phase == COMMAND_ENDED) message_u64(message, FIELD_HELD, command->held);
}

void command_put_exit(const struct command *command, struct message *message) {
    if (WIFSIGNALED(command->status)) {
        message_u64(message, FIELD_EXIT_KIND, EXIT_KIND_SIGNALED);
        message_u64(message, FIELD_SIGNAL, (uint64_t)WTERMSIG(command->status));
    } else {
        message_u64(message, FIELD_EXIT_KIND, EXIT_KIND_EXITED);
        message_u64(message, FIELD_EXIT_CODE, (uint64_t)WEXITSTATUS(command->status));
    }
    message_u64(message, FIELD_TIMED_OUT, command->timed_out);
    message_u64(message, FIELD_WALL_US, command->wall_us);
    message_u64(message, FIELD_USER_US, command->user_us);
    message_u64(message, FIELD_SYS_US, command->sys_us);
    message_u64(message, FIELD_MAXRSS_BYTES, command->max_rss_bytes);
    message_u64(message, FIELD_END_NS, command->end_ns);
}
