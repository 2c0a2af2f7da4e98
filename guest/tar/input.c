#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

#define BUFFER_BYTES (1024 * 1024)
/* Pipes give little at a time; below this it is worth asking again before the bytes are written to a file. */
#define WORTH_WRITING (256 * 1024)

static uint8_t *buffer;
static size_t start;
static size_t end;

void input_open(void) {
    buffer = allocate(NULL, BUFFER_BYTES);
    /* A larger pipe saves switches between the processes. It may be no pipe, or be refused: both are fine. */
    (void)fcntl(STDIN_FILENO, F_SETPIPE_SZ, BUFFER_BYTES);
}

/* Until `wanted` bytes are there, or the input ends; `wanted` is not over BUFFER_BYTES. */
static size_t fill(size_t wanted) {
    if (end - start >= wanted) return end - start;
    if (start == end) start = end = 0;
    if (start + wanted > BUFFER_BYTES) {
        memmove(buffer, buffer + start, end - start);
        end -= start;
        start = 0;
    }
    while (end - start < wanted) {
        ssize_t got = read(STDIN_FILENO, buffer + end, BUFFER_BYTES - end);
        if (got == 0) break;
        if (got < 0) {
            if (errno == EINTR) continue;
            fail_errno("read the archive");
        }
        end += (size_t)got;
    }
    return end - start;
}

const uint8_t *input_block(void) {
    size_t got = fill(TAR_BLOCK);
    if (got == 0) return NULL;
    if (got < TAR_BLOCK) fail("truncated", "the archive ends in the middle of a header");
    start += TAR_BLOCK;
    return buffer + start - TAR_BLOCK;
}

struct slice input_some(uint64_t most) {
    size_t got = fill(most < WORTH_WRITING ? (size_t)most : WORTH_WRITING);
    if (got == 0) fail("truncated", "the archive ends in the middle of an entry");
    if (got > most) got = (size_t)most;
    struct slice some = { (const char *)buffer + start, got };
    start += got;
    return some;
}

void input_copy(char *to, size_t length) {
    while (length > 0) {
        struct slice some = input_some(length);
        memcpy(to, some.bytes, some.length);
        to += some.length;
        length -= some.length;
    }
}

void input_skip(uint64_t length) {
    while (length > 0) length -= input_some(length).length;
}

void input_drain(uint64_t most) {
    uint64_t drained = 0;
    for (size_t got; (got = fill(1)) > 0; start = end) {
        drained += got;
        if (drained > most) fail("too_large", "too much follows the end of the archive");
    }
}
