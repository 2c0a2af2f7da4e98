/* Pseudo-terminals, without the C library's helpers: those want /dev/pts paths and a `tty` group. */
#ifndef HOLDFAST_PTY_H
#define HOLDFAST_PTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Both ends, close-on-exec, the slave owned by `uid`; false with errno. */
bool pty_open(uid_t uid, uint16_t columns, uint16_t rows, int *master, int *slave);
bool pty_resize(int master, uint16_t columns, uint16_t rows);

#endif
