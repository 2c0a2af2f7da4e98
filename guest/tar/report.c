#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRY_SHOWN 1024
#define REMEMBERED_BYTES_MAX ((size_t)512 * 1024 * 1024)
#define ALLOCATION_BYTES 16 /* what each one takes beside what was asked for */

static char entry_name[ENTRY_SHOWN];
static size_t entry_length;
static bool entry_known;

void report_entry(struct slice name) {
    entry_known = name.bytes != NULL;
    entry_length = name.length < ENTRY_SHOWN ? name.length : ENTRY_SHOWN;
    if (entry_length > 0) memcpy(entry_name, name.bytes, entry_length);
}

/* Length of the UTF-8 sequence that begins here, 0 if none does. */
static size_t utf8_length(const uint8_t *at, size_t left) {
    size_t length = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : (at[0] & 0xf0) == 0xe0 ? 3 : 4;
    if (at[0] >= 0xf5 || (at[0] >= 0x80 && at[0] < 0xc2) || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    /* Overlong forms, surrogates, and what is beyond Unicode. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f)) return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)) return 0;
    return length;
}

static void print_text(const char *text, size_t length) {
    const uint8_t *at = (const uint8_t *)text;
    fputc('"', stderr);
    for (size_t i = 0; i < length;) {
        size_t run = utf8_length(at + i, length - i);
        if (run == 0) fputs("\\ufffd", stderr);
        else if (at[i] < 0x20 || at[i] == 0x7f) fprintf(stderr, "\\u%04x", at[i]);
        else if (at[i] == '"' || at[i] == '\\') fprintf(stderr, "\\%c", at[i]);
        else fwrite(at + i, 1, run, stderr);
        i += run ? run : 1;
    }
    fputc('"', stderr);
}

_Noreturn void fail(const char *code, const char *text) {
    static char buffer[16384]; /* so that it is one write */
    setvbuf(stderr, buffer, _IOFBF, sizeof buffer);
    fputs("{\"error\":", stderr);
    print_text(text, strlen(text));
    if (entry_known) {
        fputs(",\"entry\":", stderr);
        print_text(entry_name, entry_length);
    }
    fputs(",\"code\":", stderr);
    print_text(code, strlen(code));
    fputs("}\n", stderr);
    fflush(stderr);
    _exit(1);
}

static const char *errno_name(int number) {
    switch (number) {
    case ENOSPC: return "ENOSPC";
    case EDQUOT: return "EDQUOT";
    case EFBIG: return "EFBIG";
    case EROFS: return "EROFS";
    case EACCES: return "EACCES";
    case EPERM: return "EPERM";
    case ENOENT: return "ENOENT";
    case ENOTDIR: return "ENOTDIR";
    case EISDIR: return "EISDIR";
    case ENOTEMPTY: return "ENOTEMPTY";
    case EEXIST: return "EEXIST";
    case EBUSY: return "EBUSY";
    case ELOOP: return "ELOOP";
    case EXDEV: return "EXDEV";
    case EMLINK: return "EMLINK";
    case EINVAL: return "EINVAL";
    case ENOMEM: return "ENOMEM";
    case EMFILE: return "EMFILE";
    case ENFILE: return "ENFILE";
    case ENAMETOOLONG: return "ENAMETOOLONG";
    case ENOTSUP: return "ENOTSUP";
    case ENOSYS: return "ENOSYS";
    case EOVERFLOW: return "EOVERFLOW";
    case EPIPE: return "EPIPE";
    case ESTALE: return "ESTALE";
    default: return "EIO";
    }
}

_Noreturn void fail_errno(const char *step) {
    int number = errno;
    char text[256];
    snprintf(text, sizeof text, "%s: %s", step, strerror(number));
    fail(errno_name(number), text);
}

void *allocate(void *former, size_t length) {
    void *memory = realloc(former, length);
    if (!memory) {
        errno = ENOMEM;
        fail_errno("allocate");
    }
    return memory;
}

void remember_more(size_t bytes) {
    static size_t remembered;
    remembered += bytes;
    if (remembered > REMEMBERED_BYTES_MAX) fail("too_large", "there are more directories or links than fit into 512 MiB");
}

char *remember_path(const char *path) {
    size_t length = strlen(path) + 1;
    remember_more(length + ALLOCATION_BYTES);
    return memcpy(allocate(NULL, length), path, length);
}
