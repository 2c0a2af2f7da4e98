/* The archive on stdin, read in large pieces. */
#ifndef HOLDFAST_TAR_INPUT_H
#define HOLDFAST_TAR_INPUT_H

#include "format.h"

void input_open(void);
/* The next block, or NULL if the input ends right here; a part of a block is a failure. */
const uint8_t *input_block(void);
/* Up to `most` bytes in place, at least one; the input must have them. */
struct slice input_some(uint64_t most);
void input_copy(char *to, size_t length);
void input_skip(uint64_t length);
/* Reads to the end, so that whoever writes can finish, and refuses more than `most`. */
void input_drain(uint64_t most);

#endif
