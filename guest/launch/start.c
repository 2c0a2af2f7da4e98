/*
 * holdfast-launch start: this process becomes bubblewrap. The steps, in order:
 *
 *  1. join the sandbox's cgroups, so that whatever happens next is inside its budget and dies with its cgroup;
 *  2. close every descriptor that is not ours; reset oom_score_adj;
 *  3. make the sandbox's disk, if asked (a btrfs subvolume with its quota, perhaps the clone of a layer, or plain
 *     directories), or take the one of a stopped sandbox again;
 *  4. make the user namespace;
 *  5. make the listening socket and open what else the guest is handed as a descriptor;
 *  6. open and id-map every source, enter a mount namespace of our own, place the sources, mount the overlays and make
 *     /dev there: no mount can leak, all go when the last process in the namespace goes;
 *  7. become the sandbox's uid, for good;
 *  8. exec bubblewrap.
 *
 * Nothing untrusted has run until step 8, and nothing is moved into a cgroup after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "kernel.h"
#include "launch.h"

#define MOST 256 /* the layers of an image, and what else is mounted */
#define FIRST_PLAIN_FD 64 /* our own descriptors are kept above those handed down, which the caller numbers */

struct request {
    const char *join[16];
    size_t join_count;
    uid_t uid_base;
    int userns_number;
    const char *socket_path;
    int socket_number;
    struct {
        const char *path;
        int number;
        bool is_directory;
    } opened[16];
    size_t opened_count;
    const char *disk_path;
    uint64_t disk_limit;
    bool disk_exists;
    const char *disk_source; /* the layer that a new disk is cloned from */
    const char *stage;
    struct staged_mount mounts[MOST];
    size_t mount_count;
    struct staged_overlay overlays[8];
    size_t overlay_count;
    struct nested_mount nested[16];
    size_t nested_count;
    const char *dev_name;
    uint64_t shm_bytes;
    char **command;
};

static _Noreturn void bad_argument(const char *what) {
    errno = EINVAL;
    die("arguments", what);
}

static uint64_t parse_number(const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != 0) bad_argument(text);
    return value;
}

static void parse_flags(struct staged_mount *mount, const char *flags) {
    mount->read_only = strstr(flags, "ro") != NULL;
    mount->idmapped = strstr(flags, "idmap") != NULL;
    mount->no_links = strstr(flags, "nolinks") != NULL;
}

/* Each option takes a fixed number of values; the order of options does not matter. */
static void parse(struct request *request, int argc, char **argv) {
    int i = 0;
#define TAKES(option, values) (strcmp(argv[i], option) == 0 && (i + (values) < argc || (bad_argument(option), false)))
    while (i < argc) {
        if (TAKES("--status-fd", 1)) {
            report_fd = (int)parse_number(argv[i + 1]);
            i += 2;
        } else if (TAKES("--join", 1)) {
            if (request->join_count == 16) bad_argument("--join");
            request->join[request->join_count++] = argv[i + 1];
            i += 2;
        } else if (TAKES("--userns", 2)) {
            request->uid_base = (uid_t)parse_number(argv[i + 1]);
            request->userns_number = (int)parse_number(argv[i + 2]);
            i += 3;
        } else if (TAKES("--listen", 2)) {
            request->socket_path = argv[i + 1];
            request->socket_number = (int)parse_number(argv[i + 2]);
            i += 3;
        } else if (TAKES("--dir", 2) || TAKES("--file", 2)) {
            if (request->opened_count == 16) bad_argument(argv[i]);
            size_t at = request->opened_count++;
            request->opened[at].is_directory = strcmp(argv[i], "--dir") == 0;
            request->opened[at].path = argv[i + 1];
            request->opened[at].number = (int)parse_number(argv[i + 2]);
            i += 3;
        } else if (TAKES("--disk", 2) || TAKES("--old-disk", 2)) {
            request->disk_exists = strcmp(argv[i], "--old-disk") == 0;
            request->disk_path = argv[i + 1];
            request->disk_limit = parse_number(argv[i + 2]);
            i += 3;
        } else if (TAKES("--disk-from", 1)) {
            request->disk_source = argv[i + 1];
            i += 2;
        } else if (TAKES("--stage", 1)) {
            request->stage = argv[i + 1];
            i += 2;
        } else if (TAKES("--mount", 3)) {
            if (request->mount_count == MOST) bad_argument("--mount");
            struct staged_mount *mount = &request->mounts[request->mount_count++];
            mount->name = argv[i + 1];
            mount->source = argv[i + 2];
            parse_flags(mount, argv[i + 3]);
            i += 4;
        } else if (TAKES("--overlay", 3)) {
            if (request->overlay_count == 8) bad_argument("--overlay");
            struct staged_overlay *overlay = &request->overlays[request->overlay_count++];
            overlay->name = argv[i + 1];
            overlay->lowers = argv[i + 2];
            overlay->upper = argv[i + 3];
            i += 4;
        } else if (TAKES("--dev", 2)) {
            request->dev_name = argv[i + 1];
            request->shm_bytes = parse_number(argv[i + 2]);
            i += 3;
        } else if (TAKES("--nest", 3)) {
            if (request->nested_count == 16) bad_argument("--nest");
            struct nested_mount *nested = &request->nested[request->nested_count++];
            nested->name = argv[i + 1];
            nested->into = argv[i + 2];
            nested->directory = argv[i + 3];
            i += 4;
        } else if (strcmp(argv[i], "--") == 0 && i + 1 < argc) {
            request->command = argv + i + 1;
            break;
        } else {
            bad_argument(argv[i]);
        }
    }
#undef TAKES
    if (!request->command || !request->stage || request->uid_base < IDS_PER_SANDBOX) bad_argument("incomplete request");
}

static void write_file(const char *step, const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) die(step, path);
    close(fd);
}

/* Gives a descriptor the number it was promised, and lets it through exec. */
static void hand_down(int fd, int number) {
    if (number < 3 || number >= FIRST_PLAIN_FD) bad_argument("descriptor number");
    if (dup2(fd, number) < 0) die("hand down", "descriptor");
    close(fd);
}

static int keep_above(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_PLAIN_FD);
    if (moved < 0) die("descriptors", "dup");
    close(fd);
    return moved;
}

static int listen_at(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        die("socket", path);
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) die("socket", path);
    mode_t before = umask(0177); /* only the host's root may connect */
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0) die("socket", path);
    umask(before);
    if (listen(fd, 64) < 0) die("socket", path);
    return fd;
}

_Noreturn void start_main(int argc, char **argv) {
    static struct request request;
    parse(&request, argc, argv);

    for (size_t i = 0; i < request.join_count; i++) write_file("join cgroup", request.join[i], "0");

    /* The status descriptor must not reach bubblewrap: its closing by exec is how the caller knows that we got there. */
    report_fd = keep_above(report_fd);
    syscall(SYS_close_range, 3u, (unsigned)report_fd - 1, 0u);
    syscall(SYS_close_range, (unsigned)report_fd + 1, ~0u, 0u);
    /*
     * Before anything of the host's. It is also the floor that all children inherit, below which none can go again: a
     * lower one, for the guest's sake, would let any command make itself unkillable.
     */
    write_file("oom_score_adj", "/proc/self/oom_score_adj", "300");
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    umask(022);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    if (request.disk_path) {
        if (request.disk_source) {
            disk_clone(request.disk_source, request.disk_path);
            request.disk_exists = true;
        }
        uint64_t id = (request.disk_exists ? disk_reuse : disk_make)(request.disk_path, request.disk_limit,
                                                                     request.uid_base);
        if (dprintf(report_fd, "disk %llu\n", (unsigned long long)id) < 0) _exit(124);
    }
    int userns = keep_above(userns_create(request.uid_base));
    int listener = keep_above(listen_at(request.socket_path));
    int opened[16];
    for (size_t i = 0; i < request.opened_count; i++) {
        const char *path = request.opened[i].path;
        /* A directory goes down detached from its mount namespace, or `..` would lead from it to the host's root. */
        int fd = request.opened[i].is_directory ? open_detached(path, false) : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) die("open", path);
        opened[i] = keep_above(fd);
    }

    mounts_open(request.mounts, request.mount_count, userns);
    if (unshare(CLONE_NEWNS) < 0) die("mount namespace", "unshare");
    /* Nothing of ours goes out; what the host unmounts goes here too, so that we keep no device of its busy. */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) die("mount namespace", "make slave");
    mounts_stage(request.stage);
    mounts_place(request.uid_base, request.mounts, request.mount_count, request.overlays, request.overlay_count);
    if (request.dev_name) dev_make(request.dev_name, request.uid_base, request.shm_bytes);
    mounts_nest(request.nested, request.nested_count);
    if (request.disk_exists) disk_confine(request.disk_path, request.disk_limit);
    if (chdir("/") < 0) die("stage", "/");

    hand_down(userns, request.userns_number);
    hand_down(listener, request.socket_number);
    for (size_t i = 0; i < request.opened_count; i++) hand_down(opened[i], request.opened[i].number);

    if (setgroups(0, NULL) < 0) die("become the sandbox's uid", "setgroups");
    if (setresgid(request.uid_base, request.uid_base, request.uid_base) < 0) die("become the sandbox's uid", "gid");
    if (setresuid(request.uid_base, request.uid_base, request.uid_base) < 0) die("become the sandbox's uid", "uid");
    execv(request.command[0], request.command);
    die("exec", request.command[0]);
}
