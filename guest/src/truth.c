#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest.h"
#include "read-text.h"
#include "truth-text.h"

#define REAL_BYTES_MAX (1024 * 1024)
/* The numbers of /proc/stat grow; the file must not. */
#define STAT_SLACK_BYTES 2048
#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"

static bool complain(const char *step, const char *what) {
    fprintf(stderr, "holdfast-guest: truthful view: %s %s: %s\n", step, what, strerror(errno));
    return false;
}

static char *read_real(int fd) {
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0) return NULL;
    return read_whole(fd, REAL_BYTES_MAX, NULL);
}

/* ---- writing ---- */

/* In one write and always of the same length, so that a reader never sees half of it. Padded with empty lines. */
static void put_text(struct truth_file *file, const char *text, size_t slack) {
    if (file->fd < 0 || !text) return;
    size_t length = strlen(text);
    if (file->size < length) file->size = length + slack;
    char *padded = malloc(file->size);
    if (!padded) return; /* the last truth stays */
    memcpy(padded, text, length);
    memset(padded + length, '\n', file->size - length);
    (void)!pwrite(file->fd, padded, file->size, 0);
    free(padded);
}

static void refresh_memory(struct truth *truth, const struct budget *budget, const struct cgroups *cgroups) {
    char *real = read_real(truth->real_meminfo);
    struct cgroup_memory memory = { 0, 0, 0 };
    if (real && budget->memory_bytes > 0) {
        (void)cgroups_memory(cgroups, &memory); /* unknown is shown as nothing used */
        char *text = truth_meminfo(real, budget->memory_bytes, &memory);
        put_text(&truth->meminfo, text, 256);
        free(text);
    } else {
        put_text(&truth->meminfo, real, 256);
    }
    free(real);
}

static size_t cpus_to_show(const struct budget *budget, size_t real) {
    uint64_t wanted = budget->cpu_millis == 0 ? real : (budget->cpu_millis + 999) / 1000;
    if (wanted > real) wanted = real;
    return wanted < 1 ? 1 : (size_t)wanted;
}

/* Only when the budget changes; these files may then change their length. */
static void rewrite_cpu_files(struct truth *truth, size_t cpus) {
    char *real = read_real(truth->real_cpuinfo);
    char *text = real ? truth_cpuinfo(real, cpus) : NULL;
    if (text && ftruncate(truth->cpuinfo.fd, 0) == 0) {
        truth->cpuinfo.size = strlen(text);
        put_text(&truth->cpuinfo, text, 0);
    }
    free(text);
    free(real);
    char range[32];
    if (cpus == 1) snprintf(range, sizeof range, "0\n");
    else snprintf(range, sizeof range, "0-%zu\n", cpus - 1);
    for (int i = 0; i < 3; i++) {
        if (truth->cpu_lists[i].fd < 0 || ftruncate(truth->cpu_lists[i].fd, 0) < 0) continue;
        truth->cpu_lists[i].size = strlen(range);
        put_text(&truth->cpu_lists[i], range, 0);
    }
    truth->shown_cpus = cpus;
}

static void refresh_cpus(struct truth *truth, const struct budget *budget) {
    char *real = read_real(truth->real_stat);
    if (!real) return;
    size_t cpus = cpus_to_show(budget, truth_count_cpus(real));
    char *text = truth_stat(real, cpus);
    put_text(&truth->stat, text, STAT_SLACK_BYTES);
    free(text);
    free(real);
    if (cpus != truth->shown_cpus) rewrite_cpu_files(truth, cpus);
}

void truth_refresh(struct truth *truth, const struct budget *budget, const struct cgroups *cgroups) {
    if (!truth->active) return;
    refresh_memory(truth, budget, cgroups);
    refresh_cpus(truth, budget);
}

/* ---- mounting ---- */

/* Covered for a moment by our tmpfs. Nothing else runs yet. */
static const char *staging_directory(void) {
    static const char *const candidates[] = { "/run", "/tmp", "/dev/shm", "/mnt", "/var", "/home", "/root" };
    struct stat status;
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++)
        if (lstat(candidates[i], &status) == 0 && S_ISDIR(status.st_mode)) return candidates[i];
    return NULL;
}

/* Makes a file on the staging tmpfs and binds it, read-only, over `target`; our descriptor stays writable. */
static bool cover(const char *staging, const char *name, const char *target, struct truth_file *file) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", staging, name);
    file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file->fd < 0) return complain("create", path);
    if (fchmod(file->fd, 0444) < 0) return complain("chmod", path);
    if (mount(path, target, NULL, MS_BIND, NULL) < 0) return complain("bind over", target);
    if (mount(NULL, target, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return complain("make read-only", target);
    return true;
}

/* A random UUID, version 4. Written once. */
static bool write_boot_id(struct truth_file *file) {
    uint8_t bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return complain("make up", "a boot id");
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
    char text[40];
    size_t used = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                                 bytes[i]);
    text[used] = '\n';
    text[used + 1] = 0;
    put_text(file, text, 0);
    return true;
}

static bool cover_all(struct truth *truth, const char *staging) {
    static const char *const lists[3] = { "online", "possible", "present" };
    if (!cover(staging, "meminfo", "/proc/meminfo", &truth->meminfo) ||
        !cover(staging, "stat", "/proc/stat", &truth->stat) ||
        !cover(staging, "cpuinfo", "/proc/cpuinfo", &truth->cpuinfo) ||
        !cover(staging, "boot_id", BOOT_ID_PATH, &truth->boot_id) || !write_boot_id(&truth->boot_id))
        return false;
    for (int i = 0; i < 3; i++) {
        char target[64];
        snprintf(target, sizeof target, "/sys/devices/system/cpu/%s", lists[i]);
        /* Below /sys lie plain files, which a sandbox that is started again may have replaced by anything. */
        struct stat status;
        if (lstat(target, &status) == 0 && S_ISREG(status.st_mode) && !cover(staging, lists[i], target, &truth->cpu_lists[i])) return false;
    }
    return true;
}

bool truth_start(struct truth *truth, const struct budget *budget, const struct cgroups *cgroups) {
    truth->real_meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    truth->real_stat = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    truth->real_cpuinfo = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    if (truth->real_meminfo < 0 || truth->real_stat < 0 || truth->real_cpuinfo < 0)
        return complain("open", "the real files in /proc");
    for (int i = 0; i < 3; i++) truth->cpu_lists[i].fd = -1;
    const char *staging = staging_directory();
    if (!staging) {
        errno = ENOENT;
        return complain("find", "a directory to mount on");
    }
    if (mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,mode=0755") < 0)
        return complain("mount a tmpfs on", staging);
    bool covered = cover_all(truth, staging);
    if (umount2(staging, MNT_DETACH) < 0) return complain("unmount", staging);
    if (!covered) return false;
    truth->active = true;
    truth_refresh(truth, budget, cgroups);
    return true;
}
