/*
 * /dev of a sandbox, made here as the host's root and not by bubblewrap: real device nodes on one small tmpfs are five
 * mounts fewer than binding each, and its size is bounded, so that nobody inside can turn /dev into a heap.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "launch.h"

static const struct {
    const char *name;
    unsigned minor;
} memory_devices[] = { { "null", 3 }, { "zero", 5 }, { "full", 7 }, { "random", 8 }, { "urandom", 9 } };

static const struct {
    const char *name;
    const char *target;
} links[] = {
    { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" }, { "stdout", "/proc/self/fd/1" },
    { "stderr", "/proc/self/fd/2" }, { "core", "/proc/kcore" },      { "ptmx", "pts/ptmx" },
};

/* The host has one supply of terminals for everybody (kernel.pty.max). */
#define TERMINALS_MAX 256u

static void make_node(const char *name, dev_t device, uid_t owner) {
    if (mknod(name, S_IFCHR, device) < 0 || chmod(name, 0666) < 0 || lchown(name, owner, owner) < 0)
        die("/dev", name);
}

static void make_mount(const char *name, const char *type, unsigned long flags, const char *options, uid_t owner) {
    if (mkdir(name, 0755) < 0 || lchown(name, owner, owner) < 0) die("/dev", name);
    if (mount(type, name, type, flags, options) < 0) die("/dev", name);
}

/* Makes it in the current directory, under this name. Ids in mount options are the host's. */
void dev_make(const char *name, uid_t owner, uint64_t shm_bytes) {
    char options[128];
    snprintf(options, sizeof options, "mode=0755,size=64k,nr_inodes=128,uid=%u,gid=%u", owner, owner);
    if (mkdir(name, 0755) < 0) die("/dev", name);
    if (mount("dev", name, "tmpfs", MS_NOSUID | MS_NOEXEC, options) < 0) die("/dev", name);
    if (chdir(name) < 0) die("/dev", name);
    for (size_t i = 0; i < sizeof memory_devices / sizeof *memory_devices; i++)
        make_node(memory_devices[i].name, makedev(1, memory_devices[i].minor), owner);
    make_node("tty", makedev(5, 0), owner);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i].target, links[i].name) < 0 || lchown(links[i].name, owner, owner) < 0)
            die("/dev", links[i].name);
    snprintf(options, sizeof options, "newinstance,ptmxmode=0666,mode=0620,max=%u,gid=%u", TERMINALS_MAX, owner + 5);
    make_mount("pts", "devpts", MS_NOSUID | MS_NOEXEC, options, owner);
    snprintf(options, sizeof options, "mode=1777,size=%llu,uid=%u,gid=%u", (unsigned long long)shm_bytes, owner, owner);
    make_mount("shm", "tmpfs", MS_NOSUID | MS_NODEV, options, owner);
    /* Where the host says things to programs inside; see mounts_nest. */
    if (mkdir("holdfast", 0755) < 0 || lchown("holdfast", owner, owner) < 0) die("/dev", "holdfast");
    if (chdir("..") < 0) die("/dev", "..");
}
