#include "confine.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest.h"
#include "seccomp.h"

#define OPEN_FILES_SOFT 65536
#define OPEN_FILES_HARD 1048576

/* From linux/capability.h, which musl does not have. */
#define CAPABILITY_VERSION_3 0x20080522
struct capability_header {
    uint32_t version;
    int pid;
};
struct capability_data {
    uint32_t effective, permitted, inheritable;
};
enum {
    CAP_CHOWN_BIT = 0,
    CAP_DAC_OVERRIDE_BIT = 1,
    CAP_FOWNER_BIT = 3,
    CAP_FSETID_BIT = 4,
    CAP_KILL_BIT = 5,
    CAP_SETGID_BIT = 6,
    CAP_SETUID_BIT = 7,
    CAP_SETPCAP_BIT = 8,
    CAP_NET_BIND_SERVICE_BIT = 10,
    CAP_NET_RAW_BIT = 13,
    CAP_SYS_CHROOT_BIT = 18,
    CAP_MKNOD_BIT = 27,
    CAP_AUDIT_WRITE_BIT = 29,
    CAP_SETFCAP_BIT = 31,
    CAP_LAST_POSSIBLE = 63,
};

/*
 * The default set of Docker. The guest holds more than this, and that is a wall of its own: the kernel lets nobody
 * trace a process (or read its /proc/<pid>/fd, mem, environ) that has capabilities the tracer lacks. So even root
 * inside reaches neither PID 1 nor the cgroup descriptors in it.
 */
#define BIT(number) (1u << (number))
static const uint32_t root_capabilities =
    BIT(CAP_CHOWN_BIT) | BIT(CAP_DAC_OVERRIDE_BIT) | BIT(CAP_FOWNER_BIT) | BIT(CAP_FSETID_BIT) | BIT(CAP_KILL_BIT) |
    BIT(CAP_SETGID_BIT) | BIT(CAP_SETUID_BIT) | BIT(CAP_SETPCAP_BIT) | BIT(CAP_NET_BIND_SERVICE_BIT) |
    BIT(CAP_NET_RAW_BIT) | BIT(CAP_SYS_CHROOT_BIT) | BIT(CAP_MKNOD_BIT) | BIT(CAP_AUDIT_WRITE_BIT) |
    BIT(CAP_SETFCAP_BIT);

static void limit(int resource, rlim_t soft, rlim_t hard) {
    struct rlimit wanted = { .rlim_cur = soft, .rlim_max = hard };
    if (setrlimit(resource, &wanted) == 0) return;
    struct rlimit now;
    if (getrlimit(resource, &now) < 0) return;
    now.rlim_cur = soft < now.rlim_max ? soft : now.rlim_max;
    (void)setrlimit(resource, &now);
}

/*
 * As many CPUs as the budget pays for, so that nproc, Go, the JVM and the like start as many threads as can run.
 * Sandboxes start at different CPUs: else they would all sit on the first ones.
 */
static void choose_cpus(const struct guest *guest) {
    cpu_set_t usable;
    if (guest->budget.cpu_millis == 0 || sched_getaffinity(0, sizeof usable, &usable) < 0) return;
    uint64_t wanted = (guest->budget.cpu_millis + 999) / 1000;
    int count = CPU_COUNT(&usable);
    if (count <= 0 || wanted >= (uint64_t)count) return;
    uint64_t skip = guest->boot_ns / 1000 % (uint64_t)count;
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    for (size_t cpu = 0; wanted > 0; cpu = (cpu + 1) % CPU_SETSIZE) {
        if (!CPU_ISSET(cpu, &usable) || CPU_ISSET(cpu, &chosen)) continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        CPU_SET(cpu, &chosen);
        wanted--;
    }
    (void)sched_setaffinity(0, sizeof chosen, &chosen);
}

void confine_resources(const struct guest *guest) {
    if (guest->budget.pids > 0) limit(RLIMIT_NPROC, guest->budget.pids, guest->budget.pids);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_NOFILE, OPEN_FILES_SOFT, OPEN_FILES_HARD);
    choose_cpus(guest);
}

/*
 * File capabilities set on a writable directory of the host would hold outside, where its ids are the host's: without
 * SETFCAP nobody can set them. Where there is a way out, packets are the guest's to make: without NET_RAW nobody else can
 * forge them, or mark them as the guest does.
 */
static uint32_t capabilities_of_root(const struct guest *guest) {
    uint32_t kept = root_capabilities;
    if (guest->host_writable) kept &= ~BIT(CAP_SETFCAP_BIT);
    if (guest->egress.enabled) kept &= ~BIT(CAP_NET_RAW_BIT);
    return kept;
}

static bool drop_bounding_set(uint32_t kept) {
    for (int bit = 0; bit <= CAP_LAST_POSSIBLE; bit++) {
        if (bit < 32 && (kept & BIT(bit))) continue;
        if (prctl(PR_CAPBSET_DROP, bit, 0, 0, 0) == 0) continue;
        if (errno == EINVAL) break; /* beyond the last one this kernel knows */
        return false;
    }
    return true;
}

static bool set_capabilities(uint32_t wanted) {
    struct capability_header header = { .version = CAPABILITY_VERSION_3, .pid = 0 };
    struct capability_data data[2] = { { wanted, wanted, 0 }, { 0, 0, 0 } };
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL) return false;
    return syscall(SYS_capset, &header, data) == 0;
}

/* Raw calls: the C library's versions look after threads, and we have none. */
static bool change_ids(const struct user *user) {
    return syscall(SYS_setgroups, user->group_count, user->groups) == 0 &&
           syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
           syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0;
}

bool confine_identity(const struct guest *guest, const struct user *user) {
    /* A test run by an ordinary user can only stay who it is. */
    if (guest->outside && geteuid() != 0) {
        errno = EPERM;
        return user->uid == geteuid();
    }
    uint32_t of_root = capabilities_of_root(guest);
    if (!drop_bounding_set(of_root) || !change_ids(user)) return false;
    return set_capabilities(user->uid == 0 ? of_root : 0);
}

bool confine_worker(const struct guest *guest) {
    if (guest->outside) return true;
    uint32_t of_root = capabilities_of_root(guest);
    return drop_bounding_set(of_root) && set_capabilities(of_root) && confine_system_calls(guest);
}

bool confine_system_calls(const struct guest *guest) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && seccomp_install(guest->host_writable);
}
