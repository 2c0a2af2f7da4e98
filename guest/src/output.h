/*
 * One output channel of a command, as a byte string with offsets from 0. Kept are
 *   - the head: the first KEEP_HEAD_BYTES,
 *   - the ring: the newest bytes, in memory, up to `ring_limit`,
 *   - the spill: bytes that left the ring, the newest `spill_limit` of them, in a file used as a ring.
 * Everything else is a gap. All memory is taken as bytes come, against a budget that all commands share.
 */
#ifndef HOLDFAST_OUTPUT_H
#define HOLDFAST_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory of all outputs together. `reclaim` shall free some of it, and says whether it could. */
struct keep_budget {
    size_t used_bytes;
    size_t limit_bytes;
    bool (*reclaim)(struct keep_budget *budget);
};

struct output {
    struct keep_budget *budget;
    uint64_t total; /* bytes ever written; also the offset of the next one */
    uint8_t *head;
    size_t head_capacity;
    size_t head_length;
    uint8_t *ring; /* holds [ring_start, total), the byte at offset o at o % ring_capacity */
    size_t ring_capacity;
    size_t ring_limit;
    uint64_t ring_start;
    int spill_directory; /* or -1 */
    char spill_name[32];
    int spill_fd; /* the file once it is needed, else -1; the byte at offset o is at o % spill_limit in it */
    uint64_t spill_limit;
    uint64_t spill_start; /* the file holds [spill_start, spill_end) */
    uint64_t spill_end;
    bool spill_broken; /* the disk was full: the file stays as it is, no more is written to it */
};

/* Spills to a file of this name in `spill_directory` (borrowed; -1: nowhere), made when the ring first overflows. */
void output_init(struct output *output, struct keep_budget *budget, size_t keep_bytes);
void output_spill_to(struct output *output, int spill_directory, const char *name, uint64_t spill_bytes);
void output_free(struct output *output);
/* Frees what is kept; the total stays, so that readers learn of a gap. */
void output_drop(struct output *output);
/* No more will come: gives back memory that was reserved for more. */
void output_seal(struct output *output);

void output_append(struct output *output, const uint8_t *bytes, size_t length);
/*
 * How many bytes, up to `wanted`, can be appended so that all from `needed_from` on stay kept. Whether the memory and
 * the disk are there is found out by using them: only then is it a promise.
 */
size_t output_lossless_room(struct output *output, uint64_t needed_from, size_t wanted);
/* The lowest kept offset that is not below `offset`; `total` if there is none. */
uint64_t output_next_kept(const struct output *output, uint64_t offset);
/* Copies kept bytes from `offset` on, up to `length`; 0 only if that byte is not kept. */
size_t output_copy(const struct output *output, uint64_t offset, uint8_t *to, size_t length);

#endif
