/* LIST: the entries below a directory, streamed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "file-internal.h"
#include "file-walk.h"

/* Gone meanwhile, no directory any more, or closed even to us: its own entry was sent, and the list goes on. */
static bool can_skip(int error) {
    return error == ENOENT || error == ENOTDIR || error == ELOOP || error == EACCES || error == EPERM || error == ESRCH;
}

void file_list(struct worker *worker) {
    char *path = path_request(worker, FIELD_PATH);
    uint64_t depth = fields_u64(worker->payload, worker->length, FIELD_DEPTH, 1);
    if (depth == 0) depth = 1;

    int root = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (root < 0) {
        int error = errno;
        struct stat status;
        if (error == ENOTDIR && stat(path, &status) == 0) worker_fail(worker, error, "path '%s' is not a directory", path);
        worker_fail_path(worker, error, path);
    }
    struct walk walk;
    int error = walk_begin(&walk, root, path);
    if (error) worker_fail_path(worker, error, path);

    for (;;) {
        struct walk_item item;
        walk_next(&walk, &item);
        if (item.kind == WALK_END) break;
        if (item.kind == WALK_UNREADABLE && item.depth > 1 && can_skip(item.error)) {
            walk_skip(&walk);
            continue;
        }
        if (item.kind == WALK_FAILED || item.kind == WALK_UNREADABLE) {
            walk.name[0] = 0;
            worker_fail_path(worker, item.error, walk_path(&walk) ? walk.path : path);
        }
        if (item.kind != WALK_ENTRY) continue;

        const char *entry_path = walk_path(&walk);
        if (!entry_path) worker_fail_path(worker, ENOMEM, path);
        if (strlen(entry_path) > ENTRY_PATH_MAX) worker_fail_path(worker, ENAMETOOLONG, entry_path);
        struct message message;
        struct stat status;
        message_begin(&message, FRAME_NOTE, 0, worker->stream);
        message_u64(&message, FIELD_NOTE_KIND, NOTE_ENTRY);
        error = entry_add_at(&message, item.directory, item.name, entry_path, &status);
        if (error) {
            message_free(&message);
            if (can_skip(error)) continue;
            worker_fail_path(worker, error, entry_path);
        }
        worker_send(worker, &message);

        if (S_ISDIR(status.st_mode) && item.depth < depth) {
            error = walk_descend(&walk, false);
            if (error && !can_skip(error)) worker_fail_path(worker, error, path);
        }
    }
    walk_free(&walk);
    worker_done_empty(worker);
}
