#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

static void write_map(pid_t pid, const char *file, uid_t base) {
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    int length = snprintf(line, sizeof line, "0 %u %u\n", (unsigned)base, IDS_PER_SANDBOX);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) die("user namespace", path);
    if (write(fd, line, (size_t)length) != length) die("user namespace", path);
    close(fd);
}

/*
 * The namespace must be *owned* by the uid that bubblewrap will run as, or bubblewrap could not enter it; but only root
 * may map 65,536 ids. So a child takes the uid and unshares, and we, still root, write its maps and keep the namespace
 * alive by a descriptor after the child is gone.
 */
int userns_create(uid_t base) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0) die("user namespace", "pipe");
    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0) die("user namespace", "fork");
    if (child == 0) {
        if (setresgid(base, base, base) < 0 || setresuid(base, base, base) < 0) die("user namespace", "take the uid");
        /* After the change of ids, which would undo it. Whoever kills us shall not leave this process behind. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent) _exit(125);
        if (unshare(CLONE_NEWUSER) < 0) die("user namespace", "unshare");
        if (write(ready[1], "x", 1) != 1) _exit(125);
        for (;;) pause();
    }
    close(ready[1]);
    char byte;
    ssize_t got;
    do got = read(ready[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    close(ready[0]);
    if (got != 1) {
        /* The child has said why. */
        waitpid(child, NULL, 0);
        _exit(125);
    }
    write_map(child, "uid_map", base);
    write_map(child, "gid_map", base);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)child);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("user namespace", path);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return fd;
}
