/*
 * holdfast-launch: what must be done as the host's root, outside the sandbox, and cannot be done from Node.
 *
 *   holdfast-launch start …        becomes a sandbox: see start.c for the ordered list of steps
 *   holdfast-launch disk-remove …  drops a sandbox's disk
 *   holdfast-launch disk-usage …   counts what a disk holds (pools without quotas)
 *   holdfast-launch disk-limit …   changes the quota of a disk
 *   holdfast-launch disk-settle …  brings the count of a disk's quota up to date
 *   holdfast-launch disk-clone …   syncs a disk and makes another of it that shares its blocks
 *   holdfast-launch disk-copy …    makes another disk of it where blocks cannot be shared
 *   holdfast-launch layer-make …   makes an empty layer
 *   holdfast-launch layer-finish … makes a layer of a disk, and makes it last
 *   holdfast-launch layer-id …     says what the quota group of a layer is called
 *   holdfast-launch seed-make …    makes what new layers' inode numbers begin at
 *   holdfast-launch quota-enable … turns quotas on in a btrfs pool
 *   holdfast-launch reclaim …      makes the kernel take back memory of a cgroup, for a bounded time
 *   holdfast-launch watch          tells of cgroups that run short of memory, as long as its stdin is open
 *
 * Every failure is one line on the status descriptor (start) or stderr (the others): `failed step: what: why`, exit 125.
 */
#ifndef HOLDFAST_LAUNCH_H
#define HOLDFAST_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Ids in every sandbox: enough for any image's /etc/passwd, and nobody (65534). */
#define IDS_PER_SANDBOX 65536

/* Where die() reports; stderr until start() learns of a better place. */
extern int report_fd;
_Noreturn void die(const char *step, const char *what);

/* disk.c */
uint64_t subvolume_id(int fd, const char *path);
int open_parent(const char *path, char *copy, size_t size, const char **name);
void subvolume_create(int parent, const char *name, const char *path);
void set_limit(int fd, const char *path, uint64_t limit_bytes);
int remove_tree_at(int parent, const char *name);
uint64_t disk_make(const char *path, uint64_t limit_bytes, uid_t guest_uid);
uint64_t disk_reuse(const char *path, uint64_t limit_bytes, uid_t guest_uid);
/* Makes a disk of a layer, to be taken with disk_reuse. */
void disk_clone(const char *from, const char *path);
void disk_confine(const char *path, uint64_t limit_bytes);
int disk_remove_main(const char *path);
int disk_usage_main(const char *path);
int disk_limit_main(const char *path, uint64_t limit_bytes);
int disk_settle_main(const char *path);
int quota_enable_main(const char *path);

/* layer.c */
int disk_clone_main(const char *from, const char *path);
int disk_copy_main(const char *from, const char *path);
int layer_make_main(const char *path, const char *kind, const char *seed);
int layer_finish_main(const char *path, const char *kind, const char *state, const char *seed, const char *fresh);
int open_directory(const char *step, const char *path);
/* Becomes cp. */
_Noreturn void copy_tree(const char *source, const char *target);

/* numbers.c */
int seed_make_main(const char *pool);
void number_layer(const char *path, const char *seed, const char *fresh);
int layer_id_main(const char *path);

/* watch.c */
int watch_main(void);

/* userns.c: a descriptor of a user namespace that maps 0..65535 inside to base.. outside, owned by `base`. */
int userns_create(uid_t base);

/* mounts.c */
struct staged_mount {
    const char *name;
    const char *source;
    bool read_only;
    bool idmapped;
    bool no_links; /* the source must not be, or lie behind, a symbolic link */
    bool is_directory; /* found out when opened */
    int tree_fd;
};
struct staged_overlay {
    const char *name;
    char *lowers;      /* names of staged mounts, joined by ':' */
    const char *upper; /* name of a staged mount that holds upper/ and work/; "" for a read-only overlay */
};
/* A staged mount that is to stand inside another: `name` goes to `directory`, one component, of `into`. */
struct nested_mount {
    const char *name;
    const char *into;
    const char *directory;
};
int open_detached(const char *path, bool no_links);
void mounts_open(struct staged_mount *mounts, size_t count, int userns_fd);
/* Enters the stage. */
void mounts_stage(const char *stage);
void mounts_place(uid_t ids, struct staged_mount *mounts, size_t count, struct staged_overlay *overlays,
                  size_t overlay_count);
void mounts_nest(const struct nested_mount *nested, size_t count);

/* dev.c */
void dev_make(const char *name, uid_t owner, uint64_t shm_bytes);

/* reclaim.c: writes `value` to a cgroup's file that reclaims, and gives up after `limit_ms`. */
int reclaim_main(const char *file, const char *value, uint64_t limit_ms, pid_t parent);

/* start.c */
_Noreturn void start_main(int argc, char **argv);

#endif
