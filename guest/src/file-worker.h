/* The file worker: one process per file request (docs/guest-protocol.md, Files). */
#ifndef HOLDFAST_FILE_WORKER_H
#define HOLDFAST_FILE_WORKER_H

#include <stddef.h>
#include <stdint.h>

/*
 * Serves one request and ends the process. Call it in a fresh fork, as root inside the sandbox.
 *
 * `socket_fd` is one end of a stream socket pair; the worker writes NOTE, DATA, EOF and one DONE or FAIL to it and, for
 * WRITE, reads DATA and EOF of channel 0 from it. It neither sends nor expects WINDOW: the other end paces it by not
 * reading. When the other end closes, the worker cleans up and goes. All other descriptors above 2 are closed first, and
 * signal handlers and the signal mask are the worker's own, whatever was inherited.
 *
 * A worker that refuses a WRITE sends FAIL, then takes and discards what still comes in, until the other end closes or a
 * second has passed.
 */
void file_worker_run(int socket_fd, uint8_t request_type, uint32_t stream, const uint8_t *payload, size_t length,
                     const char *default_user) __attribute__((noreturn));

#endif
