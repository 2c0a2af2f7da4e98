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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cgroups.h"
#include "confine.h"
#include "environment.h"
#include "guest.h"
#include "spare.h"

/* What a child keeps of our descriptors, beside its own three. */
#define FAILURE_FD 3
#define CWD_FD 4
#define FIRST_SPARE_FD 5

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

/*
 * From here on names that the sandbox chose are looked up: a home directory, a working directory, a program. None of
 * them may lead to a descriptor of ours by /proc/self/fd, so none is left but the way to report a failure and the
 * directory that the caller itself handed in.
 */
static bool close_ours(int *failure_fd, int *cwd_fd) {
    int failure = fcntl(*failure_fd, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    int cwd = *cwd_fd < 0 ? -1 : fcntl(*cwd_fd, F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    if (failure < 0 || (*cwd_fd >= 0 && cwd < 0)) return false;
    if (dup3(failure, FAILURE_FD, O_CLOEXEC) < 0 || (cwd >= 0 && dup3(cwd, CWD_FD, O_CLOEXEC) < 0)) return false;
    *failure_fd = FAILURE_FD;
    *cwd_fd = cwd < 0 ? -1 : CWD_FD;
    return syscall(SYS_close_range, (unsigned)(cwd < 0 ? CWD_FD : FIRST_SPARE_FD), ~0u, 0u) == 0;
}

static bool enter_directory(const struct spawn *spawn, int cwd_fd) {
    if (cwd_fd >= 0) {
        bool entered = fchdir(cwd_fd) == 0;
        int error = errno;
        close(cwd_fd);
        errno = error;
        return entered;
    }
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

bool spawn_enter(const struct guest *guest, uint64_t command, bool born_inside) {
    reset_signals();
    if (cgroups_any(&guest->cgroups) && !cgroups_enter(&guest->cgroups, command, born_inside)) return false;
    /*
     * Only now may the command have a cgroup namespace: were the guest in one, a cgroup2 mounted with nsdelegate, as
     * systemd does, would refuse to let its children into any cgroup but the guest's own.
     */
    return guest->outside || unshare(CLONE_NEWCGROUP) == 0;
}

_Noreturn void spawn_run(const struct guest *guest, const struct spawn *spawn, int failure_fd, bool entered) {
    if (!entered) give_up(failure_fd, SPAWN_CGROUP);
    if (!become_session(spawn)) give_up(failure_fd, SPAWN_TERMINAL);
    int cwd_fd = spawn->cwd_fd;
    if (!close_ours(&failure_fd, &cwd_fd)) give_up(failure_fd, SPAWN_CONFINE);
    umask(022);
    confine_resources(guest);
    if (!confine_identity(guest, spawn->user)) give_up(failure_fd, SPAWN_CONFINE);
    if (!enter_directory(spawn, cwd_fd)) give_up(failure_fd, SPAWN_CWD);
    if (!confine_system_calls(guest)) give_up(failure_fd, SPAWN_CONFINE);
    exec_program(spawn);
    give_up(failure_fd, SPAWN_EXEC);
}

pid_t spawn_start(struct guest *guest, const struct spawn *spawn, int *failure_fd) {
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) < 0) return -1;
    pid_t pid = -1;
    bool born_inside = false;
    if (fcntl(failure[0], F_SETFL, O_NONBLOCK) == 0) {
        pid = spare_use(guest, spawn, failure[1]);
        if (pid < 0) pid = cgroups_fork(&guest->cgroups, spawn->command, &born_inside);
    }
    if (pid == 0) spawn_run(guest, spawn, failure[1], spawn_enter(guest, spawn->command, born_inside));
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
