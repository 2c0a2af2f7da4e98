#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pack.h"
#include "report.h"

#define BUFFER_BYTES (1024 * 1024)
#define WRITE_BYTES (128 * 1024)
#define READ_AHEAD_FROM (4 * 1024 * 1024)

static uint8_t *buffer;
static size_t used;
static bool counts_only;
static uint64_t written;
static uint64_t limit;

void output_open(bool count_only, uint64_t most) {
    counts_only = count_only;
    limit = most;
    buffer = allocate(NULL, BUFFER_BYTES);
    if (!count_only) (void)fcntl(STDOUT_FILENO, F_SETPIPE_SZ, BUFFER_BYTES); /* it may be no pipe: fine */
}

static void flush(void) {
    for (size_t at = 0; at < used;) {
        /* Large writes to files are slow on some kernels (large folios); pieces of this size are not. */
        size_t piece = used - at < WRITE_BYTES ? used - at : WRITE_BYTES;
        ssize_t wrote = write(STDOUT_FILENO, buffer + at, piece);
        if (wrote < 0) {
            if (errno == EINTR) continue;
            fail_errno("write the archive");
        }
        at += (size_t)wrote;
    }
    used = 0;
}

static void count(uint64_t length) {
    if (length > limit - written) fail("too_large", "the archive is larger than allowed");
    written += length;
}

static size_t room(uint64_t wanted) {
    if (used == BUFFER_BYTES) flush();
    return wanted < BUFFER_BYTES - used ? (size_t)wanted : BUFFER_BYTES - used;
}

void output_bytes(const void *bytes, size_t length) {
    count(length);
    if (counts_only) return;
    const uint8_t *at = bytes;
    while (length > 0) {
        size_t run = room(length);
        memcpy(buffer + used, at, run);
        used += run;
        at += run;
        length -= run;
    }
}

static void output_zeros(uint64_t length) {
    count(length);
    if (counts_only) return;
    while (length > 0) {
        size_t run = room(length);
        memset(buffer + used, 0, run);
        used += run;
        length -= run;
    }
}

static ssize_t read_some(int fd, void *to, size_t most) {
    for (;;) {
        ssize_t got = read(fd, to, most);
        if (got >= 0) return got;
        if (errno != EINTR) fail_errno("read");
    }
}

bool output_file(int fd, uint64_t length) {
    bool same = true;
    bool end_seen = length == 0;
    uint64_t left = length;
    if (counts_only) {
        count(length);
        left = 0;
        end_seen = true;
    } else if (length >= READ_AHEAD_FROM) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    while (left > 0) {
        /* One byte more than there should be: if it does not come, that was the end, and need not be asked for. */
        size_t most = room(left + 1);
        ssize_t got = read_some(fd, buffer + used, most);
        if (got == 0) {
            same = false;
            output_zeros(left);
            break;
        }
        end_seen = (uint64_t)got == left && most > left;
        if ((uint64_t)got > left) {
            same = false;
            got = (ssize_t)left;
        }
        count((uint64_t)got);
        used += (size_t)got;
        left -= (uint64_t)got;
    }
    char more;
    if (same && !end_seen && read_some(fd, &more, 1) > 0) same = false;
    output_zeros(tar_padding(length));
    return same;
}

void output_end(void) {
    output_zeros((uint64_t)2 * TAR_BLOCK);
    flush();
    free(buffer);
    buffer = NULL;
}

uint64_t output_written(void) { return written; }
