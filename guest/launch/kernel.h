/*
 * The few kernel interfaces that musl's headers do not carry. Numbers and layouts are the kernel's ABI and never change.
 */
#ifndef HOLDFAST_LAUNCH_KERNEL_H
#define HOLDFAST_LAUNCH_KERNEL_H

#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#define OPEN_TREE_CLONE 1u
#define MOVE_MOUNT_F_EMPTY_PATH 0x4u
#define MOVE_MOUNT_T_EMPTY_PATH 0x40u
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

#define SECBIT_NO_SETUID_FIXUP (1 << 2)

#define MOUNT_ATTR_RDONLY 0x00000001
#define MOUNT_ATTR_NOSUID 0x00000002
#define MOUNT_ATTR_NODEV 0x00000004
#define MOUNT_ATTR_IDMAP 0x00100000

#define RESOLVE_NO_SYMLINKS 0x04u
struct open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

struct mount_attr {
    uint64_t attr_set;
    uint64_t attr_clr;
    uint64_t propagation;
    uint64_t userns_fd;
};

/* btrfs: make a subvolume, clone it, limit it, drop it. */
#define BTRFS_SUPER_MAGIC_NUMBER 0x9123683eL
#define BTRFS_PATH_NAME_MAX 4087
#define BTRFS_QGROUP_LIMIT_MAX_RFER (1ULL << 0)
#define BTRFS_QGROUP_NO_LIMIT (~0ULL)

struct btrfs_ioctl_vol_args {
    int64_t fd;
    char name[BTRFS_PATH_NAME_MAX + 1];
};

struct btrfs_qgroup_limit {
    uint64_t flags, max_rfer, max_excl, rsv_rfer, rsv_excl;
};

struct btrfs_ioctl_qgroup_limit_args {
    uint64_t qgroupid; /* 0: the subvolume of the descriptor */
    struct btrfs_qgroup_limit limit;
};

struct btrfs_ioctl_quota_ctl_args {
    uint64_t cmd, status;
};
#define BTRFS_QUOTA_CTL_ENABLE 1

#define BTRFS_FIRST_FREE_OBJECTID 256ULL
struct btrfs_ioctl_ino_lookup_args {
    uint64_t treeid;
    uint64_t objectid;
    char name[4080];
};
#define BTRFS_IOC_INO_LOOKUP _IOWR(0x94, 18, struct btrfs_ioctl_ino_lookup_args)

/* Of a snapshot: the source by descriptor, the name in the directory that the call is made on. */
struct btrfs_ioctl_vol_args_v2 {
    int64_t fd;
    uint64_t transid;
    uint64_t flags;
    uint64_t unused[4];
    char name[4040];
};

#define BTRFS_IOC_SUBVOL_CREATE _IOW(0x94, 14, struct btrfs_ioctl_vol_args)
#define BTRFS_IOC_SNAP_DESTROY _IOW(0x94, 15, struct btrfs_ioctl_vol_args)
#define BTRFS_IOC_SNAP_CREATE_V2 _IOW(0x94, 23, struct btrfs_ioctl_vol_args_v2)
#define BTRFS_IOC_QUOTA_CTL _IOWR(0x94, 40, struct btrfs_ioctl_quota_ctl_args)
#define BTRFS_IOC_QGROUP_LIMIT _IOR(0x94, 43, struct btrfs_ioctl_qgroup_limit_args)

#endif
