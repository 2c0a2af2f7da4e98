#include "read-text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char *read_whole(int fd, size_t limit, size_t *length) {
    size_t capacity = 4096;
    size_t used = 0;
    char *text = malloc(capacity + 1);
    while (text) {
        ssize_t got = read(fd, text + used, (capacity < limit ? capacity : limit) - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            int error = errno;
            free(text);
            errno = error;
            return NULL;
        }
        used += (size_t)got;
        if (got == 0 || used >= limit) {
            text[used] = 0;
            if (length) *length = used;
            return text;
        }
        if (used < capacity) continue;
        capacity *= 2;
        char *larger = realloc(text, capacity + 1);
        if (!larger) free(text);
        text = larger;
    }
    errno = ENOMEM;
    return NULL;
}

char *read_path(const char *path, size_t limit, size_t *length) {
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return NULL;
    struct stat status;
    char *text = NULL;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        text = read_whole(fd, limit, length);
    else
        errno = EINVAL;
    int error = errno;
    close(fd);
    errno = error;
    return text;
}
