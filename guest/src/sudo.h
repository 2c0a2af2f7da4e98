/*
 * sudo inside the sandbox. no_new_privs makes a setuid sudo powerless, so `sudo` is this same program under another
 * name: it hands its descriptors, arguments and directory to the guest, which is root and starts the program in the
 * caller's cgroup. Every user may do this: what root may do inside is bounded by the sandbox, not by sudo.
 *
 * The socket is SOCK_SEQPACKET: a packet is a message. The client sends one request with descriptors, then a byte per
 * signal; the server answers with one sudo_answer when the program has ended (or was never started).
 */
#ifndef HOLDFAST_SUDO_H
#define HOLDFAST_SUDO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "list.h"
#include "loop.h"

/* An abstract name (the first byte is NUL), so it lives and dies with the sandbox's network namespace. */
#define SUDO_SOCKET_NAME "holdfast-sudo"
#define SUDO_REQUEST_BYTES_MAX (160 * 1024)

/* The request's body is fields (frame.h): FIELD_ARG…, FIELD_ENV…, and FIELD_USER if not root. With it come: */
enum { SUDO_FD_CWD, SUDO_FD_STDIN, SUDO_FD_STDOUT, SUDO_FD_STDERR, SUDO_FD_COUNT };

struct sudo_answer {
    int32_t status; /* as from wait(), if error is 0 */
    int32_t error;
    char message[248];
};

struct guest;

struct sudo_server {
    struct watch listener;
    struct list sessions;
    size_t session_count;
};

/* Binds and listens; false with errno. */
bool sudo_server_start(struct guest *guest);
/* What the program does when it is called `sudo`. */
int sudo_client_main(int argc, char **argv, char **environ_in);

#endif
