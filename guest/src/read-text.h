/* Small files, whole. They may be hostile: nothing here waits, and nothing is larger than it was told. */
#ifndef HOLDFAST_READ_TEXT_H
#define HOLDFAST_READ_TEXT_H

#include <stddef.h>

/* All that can be read, NUL-terminated (free it), cut at `limit` bytes; NULL with errno. `length` may be NULL. */
char *read_whole(int fd, size_t limit, size_t *length);
/* The same by path, for regular files only: a FIFO in its place must not hold us up. */
char *read_path(const char *path, size_t limit, size_t *length);

#endif
