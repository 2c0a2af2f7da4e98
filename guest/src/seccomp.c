#include "seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* From linux/filter.h, linux/seccomp.h and linux/audit.h, which musl does not have. */
struct bpf_instruction {
    uint16_t code;
    uint8_t if_true;
    uint8_t if_false;
    uint32_t k;
};
struct bpf_program {
    unsigned short length;
    struct bpf_instruction *instructions;
};
struct seccomp_call {
    int number;
    uint32_t arch;
    uint64_t instruction_pointer;
    uint64_t args[6];
};
#define BPF_LOAD_WORD 0x20      /* BPF_LD | BPF_W | BPF_ABS */
#define BPF_JUMP_EQUAL 0x15     /* BPF_JMP | BPF_JEQ | BPF_K */
#define BPF_JUMP_ANY_BIT 0x45   /* BPF_JMP | BPF_JSET | BPF_K */
#define BPF_RETURN 0x06         /* BPF_RET | BPF_K */
#define RETURN_KILL_PROCESS 0x80000000u
#define RETURN_ERRNO 0x00050000u
#define RETURN_ALLOW 0x7fff0000u
#define MODE_FILTER 2

#if defined(__x86_64__)
#define NATIVE_ARCH 0xc000003eu
#define X32_BIT 0x40000000u
#elif defined(__aarch64__)
#define NATIVE_ARCH 0xc00000b7u
#else
#error "no seccomp filter for this architecture"
#endif

/* Numbers from 424 on are the same everywhere; older headers lack the newest. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif

#define NEW_NAMESPACES 0x7e020000u /* CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET} */
#define NEW_TIME_NAMESPACE 0x80u   /* only for unshare: in clone these bits are the exit signal */
#define IOCTL_TIOCSTI 0x5412u
#define IOCTL_TIOCLINUX 0x541cu
#define SET_ID_BITS 06000u
#define TEMPORARY_FILE 020000000u /* the bit of O_TMPFILE that is not O_DIRECTORY */
#define FAMILY_UNIX 1u
#define FAMILY_INET 2u
#define FAMILY_INET6 10u
#define FAMILY_NETLINK 16u

static const uint16_t denied[] = {
    /* io_uring does I/O (even sockets) that no filter on system calls sees. */
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
    /* Kernel keyrings are not split by namespaces. */
    SYS_keyctl, SYS_add_key, SYS_request_key,
    /* Large and often broken parts of the kernel that no build or test needs. */
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    /* The kernel itself. */
    SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_syslog, SYS_acct,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_iopl
    SYS_iopl, SYS_ioperm,
#endif
    /* A file handle opens files outside the mount namespace (the "shocker" escape). */
    SYS_open_by_handle_at,
    /* Mounts: read-only binds stay read-only, /proc stays covered. */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_move_mount, SYS_open_tree, SYS_open_tree_attr, SYS_fsopen,
    SYS_fsmount, SYS_fsconfig, SYS_fspick, SYS_mount_setattr,
    /* Namespaces: in a new user namespace one is root again, with all the kernel surface that comes with it. */
    SYS_setns,
    /* The host's swap, clock and quotas. */
    SYS_swapon, SYS_swapoff, SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_quotactl,
    SYS_quotactl_fd,
    /* Relics. */
#ifdef SYS_lookup_dcookie
    SYS_lookup_dcookie,
#endif
#ifdef SYS_nfsservctl
    SYS_nfsservctl,
#endif
};

#define DENIED_COUNT (sizeof denied / sizeof denied[0])
#define PROGRAM_MAX (DENIED_COUNT * 2 + 144)

struct builder {
    struct bpf_instruction instructions[PROGRAM_MAX];
    unsigned short length;
};

static void emit(struct builder *builder, uint16_t code, uint8_t if_true, uint8_t if_false, uint32_t k) {
    if (builder->length < PROGRAM_MAX)
        builder->instructions[builder->length++] = (struct bpf_instruction){ code, if_true, if_false, k };
}

static void load_argument(struct builder *builder, unsigned index) {
    /* The low half: both architectures are little endian, and the kernel uses no more of these arguments. */
    emit(builder, BPF_LOAD_WORD, 0, 0, (uint32_t)(offsetof(struct seccomp_call, args) + 8 * index));
}

static void return_errno(struct builder *builder, int error) {
    emit(builder, BPF_RETURN, 0, 0, RETURN_ERRNO | (uint32_t)error);
}

static void deny_call(struct builder *builder, uint32_t number, int error) {
    emit(builder, BPF_JUMP_EQUAL, 0, 1, number);
    return_errno(builder, error);
}

/* `number` fails with EPERM if its argument has any of these bits; else it is allowed. */
static void deny_call_with_bits(struct builder *builder, uint32_t number, unsigned argument, uint32_t bits) {
    emit(builder, BPF_JUMP_EQUAL, 0, 4, number);
    load_argument(builder, argument);
    emit(builder, BPF_JUMP_ANY_BIT, 0, 1, bits);
    return_errno(builder, EPERM);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

/* `number` fails with EPERM unless its argument is 0. */
static void deny_call_unless_zero(struct builder *builder, uint32_t number, unsigned argument) {
    emit(builder, BPF_JUMP_EQUAL, 0, 4, number);
    load_argument(builder, argument);
    emit(builder, BPF_JUMP_EQUAL, 1, 0, 0);
    return_errno(builder, EPERM);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

/* `number` fails with EPERM if its argument is one of two values; else it is allowed. */
static void deny_call_with_values(struct builder *builder, uint32_t number, unsigned argument, uint32_t one,
                                  uint32_t other) {
    emit(builder, BPF_JUMP_EQUAL, 0, 5, number);
    load_argument(builder, argument);
    emit(builder, BPF_JUMP_EQUAL, 1, 0, one);
    emit(builder, BPF_JUMP_EQUAL, 0, 1, other);
    return_errno(builder, EPERM);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

/*
 * Sockets of the families that programs use. Of the others some pass by network namespaces (vsock), some have buffers that
 * no memory limit counts (packet), and all are kernel surface.
 */
static void allow_families(struct builder *builder, uint32_t number) {
    static const uint8_t families[] = { FAMILY_UNIX, FAMILY_INET, FAMILY_INET6, FAMILY_NETLINK };
    const uint8_t count = sizeof families;
    emit(builder, BPF_JUMP_EQUAL, 0, (uint8_t)(count + 3), number);
    load_argument(builder, 0);
    for (uint8_t i = 0; i < count; i++) emit(builder, BPF_JUMP_EQUAL, (uint8_t)(count - i), 0, families[i]);
    return_errno(builder, EAFNOSUPPORT);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

/* `number`, called to create (flags with O_CREAT or O_TMPFILE), fails with EPERM if the mode has set-id bits. */
static void deny_creation_with_set_id(struct builder *builder, uint32_t number, unsigned flags, unsigned mode) {
    emit(builder, BPF_JUMP_EQUAL, 0, 6, number);
    load_argument(builder, flags);
    emit(builder, BPF_JUMP_ANY_BIT, 0, 3, O_CREAT | TEMPORARY_FILE);
    load_argument(builder, mode);
    emit(builder, BPF_JUMP_ANY_BIT, 0, 1, SET_ID_BITS);
    return_errno(builder, EPERM);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

/*
 * A directory of the host that is writable inside has the host's ids: a set-id program left there by root inside would
 * be one of root's outside. In such a sandbox no file gets those bits. (They have no effect inside anyway.)
 */
static void deny_set_id(struct builder *builder) {
    deny_call_with_bits(builder, SYS_fchmod, 1, SET_ID_BITS);
    deny_call_with_bits(builder, SYS_fchmodat, 2, SET_ID_BITS);
    deny_call_with_bits(builder, SYS_fchmodat2, 2, SET_ID_BITS);
    deny_call_with_bits(builder, SYS_mknodat, 2, SET_ID_BITS);
    deny_creation_with_set_id(builder, SYS_openat, 2, 3);
#ifdef SYS_open
    deny_call_with_bits(builder, SYS_chmod, 1, SET_ID_BITS);
    deny_call_with_bits(builder, SYS_mknod, 1, SET_ID_BITS);
    deny_call_with_bits(builder, SYS_creat, 1, SET_ID_BITS);
    deny_creation_with_set_id(builder, SYS_open, 1, 2);
#endif
    /* Its mode is in memory, where a filter cannot look. On ENOSYS programs use openat. */
    deny_call(builder, SYS_openat2, ENOSYS);
}

static void build(struct builder *builder, bool host_writable) {
    builder->length = 0;
    /* Another architecture's numbers would mean other calls than those we name. */
    emit(builder, BPF_LOAD_WORD, 0, 0, (uint32_t)offsetof(struct seccomp_call, arch));
    emit(builder, BPF_JUMP_EQUAL, 1, 0, NATIVE_ARCH);
    emit(builder, BPF_RETURN, 0, 0, RETURN_KILL_PROCESS);
    emit(builder, BPF_LOAD_WORD, 0, 0, (uint32_t)offsetof(struct seccomp_call, number));
#ifdef X32_BIT
    emit(builder, BPF_JUMP_ANY_BIT, 0, 1, X32_BIT);
    return_errno(builder, ENOSYS);
#endif
    for (size_t i = 0; i < DENIED_COUNT; i++) deny_call(builder, denied[i], EPERM);
    /* Its flags are in memory, where a filter cannot look. On ENOSYS libc uses clone. */
    deny_call(builder, SYS_clone3, ENOSYS);
    deny_call_with_bits(builder, SYS_clone, 0, NEW_NAMESPACES);
    deny_call_with_bits(builder, SYS_unshare, 0, NEW_NAMESPACES | NEW_TIME_NAMESPACE);
    /* Typing into somebody else's terminal (CVE-2017-5226), and its cousin on consoles. */
    deny_call_with_values(builder, SYS_ioctl, 1, IOCTL_TIOCSTI, IOCTL_TIOCLINUX);
    allow_families(builder, SYS_socket);
    allow_families(builder, SYS_socketpair);
    /* Root inside has the guest's uid, which is all that this call asks for: it could starve PID 1 of descriptors. */
    deny_call_unless_zero(builder, SYS_prlimit64, 0);
    /* The host has one budget of these requests for everybody (fs.aio-max-nr). On ENOSYS programs use threads. */
    deny_call(builder, SYS_io_setup, ENOSYS);
    if (host_writable) deny_set_id(builder);
    emit(builder, BPF_RETURN, 0, 0, RETURN_ALLOW);
}

bool seccomp_install(bool host_writable) {
    struct builder builder;
    build(&builder, host_writable);
    struct bpf_program program = { .length = builder.length, .instructions = builder.instructions };
    return prctl(PR_SET_SECCOMP, MODE_FILTER, &program, 0, 0) == 0;
}
