#include "frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_HEAD_BYTES 5

static uint32_t read_u32(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void write_u32(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> (8 * i));
}

bool frame_header_parse(const uint8_t bytes[HEADER_BYTES], struct frame_header *out) {
    out->length = read_u32(bytes);
    out->type = bytes[4];
    out->channel = bytes[5];
    out->stream = read_u32(bytes + 8);
    return out->length <= MAX_PAYLOAD_BYTES && out->channel <= CHANNEL_ERR && bytes[6] == 0 && bytes[7] == 0 &&
           out->stream <= INT32_MAX;
}

void frame_header_write(uint8_t bytes[HEADER_BYTES], const struct frame_header *header) {
    write_u32(bytes, header->length);
    bytes[4] = header->type;
    bytes[5] = header->channel;
    bytes[6] = 0;
    bytes[7] = 0;
    write_u32(bytes + 8, header->stream);
}

bool fields_next(const uint8_t *payload, size_t length, size_t *cursor, struct field *out) {
    if (*cursor > length || length - *cursor < FIELD_HEAD_BYTES) return false;
    const uint8_t *head = payload + *cursor;
    uint32_t value_length = read_u32(head + 1);
    if (value_length > length - *cursor - FIELD_HEAD_BYTES) return false;
    out->tag = head[0];
    out->length = value_length;
    out->value = head + FIELD_HEAD_BYTES;
    *cursor += FIELD_HEAD_BYTES + value_length;
    return true;
}

bool fields_valid(const uint8_t *payload, size_t length) {
    size_t cursor = 0;
    struct field field;
    while (fields_next(payload, length, &cursor, &field)) {
    }
    return cursor == length;
}

bool fields_find(const uint8_t *payload, size_t length, uint8_t tag, struct field *out) {
    size_t cursor = 0;
    while (fields_next(payload, length, &cursor, out))
        if (out->tag == tag) return true;
    out->value = NULL;
    return false;
}

uint64_t fields_u64(const uint8_t *payload, size_t length, uint8_t tag, uint64_t fallback) {
    struct field field;
    if (!fields_find(payload, length, tag, &field) || field.length != 8) return fallback;
    return (uint64_t)read_u32(field.value) | (uint64_t)read_u32(field.value + 4) << 32;
}

bool fields_has(const uint8_t *payload, size_t length, uint8_t tag) {
    struct field field;
    return fields_find(payload, length, tag, &field);
}

char *fields_text(const uint8_t *payload, size_t length, uint8_t tag) {
    struct field field;
    if (!fields_find(payload, length, tag, &field)) {
        errno = ENOENT;
        return NULL;
    }
    if (field.length > 0 && memchr(field.value, 0, field.length)) {
        errno = EINVAL;
        return NULL;
    }
    char *text = malloc((size_t)field.length + 1);
    if (!text) return NULL;
    if (field.length > 0) memcpy(text, field.value, field.length);
    text[field.length] = 0;
    return text;
}

static bool message_reserve(struct message *message, size_t more) {
    if (message->failed) return false;
    size_t needed = message->length + more;
    if (needed > HEADER_BYTES + (size_t)MAX_PAYLOAD_BYTES) {
        message->failed = true;
        return false;
    }
    if (needed <= message->capacity) return true;
    size_t capacity = message->capacity ? message->capacity : 128;
    while (capacity < needed) capacity *= 2;
    uint8_t *bytes = realloc(message->bytes, capacity);
    if (!bytes) {
        message->failed = true;
        return false;
    }
    message->bytes = bytes;
    message->capacity = capacity;
    return true;
}

void message_begin(struct message *message, uint8_t type, uint8_t channel, uint32_t stream) {
    memset(message, 0, sizeof *message);
    if (!message_reserve(message, HEADER_BYTES)) return;
    frame_header_write(message->bytes, &(struct frame_header){ .type = type, .channel = channel, .stream = stream });
    message->length = HEADER_BYTES;
}

void message_bytes(struct message *message, uint8_t tag, const void *value, size_t length) {
    if (length > MAX_PAYLOAD_BYTES) message->failed = true;
    if (!message_reserve(message, FIELD_HEAD_BYTES + length)) return;
    uint8_t *head = message->bytes + message->length;
    head[0] = tag;
    write_u32(head + 1, (uint32_t)length);
    if (length > 0) memcpy(head + FIELD_HEAD_BYTES, value, length);
    message->length += FIELD_HEAD_BYTES + length;
}

void message_u64(struct message *message, uint8_t tag, uint64_t value) {
    uint8_t bytes[8];
    write_u32(bytes, (uint32_t)value);
    write_u32(bytes + 4, (uint32_t)(value >> 32));
    message_bytes(message, tag, bytes, sizeof bytes);
}

void message_text(struct message *message, uint8_t tag, const char *value) {
    message_bytes(message, tag, value, strlen(value));
}

bool message_finish(struct message *message) {
    if (message->failed) return false;
    write_u32(message->bytes, (uint32_t)(message->length - HEADER_BYTES));
    return true;
}

void message_free(struct message *message) {
    free(message->bytes);
    memset(message, 0, sizeof *message);
}

const char *errno_name(int number) {
    switch (number) {
#define NAME(code) case code: return #code;
        NAME(EPERM) NAME(ENOENT) NAME(ESRCH) NAME(EINTR) NAME(EIO) NAME(ENXIO) NAME(E2BIG) NAME(ENOEXEC) NAME(EBADF)
        NAME(ECHILD) NAME(EAGAIN) NAME(ENOMEM) NAME(EACCES) NAME(EFAULT) NAME(EBUSY) NAME(EEXIST) NAME(EXDEV)
        NAME(ENODEV) NAME(ENOTDIR) NAME(EISDIR) NAME(EINVAL) NAME(ENFILE) NAME(EMFILE) NAME(ENOTTY) NAME(ETXTBSY)
        NAME(EFBIG) NAME(ENOSPC) NAME(ESPIPE) NAME(EROFS) NAME(EMLINK) NAME(EPIPE) NAME(ERANGE) NAME(ENAMETOOLONG)
        NAME(ENOSYS) NAME(ENOTEMPTY) NAME(ELOOP) NAME(EPROTO) NAME(EOVERFLOW) NAME(EILSEQ) NAME(ENOTSUP)
        NAME(EADDRINUSE) NAME(EADDRNOTAVAIL) NAME(ENETUNREACH) NAME(ECONNABORTED) NAME(ECONNRESET) NAME(ENOBUFS)
        NAME(ETIMEDOUT) NAME(ECONNREFUSED) NAME(EHOSTUNREACH) NAME(EALREADY) NAME(EINPROGRESS) NAME(EDQUOT)
        NAME(ECANCELED) NAME(EKEYEXPIRED)
#undef NAME
        default: return "E?";
    }
}
