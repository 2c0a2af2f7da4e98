/*
 * Frames and fields: the only code that takes bytes of the protocol apart or puts them together.
 * Pure: no descriptors, no allocation but in `struct message`, so that it can be fuzzed alone.
 */
#ifndef HOLDFAST_FRAME_H
#define HOLDFAST_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct frame_header {
    uint32_t length;
    uint8_t type;
    uint8_t channel;
    uint32_t stream;
};

/* False if the header breaks a rule (length above the limit, flags set): the connection is beyond repair. */
bool frame_header_parse(const uint8_t bytes[HEADER_BYTES], struct frame_header *out);
void frame_header_write(uint8_t bytes[HEADER_BYTES], const struct frame_header *header);

/* One field inside a payload; `value` points into the payload. */
struct field {
    uint8_t tag;
    uint32_t length;
    const uint8_t *value;
};

/* Walks a payload: start with `cursor` 0; true while there is a field, false at the end or on a broken one. */
bool fields_next(const uint8_t *payload, size_t length, size_t *cursor, struct field *out);
/* True if the payload is a sequence of whole fields. Check once; then fields_next can only end at the end. */
bool fields_valid(const uint8_t *payload, size_t length);
/* The first field with this tag, or NULL in `value` of *out and false. */
bool fields_find(const uint8_t *payload, size_t length, uint8_t tag, struct field *out);
/* A number field, or `fallback` if it is absent or not 8 bytes long. */
uint64_t fields_u64(const uint8_t *payload, size_t length, uint8_t tag, uint64_t fallback);
bool fields_has(const uint8_t *payload, size_t length, uint8_t tag);
/*
 * A text field as a NUL-terminated copy (free it), or NULL: with errno ENOENT if absent, EINVAL if it holds a NUL,
 * ENOMEM if there is no memory.
 */
char *fields_text(const uint8_t *payload, size_t length, uint8_t tag);

/* Builds one frame, header included, in a growing buffer. */
struct message {
    uint8_t *bytes;
    size_t length;   /* header included */
    size_t capacity;
    bool failed;     /* out of memory or over the limit: message_finish returns false */
};

void message_begin(struct message *message, uint8_t type, uint8_t channel, uint32_t stream);
void message_u64(struct message *message, uint8_t tag, uint64_t value);
void message_bytes(struct message *message, uint8_t tag, const void *value, size_t length);
void message_text(struct message *message, uint8_t tag, const char *value);
/* Writes the final length into the header. */
bool message_finish(struct message *message);
void message_free(struct message *message);

/* "ENOENT" for ENOENT; "E?" for what we have no name for. */
const char *errno_name(int number);

#endif
