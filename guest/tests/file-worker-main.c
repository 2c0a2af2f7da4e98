/*
 * Runs the file worker alone, for its tests: reads one request frame from descriptor 3 and serves it there.
 * Usage: file-worker-main DEFAULT_USER [CHROOT]
 */
#include <stdlib.h>
#include <unistd.h>

#include "../src/file-worker.h"
#include "../src/frame.h"

#include <errno.h>
#include <poll.h>

static void read_exactly(void *bytes, size_t length) {
    char *at = bytes;
    while (length > 0) {
        ssize_t got = read(3, at, length);
        if (got < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){ .fd = 3, .events = POLLIN }, 1, -1);
            continue;
        }
        if (got <= 0) _exit(2);
        at += got;
        length -= (size_t)got;
    }
}

int main(int count, char **arguments) {
    uint8_t bytes[HEADER_BYTES];
    struct frame_header header;
    read_exactly(bytes, sizeof bytes);
    if (count < 2 || !frame_header_parse(bytes, &header)) return 2;
    uint8_t *payload = malloc((size_t)header.length + 1);
    if (!payload) return 2;
    read_exactly(payload, header.length);
    if (count > 2 && (chroot(arguments[2]) < 0 || chdir("/") < 0)) return 2;
    file_worker_run(3, header.type, header.stream, payload, header.length, arguments[1]);
}
