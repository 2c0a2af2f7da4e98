/*
 * WATCH: what changes in a directory, and with RECURSIVE in all below it.
 *
 * Watches belong to inodes, names to us: for each watched directory there is a node that knows its name and its parent's
 * watch. inotify answers the same watch number for a directory that is already watched; so after a rename it is enough to
 * add the watch again at the new place and see which node it is. sync_tree() does this for a whole subtree, and it is the
 * only way directories get watched: at the start, when one appears, when one was moved in, after an overflow.
 *
 * No gap: a new directory is watched first and read after, and what is read is reported as created. What appears between
 * the two is met twice; the `seen` table keeps the kernel's own CREATE for it from being sent again.
 *
 * Descriptors are held only while a subtree is read: an open directory would delay the news of its own removal.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "file-internal.h"
#include "file-walk.h"
#include "file-watch-nodes.h"
#include "file-watch-seen.h"

/* A system call changes the tree a moment before it queues the event; so long we wait before we believe the queue. */
#define SETTLE_MS 20
#define SYNC_TRIES 10
#define PEER_CHECK_EVERY 256
#define WATCH_MASK                                                                                                   \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

static struct watcher {
    struct worker *worker;
    int inotify;
    const char *path;
    bool recursive;
    dev_t device; /* of the root */
    ino_t inode;
    int parent; /* the watch on the directory the root stands in; -1 if none */
    char root_name[NAME_MAX + 1];
    int64_t last_sync_ms;
    uint32_t replacing; /* the cookie of a rename that puts a file of our own writing in another one's place; 0 if none */
} watcher;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void emit(uint64_t event, const char *name) {
    struct message message;
    message_begin(&message, FRAME_NOTE, 0, watcher.worker->stream);
    message_u64(&message, FIELD_NOTE_KIND, NOTE_EVENT);
    message_u64(&message, FIELD_EVENT, event);
    message_text(&message, FIELD_NAME, name);
    worker_send(watcher.worker, &message);
}

/* All that has happened so far has been told. */
static void emit_ready(void) {
    struct message message;
    message_begin(&message, FRAME_NOTE, 0, watcher.worker->stream);
    message_u64(&message, FIELD_NOTE_KIND, NOTE_READY);
    worker_send(watcher.worker, &message);
}

/* The watched directory itself is gone from its place. */
static void __attribute__((noreturn)) finish(uint64_t event) {
    emit(event, "");
    worker_done_empty(watcher.worker);
}

/* ---- watching directories ---- */

/* Nothing is announced there, and there is a great deal of it. */
static bool is_kernel_made(int fd) {
    struct statfs status;
    if (fstatfs(fd, &status) < 0) return false;
    switch ((unsigned long)status.f_type) {
        case 0x9fa0UL:     /* proc */
        case 0x62656572UL: /* sysfs */
        case 0x27e0ebUL:   /* cgroup */
        case 0x63677270UL: /* cgroup2 */
            return true;
        default: return false;
    }
}

/* `fallback` is the path to use where there is no /proc: then a rename in this moment could mislead us. */
static int watch_fd(int fd, const char *fallback, uint32_t mask, int *watch) {
    char proc[32];
    *watch = inotify_add_watch(watcher.inotify, path_of_fd(fd, proc) ? proc : fallback, mask);
    return *watch < 0 ? errno : 0;
}

/* The directory at `relative` below the root, never through a link. */
static int open_below(const char *relative, int *out) {
    int fd = open(watcher.path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno;
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_dev != watcher.device || status.st_ino != watcher.inode) {
        close(fd);
        return ESTALE;
    }
    while (*relative) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(relative, "/");
        memcpy(name, relative, length); /* a node's name: not longer than NAME_MAX */
        name[length] = 0;
        relative += length + (relative[length] ? 1 : 0);
        int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        int error = errno;
        close(fd);
        if (next < 0) return error;
        fd = next;
    }
    *out = fd;
    return 0;
}

/* Then somebody has written to it, whether or not we were there to see. */
static bool has_content(int directory, const char *name) {
    struct stat status;
    return fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_size > 0;
}

struct place {
    int watch;
    bool report;
};

/*
 * Watches the directory open at `fd` (taken), called `name` in `parent`, and all directories below it. What stands in
 * newly watched ones is reported if `report`. ENOSPC: there are more than can be watched. EBUSY: directories were moved
 * under us, and part of the tree was not seen.
 */
static int sync_tree(int fd, int parent, const char *name, const char *relative, bool report) {
    struct place *places = NULL;
    size_t capacity = 0;
    uint64_t steps = 0;
    struct walk walk;
    int error = walk_begin(&walk, fd, relative);
    if (error) return error;
    bool entered = true; /* the walk stands in a directory that is not watched yet */
    const char *entered_name = name;
    while (!error) {
        size_t depth = walk.chain.count;
        if (entered) {
            entered = false;
            if (depth > capacity) {
                capacity = capacity ? capacity * 2 : 32;
                struct place *grown = realloc(places, capacity * sizeof *places);
                if (!grown) {
                    error = ENOMEM;
                    break;
                }
                places = grown;
            }
            bool is_new = false;
            int watch;
            error = watch_fd(chain_fd(&walk.chain), watcher.path, WATCH_MASK, &watch);
            if (!error) error = node_put(watch, depth > 1 ? places[depth - 2].watch : parent, entered_name, &is_new);
            if (error) break;
            places[depth - 1] = (struct place){ watch, report && is_new };
        }
        struct walk_item item;
        if (++steps % PEER_CHECK_EVERY == 0) worker_check_peer(watcher.worker);
        walk_next(&walk, &item);
        if (item.kind == WALK_END) break;
        if (item.kind == WALK_FAILED) {
            error = item.error;
            break;
        }
        if (item.kind == WALK_UNREADABLE) walk_skip(&walk);
        if (item.kind != WALK_ENTRY) continue;
        const struct place *place = &places[depth - 1];
        if (place->report && path_temp_kind(item.name) == TEMP_NOT) {
            const char *path = walk_path(&walk);
            /* At the top the walk's root has no name, and its paths begin with a slash. */
            if (path && strlen(path) <= ENTRY_PATH_MAX) {
                const char *reported = path[0] == '/' ? path + 1 : path;
                emit(WATCH_EVENT_CREATE, reported);
                seen_add(place->watch, item.name);
                if (item.type == DT_REG && has_content(chain_fd(&walk.chain), item.name)) emit(WATCH_EVENT_WRITE, reported);
            }
        }
        if (!watcher.recursive || (item.type != DT_DIR && item.type != DT_UNKNOWN)) continue;
        int result = walk_descend(&walk, false);
        if (result == ENOMEM || result == EMFILE || result == ENFILE) error = result;
        if (result) continue; /* gone, not a directory, not ours to read, too deep to name */
        if (is_kernel_made(chain_fd(&walk.chain))) {
            walk_skip(&walk);
            continue;
        }
        entered = true;
        entered_name = walk.name;
    }
    walk_free(&walk);
    free(places);
    watcher.last_sync_ms = now_ms();
    return error;
}

/* The whole tree, again if it was being turned over meanwhile. */
static int sync_all(bool report) {
    int error = EBUSY;
    for (int tries = 0; error == EBUSY && tries < SYNC_TRIES; tries++) {
        int fd;
        error = open_below("", &fd);
        if (!error) error = sync_tree(fd, -1, "", "", report);
    }
    return error;
}

/* After lost events: whatever the tree is now, watch that. */
static void resync(void) {
    emit(WATCH_EVENT_OVERFLOW, "");
    seen_clear();
    node_table.generation++;
    if (sync_all(true) == 0) drop_nodes(watcher.inotify, true);
}

static void sync_below(const struct node *parent, const char *name) {
    const char *path = node_path(parent, name);
    if (!path) return;
    char *relative = strdup(path); /* node_path's buffer is used again below */
    int fd;
    int error = relative ? open_below(relative, &fd) : ENOMEM;
    if (!error) error = sync_tree(fd, parent->watch, name, relative, true);
    free(relative);
    /* Gone again, or renamed: the next events say so. */
    if (error == ENOENT || error == ENOTDIR || error == ELOOP) return;
    if (error == EBUSY) resync();
    else if (error) emit(WATCH_EVENT_OVERFLOW, "");
}

/* ---- events ---- */

static void handle_parent(const struct inotify_event *event) {
    if (event->len == 0 || strcmp(event->name, watcher.root_name) != 0) return;
    /* MOVED_TO: something else was put in its place. */
    if (event->mask & (IN_DELETE | IN_MOVED_TO)) finish(WATCH_EVENT_REMOVE);
    if (event->mask & IN_MOVED_FROM) finish(WATCH_EVENT_RENAME);
}

static void handle_appeared(struct node *node, const struct inotify_event *event, const char *path) {
    bool reported = seen_take(event->wd, event->name);
    /* Only a creation can be the same news twice; a file that was moved over another one is news. */
    if (reported && (event->mask & IN_CREATE)) return;
    emit(WATCH_EVENT_CREATE, path);
    if (watcher.recursive && (event->mask & IN_ISDIR)) sync_below(node, event->name);
}

/* A file without a name (O_TMPFILE) is called by its number in events. Nobody can find it, so nobody wants to hear of it. */
static bool is_nameless(const char *name, const char *path) {
    if (name[0] != '#' || name[1] == 0 || name[1 + strspn(name + 1, "0123456789")] != 0) return false;
    char full[PATH_MAX];
    struct stat status;
    if (snprintf(full, sizeof full, "%s/%s", watcher.path, path) >= (int)sizeof full) return false;
    return lstat(full, &status) < 0 && errno == ENOENT;
}

/* Names that files have only while they are being written by us. */
static bool is_ours(const struct inotify_event *event) {
    enum temp_kind kind = path_temp_kind(event->name);
    if (kind == TEMP_REPLACING && (event->mask & IN_MOVED_FROM)) watcher.replacing = event->cookie;
    return kind != TEMP_NOT;
}

static void handle(const struct inotify_event *event) {
    if (event->mask & IN_Q_OVERFLOW) {
        resync();
        return;
    }
    if (event->wd == watcher.parent) {
        handle_parent(event);
        return;
    }
    if (event->wd == node_table.root) {
        if (event->mask & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)) finish(WATCH_EVENT_REMOVE);
        if (event->mask & IN_MOVE_SELF) finish(WATCH_EVENT_RENAME);
    }
    if (event->mask & IN_IGNORED) {
        node_forget(event->wd);
        return;
    }
    struct node *node = node_find(event->wd);
    /* Without a name: about the directory itself; its parent's watch says the same with the name. */
    if (!node || event->len == 0 || event->name[0] == 0) return;
    if (is_ours(event)) return;
    const char *path = node_path(node, event->name);
    if (!path || is_nameless(event->name, path)) return;

    if ((event->mask & IN_MOVED_TO) && watcher.replacing != 0 && event->cookie == watcher.replacing) return;
    if (event->mask & (IN_CREATE | IN_MOVED_TO)) handle_appeared(node, event, path);
    if (event->mask & IN_MODIFY) emit(WATCH_EVENT_WRITE, path);
    if (event->mask & IN_ATTRIB) emit(WATCH_EVENT_CHMOD, path);
    if (event->mask & IN_DELETE) {
        seen_take(event->wd, event->name);
        emit(WATCH_EVENT_REMOVE, path);
    }
    if (event->mask & IN_MOVED_FROM) {
        seen_take(event->wd, event->name);
        emit(WATCH_EVENT_RENAME, path);
        struct node *moved = watcher.recursive && (event->mask & IN_ISDIR) ? node_child(event->wd, event->name) : NULL;
        if (moved && !moved->detached) {
            moved->detached = true;
            node_table.detached_count++;
        }
    }
}

static void read_events(void) {
    static _Alignas(struct inotify_event) char buffer[65536];
    for (;;) {
        ssize_t got = read(watcher.inotify, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return;
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)(buffer + at);
            at += (ssize_t)(sizeof *event + event->len);
            handle(event);
        }
    }
}

/* The host's frames, which are nothing but EOFs: each asks for what has happened until now, and to be told when that is it. */
static void answer_host(void) {
    static size_t received; /* of headers that came in part */
    uint8_t bytes[64 * HEADER_BYTES];
    ssize_t got = recv(watcher.worker->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) worker_vanish();
    if (got < 0) return;
    received += (size_t)got;
    read_events();
    for (; received >= HEADER_BYTES; received -= HEADER_BYTES) emit_ready();
}

static void __attribute__((noreturn)) run(void) {
    for (;;) {
        bool unsettled = node_table.detached_count > 0 || seen_any();
        struct pollfd fds[2] = {
            { .fd = watcher.inotify, .events = POLLIN },
            { .fd = watcher.worker->socket, .events = POLLIN | POLLRDHUP },
        };
        int ready = poll(fds, 2, unsettled ? SETTLE_MS : -1);
        if (ready < 0 && errno != EINTR) worker_fail_path(watcher.worker, errno, watcher.path);
        if (fds[1].revents & (POLLHUP | POLLERR | POLLRDHUP | POLLNVAL)) worker_vanish();
        if (fds[1].revents & POLLIN) answer_host();
        if (fds[0].revents & POLLIN) read_events();
        /* The queue has been read to its end since. */
        if (now_ms() - watcher.last_sync_ms >= SETTLE_MS) seen_clear();
        if (ready == 0 && node_table.detached_count > 0) drop_nodes(watcher.inotify, false);
    }
}

/* Its own watch tells of a removal only when nobody has it open or as his working directory; its parent's tells at once. */
static void watch_parent(int fd) {
    char proc[32], path[PATH_MAX];
    watcher.parent = -1;
    if (!path_of_fd(fd, proc)) return;
    ssize_t length = readlink(proc, path, sizeof path - 1);
    if (length <= 1) return; /* "/" has no parent */
    path[length] = 0;
    const char *name = path_name(path);
    if (path[0] != '/' || strlen(name) > NAME_MAX) return;
    strcpy(watcher.root_name, name);
    int parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return;
    watch_fd(parent, "/", IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR, &watcher.parent);
    close(parent);
}

void file_watch(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    watcher.worker = worker;
    watcher.path = path;
    watcher.recursive = fields_u64(worker->payload, worker->length, FIELD_RECURSIVE, 0) != 0;

    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        struct stat status;
        if (error == ENOTDIR && stat(path, &status) == 0) worker_fail(worker, error, "path '%s' is not a directory", path);
        worker_fail_path(worker, error, path);
    }
    struct stat status;
    if (fstat(fd, &status) < 0) worker_fail_path(worker, errno, path);
    watcher.device = status.st_dev;
    watcher.inode = status.st_ino;
    watcher.inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watcher.inotify < 0 && (errno == EMFILE || errno == ENFILE))
        worker_fail(worker, errno, "too many watches are running: fs.inotify.max_user_instances is used up");
    if (watcher.inotify < 0) worker_fail_path(worker, errno, path);

    watch_parent(fd);
    int error = watch_fd(fd, path, WATCH_MASK, &node_table.root);
    if (node_table.root == watcher.parent) watcher.parent = -1;
    if (!error && watcher.recursive) {
        error = sync_all(false);
    } else if (!error) {
        bool is_new;
        error = node_put(node_table.root, -1, "", &is_new);
    }
    close(fd);
    if (error == ENOSPC)
        worker_fail(worker, error, "too many directories to watch below path '%s' (at most %d, and "
                    "fs.inotify.max_user_watches)", path, WATCH_DIRECTORIES_MAX);
    if (error) worker_fail_path(worker, error, path);

    emit_ready();
    run();
}
