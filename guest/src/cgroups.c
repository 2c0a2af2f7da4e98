#include "cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "read-text.h"

/* linux/sched.h, which musl does not have. */
#define CLONE_INTO_CGROUP_FLAG 0x200000000ULL
struct clone3_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};

/* Rounds of "list and kill" where the kernel has no cgroup.kill; each round can only leave what was forked in it. */
#define KILL_ROUNDS 64
#define PROCS_BYTES_MAX (256 * 1024)

bool cgroups_any(const struct cgroups *cgroups) {
    return cgroups->memory >= 0 || cgroups->pids >= 0 || cgroups->unified >= 0;
}

static void path_of(char *to, size_t size, uint64_t command, const char *file) {
    snprintf(to, size, "%" PRIu64 "%s%s", command, file ? "/" : "", file ? file : "");
}

static bool write_text(int directory, uint64_t command, const char *file, const char *text) {
    char path[64];
    path_of(path, sizeof path, command, file);
    int fd = openat(directory, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t length = strlen(text);
    ssize_t written = write(fd, text, length);
    int error = errno;
    close(fd);
    errno = written < 0 ? error : EIO;
    return written == (ssize_t)length;
}

static bool write_number(int directory, uint64_t command, const char *file, uint64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return write_text(directory, command, file, text);
}

/* For files that only some kernels have. */
static bool write_number_if_present(int directory, uint64_t command, const char *file, uint64_t number) {
    return write_number(directory, command, file, number) || errno == ENOENT;
}

static bool limit_memory(const struct cgroups *cgroups, uint64_t command, uint64_t bytes) {
    if (cgroups->memory >= 0)
        /* A sandbox whose limit can grow is held at it instead of killed, which its children inherit; nobody would ever come to
         * the aid of a command that is held at a limit of its own. */
        return write_number(cgroups->memory, command, "memory.limit_in_bytes", bytes) &&
               write_number_if_present(cgroups->memory, command, "memory.memsw.limit_in_bytes", bytes) &&
               write_number_if_present(cgroups->memory, command, "memory.oom_control", 0);
    if (cgroups->unified >= 0)
        return write_number(cgroups->unified, command, "memory.max", bytes) &&
               write_number_if_present(cgroups->unified, command, "memory.swap.max", 0);
    errno = ENOTSUP;
    return false;
}

static bool limit_pids(const struct cgroups *cgroups, uint64_t command, uint64_t count) {
    int directory = cgroups->pids >= 0 ? cgroups->pids : cgroups->unified;
    if (directory >= 0) return write_number(directory, command, "pids.max", count);
    errno = ENOTSUP;
    return false;
}

static void remove_in(int directory, uint64_t command) {
    char path[64];
    path_of(path, sizeof path, command, NULL);
    if (directory >= 0) (void)unlinkat(directory, path, AT_REMOVEDIR); /* the host removes what we cannot */
}

void cgroups_remove(const struct cgroups *cgroups, uint64_t command) {
    remove_in(cgroups->memory, command);
    remove_in(cgroups->pids, command);
    remove_in(cgroups->unified, command);
}

static bool make_in(int directory, uint64_t command) {
    char path[64];
    path_of(path, sizeof path, command, NULL);
    return directory < 0 || mkdirat(directory, path, 0755) == 0;
}

bool cgroups_limit(const struct cgroups *cgroups, uint64_t command, const struct cgroup_limits *limits) {
    /* v1 bounds socket buffers only in cgroups where this was written; the bound itself is the sandbox's, one level up. */
    if (cgroups->memory >= 0 &&
        !write_number_if_present(cgroups->memory, command, "memory.kmem.tcp.limit_in_bytes", UINT64_C(1) << 40))
        return false;
    return (limits->memory_bytes == 0 || limit_memory(cgroups, command, limits->memory_bytes)) &&
           (limits->pids == 0 || limit_pids(cgroups, command, limits->pids));
}

bool cgroups_make(const struct cgroups *cgroups, uint64_t command, const struct cgroup_limits *limits) {
    int directories[] = { cgroups->memory, cgroups->pids, cgroups->unified };
    int made = 0;
    while (made < 3 && make_in(directories[made], command)) made++;
    if (made == 3 && cgroups_limit(cgroups, command, limits)) return true;
    int error = errno;
    while (made > 0) remove_in(directories[--made], command);
    errno = error;
    return false;
}

pid_t cgroups_fork(const struct cgroups *cgroups, uint64_t command, bool *born_inside) {
    *born_inside = false;
    if (cgroups->unified < 0) return fork();
    char path[64];
    path_of(path, sizeof path, command, NULL);
    int directory = openat(cgroups->unified, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -1;
    struct clone3_args args = {
        .flags = CLONE_INTO_CGROUP_FLAG, .exit_signal = SIGCHLD, .cgroup = (uint64_t)directory
    };
    *born_inside = true; /* before, so that the child's copy of our memory says so too */
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    int error = errno;
    close(directory);
    if (pid >= 0) return pid;
    *born_inside = false;
    errno = error;
    /* An old kernel, or a seccomp filter around us that cannot look into clone3: the child joins by itself. */
    if (error == ENOSYS || error == EPERM || error == EINVAL || error == E2BIG) return fork();
    return -1;
}

bool cgroups_enter(const struct cgroups *cgroups, uint64_t command, bool born_inside) {
    if (cgroups->memory >= 0 && !write_text(cgroups->memory, command, "cgroup.procs", "0")) return false;
    if (cgroups->pids >= 0 && !write_text(cgroups->pids, command, "cgroup.procs", "0")) return false;
    if (cgroups->unified < 0 || born_inside) return true;
    return write_text(cgroups->unified, command, "cgroup.procs", "0");
}

bool cgroups_enter_as_writer(const struct cgroups *cgroups) {
    int directory = cgroups->memory >= 0 ? cgroups->memory : cgroups->unified;
    if (directory < 0) return true;
    if (mkdirat(directory, "files", 0755) < 0 && errno != EEXIST) return false;
    int fd = openat(directory, "files/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool entered = write(fd, "0", 1) == 1;
    int error = errno;
    close(fd);
    errno = error;
    return entered;
}

/* Signals each process listed; how many there were. The numbers are those of our own PID namespace. */
static size_t signal_listed(int directory, uint64_t command, int signal_number) {
    char path[64];
    path_of(path, sizeof path, command, "cgroup.procs");
    int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char *text = read_whole(fd, PROCS_BYTES_MAX, NULL);
    close(fd);
    if (!text) return 0;
    size_t count = 0;
    for (char *cursor = text; *cursor;) {
        char *end;
        long pid = strtol(cursor, &end, 10);
        if (end == cursor) break;
        /* 0 stands for a process of another namespace, 1 is ourselves. */
        if (pid > 1 && pid != getpid() && kill((pid_t)pid, signal_number) == 0) count++;
        cursor = *end ? end + 1 : end;
    }
    free(text);
    return count;
}

size_t cgroups_signal(const struct cgroups *cgroups, uint64_t command, int signal_number) {
    int directory = cgroups->unified >= 0 ? cgroups->unified : cgroups->pids >= 0 ? cgroups->pids : cgroups->memory;
    if (directory < 0) return 0;
    if (signal_number != SIGKILL) return signal_listed(directory, command, signal_number);
    size_t count = signal_listed(directory, command, 0);
    if (cgroups->unified >= 0 && write_text(cgroups->unified, command, "cgroup.kill", "1")) return count;
    for (int round = 0; round < KILL_ROUNDS; round++)
        if (signal_listed(directory, command, SIGKILL) == 0) break;
    return count;
}

bool cgroups_command_of(pid_t pid, uint64_t *command) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    char *text = read_path(path, 16 * 1024, NULL);
    if (!text) return false;
    /* Only our own `cmd` directory can be meant: nobody inside can make or enter another cgroup. */
    bool found = false;
    for (char *cursor = text; !found && (cursor = strstr(cursor, "/cmd/")) != NULL;) {
        cursor += strlen("/cmd/");
        char *end;
        errno = 0;
        unsigned long long number = strtoull(cursor, &end, 10);
        if (errno == 0 && end != cursor && (*end == '\n' || *end == 0)) {
            *command = number;
            found = true;
        }
    }
    free(text);
    return found;
}

static uint64_t stat_value(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, length) == 0 && line[length] == ' ') return strtoull(line + length, NULL, 10);
    return 0;
}

static char *read_in(int directory, const char *file) {
    int fd = openat(directory, file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    char *text = read_whole(fd, 64 * 1024, NULL);
    close(fd);
    return text;
}

bool cgroups_memory(const struct cgroups *cgroups, struct cgroup_memory *out) {
    bool v1 = cgroups->memory >= 0;
    int directory = v1 ? cgroups->memory : cgroups->unified;
    if (directory < 0) return false;
    char *used = read_in(directory, v1 ? "memory.usage_in_bytes" : "memory.current");
    char *stat = read_in(directory, "memory.stat");
    bool known = used && stat;
    if (known) {
        out->used_bytes = strtoull(used, NULL, 10);
        out->cache_bytes = stat_value(stat, v1 ? "total_cache" : "file");
        out->inactive_bytes = stat_value(stat, v1 ? "total_inactive_file" : "inactive_file");
    }
    free(used);
    free(stat);
    return known;
}
