#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "pack.h"
#include "report.h"

/* Readers, ours too, refuse extension headers that are too large. */
#define KEPT_BYTES_MAX (TAR_META_MAX / 2)

static struct tar_xattr *kept;
static size_t kept_count;
static size_t kept_capacity;
static size_t kept_bytes;

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static void forget(void) {
    for (size_t i = 0; i < kept_count; i++) {
        free((char *)(uintptr_t)kept[i].name.bytes);
        free((char *)(uintptr_t)kept[i].value.bytes);
    }
    kept_count = 0;
    kept_bytes = 0;
}

void xattrs_release(void) {
    forget();
    free(kept);
    kept = NULL;
    kept_capacity = 0;
}

static int compare(const void *a, const void *b) {
    return strcmp(((const struct tar_xattr *)a)->name.bytes, ((const struct tar_xattr *)b)->name.bytes);
}

/* Its length, or -1 if it is gone meanwhile. */
static ssize_t read_value(const char *name, const char *attribute, char value[XATTR_VALUE_BYTES]) {
    ssize_t length = lgetxattr(name, attribute, value, XATTR_VALUE_BYTES);
    if (length < 0 && errno != ENODATA) fail_errno("read an extended attribute");
    return length;
}

static void keep(const char *name, const char *attribute) {
    static char value[XATTR_VALUE_BYTES];
    ssize_t length = read_value(name, attribute, value);
    if (length < 0) return;
    if (kept_count == kept_capacity) {
        kept_capacity = kept_capacity ? kept_capacity * 2 : 16;
        kept = allocate(kept, kept_capacity * sizeof *kept);
    }
    size_t name_length = strlen(attribute);
    kept_bytes += name_length + (size_t)length;
    char *name_copy = allocate(NULL, name_length + 1);
    memcpy(name_copy, attribute, name_length + 1);
    char *value_copy = allocate(NULL, (size_t)length + 1);
    memcpy(value_copy, value, (size_t)length);
    kept[kept_count++] = (struct tar_xattr){ { name_copy, name_length }, { value_copy, (size_t)length } };
}

static bool is_opaque(const char *name, const char *attribute) {
    static char value[XATTR_VALUE_BYTES];
    return read_value(name, attribute, value) == 1 && value[0] == 'y';
}

struct attributes xattrs_read(const char *name, bool overlay) {
    static char list[XATTR_LIST_BYTES];
    struct attributes result = { 0 };
    forget();
    ssize_t length = llistxattr(name, list, sizeof list);
    if (length < 0) {
        if (errno == ENOTSUP) return result;
        fail_errno("list extended attributes");
    }
    for (const char *at = list; at < list + length; at += strlen(at) + 1) {
        if (overlay && strcmp(at, "trusted.overlay.opaque") == 0) result.opaque = is_opaque(name, at);
        /* The files themselves are elsewhere: an archive of what is here would be wrong. */
        if (overlay && (strcmp(at, "trusted.overlay.redirect") == 0 || strcmp(at, "trusted.overlay.metacopy") == 0))
            fail("unsupported", "overlayfs has left its content in a layer below");
        bool wanted = (starts(at, "user.") && !starts(at, "user.overlay.")) || strcmp(at, "security.capability") == 0;
        if (!wanted) continue;
        if (strchr(at, '=') || kept_count == TAR_XATTRS_MAX || kept_bytes > KEPT_BYTES_MAX) result.skipped++;
        else keep(name, at);
    }
    if (kept_count > 1) qsort(kept, kept_count, sizeof *kept, compare);
    result.kept = kept;
    result.kept_count = kept_count;
    return result;
}
