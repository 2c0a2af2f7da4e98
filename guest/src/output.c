#include "output.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire.h"

#define RING_FIRST_BYTES 4096
/* Granted to every channel even when the budget is spent, so that a new command's output is never wholly lost. */
#define RING_LEAST_BYTES 65536
/* Rings from this size on have memory of their own: see ring_allocate. */
#define RING_MAPPED_BYTES 65536

static size_t smaller(uint64_t a, uint64_t b) {
    return (size_t)(a < b ? a : b);
}

void output_init(struct output *output, struct keep_budget *budget, size_t keep_bytes) {
    memset(output, 0, sizeof *output);
    output->budget = budget;
    output->ring_limit = keep_bytes;
    output->ring_start = KEEP_HEAD_BYTES;
    output->spill_directory = output->spill_fd = -1;
}

void output_spill_to(struct output *output, int spill_directory, const char *name, uint64_t spill_bytes) {
    if (spill_directory < 0 || spill_bytes == 0) return;
    output->spill_directory = spill_directory;
    output->spill_limit = spill_bytes < INT64_MAX ? spill_bytes : INT64_MAX;
    output->spill_start = output->spill_end = KEEP_HEAD_BYTES;
    snprintf(output->spill_name, sizeof output->spill_name, "%s", name);
}

static void release(struct keep_budget *budget, uint8_t **bytes, size_t *capacity) {
    free(*bytes);
    budget->used_bytes -= *capacity;
    *bytes = NULL;
    *capacity = 0;
}

static void spill_close(struct output *output) {
    if (output->spill_fd >= 0) {
        close(output->spill_fd);
        (void)unlinkat(output->spill_directory, output->spill_name, 0); /* already gone is as good */
    }
    output->spill_fd = -1;
    output->spill_limit = 0;
    output->spill_start = output->spill_end = 0;
}

/*
 * Workers are forked from us and may live for long. Whatever of our memory they inherit is held twice as soon as we write to
 * it, and what commands have said is most of it: they do not get to see that.
 */
static uint8_t *ring_allocate(size_t capacity) {
    if (capacity < RING_MAPPED_BYTES) return malloc(capacity);
    void *ring = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) return NULL;
    (void)madvise(ring, capacity, MADV_DONTFORK);
    return ring;
}

static void ring_release(struct output *output) {
    if (output->ring_capacity < RING_MAPPED_BYTES) {
        release(output->budget, &output->ring, &output->ring_capacity);
        return;
    }
    munmap(output->ring, output->ring_capacity);
    output->budget->used_bytes -= output->ring_capacity;
    output->ring = NULL;
    output->ring_capacity = 0;
}

void output_free(struct output *output) {
    if (!output->budget) return; /* never initialised */
    release(output->budget, &output->head, &output->head_capacity);
    output->head_length = 0;
    ring_release(output);
    spill_close(output);
}

void output_drop(struct output *output) {
    output_free(output);
    output->ring_start = output->total;
}

/* True if `more` bytes fit the shared budget, after others gave up theirs if they can. */
static bool budget_allows(struct keep_budget *budget, size_t more) {
    while (budget->used_bytes + more > budget->limit_bytes)
        if (!budget->reclaim || !budget->reclaim(budget)) return false;
    return true;
}

/* ---- the head ---- */

static bool head_grow(struct output *output, size_t needed) {
    if (needed <= output->head_capacity) return true;
    size_t capacity = output->head_capacity ? output->head_capacity : 512;
    while (capacity < needed) capacity *= 2;
    budget_allows(output->budget, capacity - output->head_capacity); /* the head is small: it is taken in any case */
    uint8_t *head = realloc(output->head, capacity);
    if (!head) return false;
    output->budget->used_bytes += capacity - output->head_capacity;
    output->head = head;
    output->head_capacity = capacity;
    return true;
}

/* ---- the ring ---- */

static size_t ring_held(const struct output *output) {
    return (size_t)(output->total > output->ring_start ? output->total - output->ring_start : 0);
}

static void ring_read(const struct output *output, uint64_t offset, uint8_t *to, size_t length) {
    size_t at = (size_t)(offset % output->ring_capacity);
    size_t first = smaller(length, output->ring_capacity - at);
    memcpy(to, output->ring + at, first);
    if (length > first) memcpy(to + first, output->ring, length - first);
}

static bool ring_resize(struct output *output, size_t capacity) {
    size_t held = ring_held(output);
    uint8_t *ring = ring_allocate(capacity);
    if (!ring) return false;
    for (uint64_t offset = output->ring_start; held > 0;) {
        size_t at = (size_t)(offset % capacity);
        size_t run = smaller(held, capacity - at);
        ring_read(output, offset, ring + at, run);
        offset += run;
        held -= run;
    }
    output->budget->used_bytes += capacity;
    ring_release(output);
    output->ring = ring;
    output->ring_capacity = capacity;
    return true;
}

/* Grows towards `needed` as far as the limit, the budget and the memory allow. */
static void ring_grow(struct output *output, size_t needed) {
    if (needed <= output->ring_capacity || output->ring_capacity >= output->ring_limit) return;
    size_t capacity = output->ring_capacity ? output->ring_capacity : RING_FIRST_BYTES;
    while (capacity < needed && capacity < output->ring_limit) capacity *= 2;
    capacity = smaller(capacity, output->ring_limit);
    bool allowed = capacity <= RING_LEAST_BYTES || budget_allows(output->budget, capacity - output->ring_capacity);
    /* Refused once, we go on with what we have: the ring is then simply shorter. */
    if (!allowed || !ring_resize(output, capacity)) output->ring_limit = output->ring_capacity;
}

/* ---- the spill file ---- */

static bool spill_open(struct output *output) {
    if (output->spill_fd >= 0) return true;
    output->spill_fd = openat(output->spill_directory, output->spill_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return output->spill_fd >= 0;
}

static bool spill_write(struct output *output, const uint8_t *bytes, size_t length) {
    if (!spill_open(output)) return false;
    while (length > 0) {
        uint64_t at = output->spill_end % output->spill_limit;
        size_t run = smaller(length, output->spill_limit - at);
        ssize_t written = pwrite(output->spill_fd, bytes, run, (off_t)at);
        if (written <= 0) return false;
        output->spill_end += (uint64_t)written;
        if (output->spill_end - output->spill_start > output->spill_limit)
            output->spill_start = output->spill_end - output->spill_limit;
        bytes += written;
        length -= (size_t)written;
    }
    return true;
}

/* Copies what the ring holds below `end` to the file, as far as it is not there yet; false if the disk is full. */
static bool spill_up_to(struct output *output, uint64_t end) {
    if (output->spill_limit == 0 || output->spill_broken) return false;
    while (output->spill_end < end) {
        size_t at = (size_t)(output->spill_end % output->ring_capacity);
        size_t run = smaller(end - output->spill_end, output->ring_capacity - at);
        if (spill_write(output, output->ring + at, run)) continue;
        output->spill_broken = true;
        return false;
    }
    return true;
}

/* The oldest `length` bytes of the ring go to the spill file if it is in order, else nowhere. */
static void ring_evict(struct output *output, size_t length) {
    if (output->spill_end >= output->ring_start) (void)spill_up_to(output, output->ring_start + length);
    output->ring_start += length;
}

/* ---- the whole ---- */

static void append_to_head(struct output *output, const uint8_t *bytes, size_t length) {
    if (output->head_length == output->total && head_grow(output, output->head_length + length)) {
        memcpy(output->head + output->head_length, bytes, length);
        output->head_length += length;
    }
    output->total += length;
}

static void append_to_ring(struct output *output, const uint8_t *bytes, size_t length) {
    size_t held = (size_t)(output->total - output->ring_start);
    ring_grow(output, held + length);
    size_t capacity = output->ring_capacity;
    while (length > 0) {
        held = (size_t)(output->total - output->ring_start);
        size_t run = smaller(length, capacity);
        if (capacity == 0) { /* nothing is kept at all: KEEP_BYTES 0, or no memory */
            output->total += length;
            output->ring_start = output->total;
            return;
        }
        if (held + run > capacity) ring_evict(output, held + run - capacity);
        size_t at = (size_t)(output->total % capacity);
        size_t first = smaller(run, capacity - at);
        memcpy(output->ring + at, bytes, first);
        if (run > first) memcpy(output->ring, bytes + first, run - first);
        output->total += run;
        bytes += run;
        length -= run;
    }
}

void output_append(struct output *output, const uint8_t *bytes, size_t length) {
    if (output->total < KEEP_HEAD_BYTES) {
        size_t run = smaller(length, KEEP_HEAD_BYTES - output->total);
        append_to_head(output, bytes, run);
        bytes += run;
        length -= run;
    }
    if (length > 0) append_to_ring(output, bytes, length);
}

/* How many of `wanted` bytes can follow if `kept` bytes from `needed_from` on can be held. */
static size_t room_within(const struct output *output, uint64_t needed_from, uint64_t kept, size_t wanted) {
    uint64_t end = needed_from + kept;
    return end > output->total ? smaller(wanted, end - output->total) : 0;
}

size_t output_lossless_room(struct output *output, uint64_t needed_from, size_t wanted) {
    if (output->total + wanted <= KEEP_HEAD_BYTES) return wanted;
    if (needed_from < KEEP_HEAD_BYTES) needed_from = KEEP_HEAD_BYTES; /* the head is never lost */
    needed_from = output_next_kept(output, needed_from); /* and what is lost already need not be kept */
    ring_grow(output, (size_t)(output->total + wanted - output->ring_start));
    if (output->ring_capacity == 0) return wanted; /* no memory at all: a gap is better than a command held for ever */
    bool spills = output->spill_limit > 0 && !output->spill_broken;
    size_t room = room_within(output, needed_from, output->ring_capacity + (spills ? output->spill_limit : 0), wanted);
    uint64_t end = output->total + room;
    bool evicts = end > output->ring_start + output->ring_capacity;
    if (!spills || !evicts) return room;
    uint64_t evicted_to = end - output->ring_capacity;
    if (spill_up_to(output, evicted_to < output->total ? evicted_to : output->total)) return room;
    return room_within(output, needed_from, output->ring_capacity, wanted);
}

uint64_t output_next_kept(const struct output *output, uint64_t offset) {
    if (offset >= output->total || offset < output->head_length) return offset;
    if (output->spill_end > output->spill_start && offset < output->spill_end)
        return offset < output->spill_start ? output->spill_start : offset;
    uint64_t start = output->ring ? output->ring_start : output->total;
    return offset < start ? start : offset;
}

static size_t spill_read(const struct output *output, uint64_t offset, uint8_t *to, size_t length) {
    uint64_t at = offset % output->spill_limit;
    size_t run = smaller(smaller(length, output->spill_end - offset), output->spill_limit - at);
    ssize_t got = pread(output->spill_fd, to, run, (off_t)at);
    return got < 0 ? 0 : (size_t)got;
}

size_t output_copy(const struct output *output, uint64_t offset, uint8_t *to, size_t length) {
    uint64_t in_head = output->head_length;
    if (offset < in_head) {
        size_t run = smaller(length, in_head - offset);
        memcpy(to, output->head + offset, run);
        return run;
    }
    if (offset >= output->ring_start && output->ring && offset < output->total) {
        size_t run = smaller(length, output->total - offset);
        ring_read(output, offset, to, run);
        return run;
    }
    if (offset >= output->spill_start && offset < output->spill_end) return spill_read(output, offset, to, length);
    return 0;
}

void output_seal(struct output *output) {
    size_t held = ring_held(output);
    if (held == 0)
        ring_release(output);
    else if (output->ring_capacity - held >= RING_FIRST_BYTES)
        (void)ring_resize(output, held); /* without memory for that, it stays larger */
    size_t head = smaller(output->total, KEEP_HEAD_BYTES);
    if (head < output->head_capacity) {
        uint8_t *shrunk = realloc(output->head, head ? head : 1);
        if (!shrunk) return;
        output->head = shrunk;
        output->budget->used_bytes -= output->head_capacity - (head ? head : 1);
        output->head_capacity = head ? head : 1;
    }
}
