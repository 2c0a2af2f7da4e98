/* Which system calls commands may not make. */
#ifndef HOLDFAST_SECCOMP_H
#define HOLDFAST_SECCOMP_H

#include <stdbool.h>

/*
 * Installs the filter for this process and all it will start. Needs no_new_privs. False with errno. `host_writable`: a
 * directory of the host can be written inside, so no set-id files may be made.
 */
bool seccomp_install(bool host_writable);

#endif
