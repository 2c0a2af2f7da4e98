/*
 * Feeds arbitrary bytes, in arbitrary pieces, to the reassembly of frames and the walk over fields, and checks what
 * must hold whatever comes: the frames found do not depend on where the bytes were cut.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "frame.h"

struct digest {
    uint64_t value;
    size_t frames;
    int broken;
};

static void mix(struct digest *digest, uint64_t value) {
    digest->value = (digest->value ^ value) * 1099511628211u;
}

static void look_at_fields(struct digest *digest, const uint8_t *payload, size_t length) {
    size_t cursor = 0;
    struct field field;
    size_t seen = 0;
    while (fields_next(payload, length, &cursor, &field)) {
        if (field.value < payload || field.value + field.length > payload + length) abort();
        for (uint32_t i = 0; i < field.length; i++) mix(digest, field.value[i]);
        seen++;
    }
    if (fields_valid(payload, length) != (cursor == length)) abort();
    for (unsigned tag = 0; tag < 256; tag += 17) {
        mix(digest, fields_u64(payload, length, (uint8_t)tag, 7));
        char *text = fields_text(payload, length, (uint8_t)tag);
        if (text) mix(digest, strlen(text));
        free(text);
    }
    mix(digest, seen);
}

static void take_frames(struct buffer *buffer, struct digest *digest) {
    struct frame_header header;
    const uint8_t *payload;
    while (!digest->broken) {
        enum frame_state state = buffer_peek_frame(buffer, &header, &payload);
        if (state == FRAME_INCOMPLETE) return;
        if (state == FRAME_BROKEN) {
            digest->broken = 1;
            return;
        }
        digest->frames++;
        mix(digest, header.type | (uint64_t)header.stream << 8);
        look_at_fields(digest, payload, header.length);
        buffer_consume_frame(buffer, &header);
    }
}

static struct digest digest_of(const uint8_t *bytes, size_t length, size_t piece) {
    struct digest digest = { 14695981039346656037u, 0, 0 };
    struct buffer buffer = { 0 };
    for (size_t at = 0; at < length && !digest.broken;) {
        size_t run = piece == 0 ? length : 1 + (at * 31 + piece) % piece;
        if (run > length - at) run = length - at;
        if (!buffer_append(&buffer, bytes + at, run)) abort();
        take_frames(&buffer, &digest);
        at += run;
    }
    buffer_release(&buffer);
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length < 1) return 0;
    size_t piece = 1 + bytes[0] % 61;
    struct digest whole = digest_of(bytes + 1, length - 1, 0);
    struct digest pieces = digest_of(bytes + 1, length - 1, piece);
    if (whole.value != pieces.value || whole.frames != pieces.frames || whole.broken != pieces.broken) abort();
    return 0;
}
