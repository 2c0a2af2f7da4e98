#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pack.h"
#include "report.h"

#define NAMES_BYTES_MAX ((size_t)256 * 1024 * 1024)

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

struct names names_read(int directory_fd) {
    int copy = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copy < 0 ? NULL : fdopendir(copy);
    if (!stream) fail_errno("list a directory");
    struct names names = { 0 };
    size_t length = 0;
    size_t capacity = 0;
    for (struct dirent *found; (errno = 0, found = readdir(stream));) {
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
        size_t run = strlen(found->d_name) + 1;
        if (length + run > NAMES_BYTES_MAX) fail("too_large", "a directory has more names than fit into 256 MiB");
        if (length + run > capacity) {
            capacity = (capacity + run) * 2;
            names.text = allocate(names.text, capacity);
        }
        memcpy(names.text + length, found->d_name, run);
        length += run;
        names.count++;
    }
    if (errno != 0) fail_errno("list a directory");
    closedir(stream);
    if (names.count == 0) return names;
    names.names = allocate(NULL, names.count * sizeof *names.names);
    char *at = names.text;
    for (size_t i = 0; i < names.count; i++, at += strlen(at) + 1) names.names[i] = at;
    qsort(names.names, names.count, sizeof *names.names, compare);
    return names;
}

void names_release(struct names *names) {
    free(names->names);
    free(names->text);
    *names = (struct names){ 0 };
}
