/*
 * Drives one output channel with arbitrary appends and a reader that falls behind, and checks what must hold: every
 * byte that is said to be kept is the right one, and what was promised to a BLOCK reader is kept.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output.h"
#include "wire.h"

static uint8_t byte_at(uint64_t offset) {
    return (uint8_t)((offset * 2654435761u) >> 13);
}

static void append(struct output *output, size_t length) {
    static uint8_t bytes[65536];
    for (size_t i = 0; i < length; i++) bytes[i] = byte_at(output->total + i);
    uint64_t before = output->total;
    output_append(output, bytes, length);
    if (output->total != before + length) abort();
}

/* Reads like a reader would, from `offset` on; how far it got without a gap. */
static uint64_t check_run(const struct output *output, uint64_t offset, uint64_t most) {
    uint8_t bytes[4096];
    while (offset < output->total && most > 0) {
        if (output_next_kept(output, offset) != offset) break;
        size_t got = output_copy(output, offset, bytes, most < sizeof bytes ? (size_t)most : sizeof bytes);
        if (got == 0) abort();
        for (size_t i = 0; i < got; i++)
            if (bytes[i] != byte_at(offset + i)) abort();
        offset += got;
        most -= got;
    }
    return offset;
}

static void check_all(const struct output *output) {
    uint64_t offset = 0;
    while (offset < output->total) {
        uint64_t kept = output_next_kept(output, offset);
        if (kept < offset || kept > output->total) abort();
        offset = check_run(output, kept, UINT64_MAX);
        if (offset == kept && offset < output->total) abort();
    }
}

static char spill_directory[] = "/tmp/fuzz-output-XXXXXX";

/* Every input removes its own files. */
static void remove_spill_directory(void) {
    (void)rmdir(spill_directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length) {
    if (length < 4) return 0;
    static int directory = -1;
    if (directory < 0) {
        if (!mkdtemp(spill_directory)) abort();
        directory = open(spill_directory, O_RDONLY | O_DIRECTORY);
        if (directory < 0) abort();
        atexit(remove_spill_directory);
    }
    struct keep_budget budget = { .limit_bytes = (size_t)(1 + input[0]) * 2048 };
    struct output output;
    output_init(&output, &budget, 4096u + input[1] * 997u);
    output_spill_to(&output, directory, "1.1", (input[2] % 64) * 3001u);
    uint64_t reader = 0;
    for (size_t i = 3; i + 1 < length && i < 200; i += 2) {
        size_t amount = 1u + input[i + 1] * 257u;
        switch (input[i] % 4) {
            case 0: append(&output, amount > 65536 ? 65536 : amount); break;
            case 1: { /* append no more than a BLOCK reader at `reader` allows */
                reader = output_next_kept(&output, reader);
                /* What comes after the head may have been lost before. */
                uint64_t needed = output_next_kept(&output, reader < KEEP_HEAD_BYTES ? KEEP_HEAD_BYTES : reader);
                size_t room = output_lossless_room(&output, reader, amount);
                if (room > amount) abort();
                if (room == 0 && reader == output.total) abort(); /* a reader that is up to date never holds */
                append(&output, room);
                if (needed < output.total && check_run(&output, needed, UINT64_MAX) != output.total) abort();
                break;
            }
            case 2: reader = check_run(&output, output_next_kept(&output, reader), amount); break;
            default: check_all(&output); break;
        }
    }
    output_seal(&output);
    check_all(&output);
    output_drop(&output);
    check_all(&output);
    output_free(&output);
    if (budget.used_bytes != 0) abort();
    return 0;
}
