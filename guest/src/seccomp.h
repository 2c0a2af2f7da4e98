/* Which system calls commands may not make. */
#ifndef HOLDFAST_SECCOMP_H
#define HOLDFAST_SECCOMP_H

#include <stdbool.h>

/* Installs the filter for this process and all it will start. Needs no_new_privs. False with errno. */
bool seccomp_install(void);

#endif
