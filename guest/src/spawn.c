#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cgroups.h"
#include "confine.h"
#include "environment.h"
#include "guest.h"

#define CLOSE_RANGE_CLOEXEC_FLAG 4u

static _Noreturn void give_up(int failure_fd, enum spawn_stage stage) {
    struct spawn_failure failure = { .stage = (int32_t)stage, .error = errno };
    (void)!write(failure_fd, &failure, sizeof failure);
    _exit(127);
}

static void reset_signals(void) {
    struct sigaction action = { .sa_handler = SIG_DFL };
    for (int number = 1; number < NSIG; number++) sigaction(number, &action, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static bool become_session(const struct spawn *spawn) {
    if (setsid() < 0) return false;
    if (spawn->terminal && ioctl(spawn->stdio[0], TIOCSCTTY, 0) < 0) return false;
    for (int i = 0; i < 3; i++)
        if (dup2(spawn->stdio[i], i) < 0) return false;
    return true;
}

static bool enter_directory(const struct spawn *spawn) {
    if (spawn->cwd_fd >= 0) return fchdir(spawn->cwd_fd) == 0;
    if (chdir(spawn->user->home) < 0 && chdir("/") < 0) return false;
    return !spawn->cwd || chdir(spawn->cwd) == 0;
}

/* As execvp: a text file without "#!" is a shell script. */
static void exec_file(const char *path, const struct spawn *spawn) {
    execve(path, spawn->argv, spawn->envp);
    if (errno != ENOEXEC) return;
    size_t count = 0;
    while (spawn->argv[count]) count++;
    char **argv = calloc(count + 2, sizeof *argv);
    if (!argv) return;
    argv[0] = spawn->argv[0];
    argv[1] = (char *)(uintptr_t)path;
    for (size_t i = 1; i < count; i++) argv[i + 1] = spawn->argv[i];
    execve("/bin/sh", argv, spawn->envp);
    errno = ENOEXEC;
}

static const char *path_variable(char **envp) {
    for (; *envp; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0) return *envp + 5;
    return SECURE_PATH;
}

/* Looks along the PATH that the program itself will see. Returns only on failure, with the most telling errno. */
static void exec_program(const struct spawn *spawn) {
    const char *program = spawn->argv[0];
    if (strchr(program, '/')) {
        exec_file(program, spawn);
        return;
    }
    int error = ENOENT;
    if (program[0]) {
        char candidate[PATH_MAX];
        for (const char *path = path_variable(spawn->envp); path;) {
            size_t length = strcspn(path, ":");
            int written = snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)length, path, length ? "/" : "./",
                                   program);
            if (written > 0 && (size_t)written < sizeof candidate) {
                exec_file(candidate, spawn);
                if (errno != ENOENT && errno != ENOTDIR && error != EACCES) error = errno;
                if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
            }
            path = path[length] ? path + length + 1 : NULL;
        }
    }
    errno = error;
}

static _Noreturn void run_child(const struct guest *guest, const struct spawn *spawn, int failure_fd,
                               bool born_inside) {
    reset_signals();
    /* /proc/self of a process that is not dumpable belongs to the host's root: oom_score_adj could not be written. */
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (cgroups_any(&guest->cgroups) && !cgroups_enter(&guest->cgroups, spawn->command, born_inside))
        give_up(failure_fd, SPAWN_CGROUP);
    /*
     * Only now may the command have a cgroup namespace: were the guest in one, a cgroup2 mounted with nsdelegate, as
     * systemd does, would refuse to let its children into any cgroup but the guest's own.
     */
    if (!guest->outside && unshare(CLONE_NEWCGROUP) < 0) give_up(failure_fd, SPAWN_CGROUP);
    if (!become_session(spawn)) give_up(failure_fd, SPAWN_TERMINAL);
    umask(022);
    confine_resources(guest);
    if (!confine_identity(guest, spawn->user)) give_up(failure_fd, SPAWN_CONFINE);
    if (!enter_directory(spawn)) give_up(failure_fd, SPAWN_CWD);
    /* Everything of ours is close-on-exec from birth; this is the second lock on the same door. */
    (void)syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC_FLAG);
    if (!confine_system_calls(guest)) give_up(failure_fd, SPAWN_CONFINE);
    exec_program(spawn);
    give_up(failure_fd, SPAWN_EXEC);
}

pid_t spawn_start(const struct guest *guest, const struct spawn *spawn, int *failure_fd) {
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) < 0) return -1;
    pid_t pid = -1;
    bool born_inside = false;
    if (fcntl(failure[0], F_SETFL, O_NONBLOCK) == 0)
        pid = cgroups_fork(&guest->cgroups, spawn->command, &born_inside);
    if (pid == 0) run_child(guest, spawn, failure[1], born_inside);
    int error = errno;
    close(failure[1]);
    if (pid < 0) {
        close(failure[0]);
        errno = error;
        return -1;
    }
    *failure_fd = failure[0];
    return pid;
}

enum spawn_outcome spawn_outcome(int failure_fd, struct spawn_failure *failure) {
    struct spawn_failure got;
    ssize_t length = read(failure_fd, &got, sizeof got);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return SPAWN_PENDING;
    if (length != (ssize_t)sizeof got) return SPAWN_STARTED;
    *failure = got;
    return SPAWN_FAILED;
}

void spawn_explain(const struct spawn_failure *failure, const char *program, const char *cwd, char *to, size_t size) {
    const char *why = strerror(failure->error);
    switch (failure->stage) {
        case SPAWN_CWD:
            if (!cwd) snprintf(to, size, "no directory to start in: %s", why);
            else if (failure->error == ENOENT) snprintf(to, size, "cwd '%.200s' does not exist", cwd);
            else if (failure->error == ENOTDIR) snprintf(to, size, "cwd '%.200s' is not a directory", cwd);
            else snprintf(to, size, "cwd '%.200s': %s", cwd, why);
            return;
        case SPAWN_EXEC: snprintf(to, size, "cannot run '%.200s': %s", program, why); return;
        case SPAWN_CGROUP: snprintf(to, size, "cannot enter the command's cgroup: %s", why); return;
        case SPAWN_TERMINAL: snprintf(to, size, "cannot set up the command's session: %s", why); return;
        default: snprintf(to, size, "cannot confine the command: %s", why); return;
    }
}
