/* What a new process gives up before it runs anything untrusted. Called in the child, between fork and exec. */
#ifndef HOLDFAST_CONFINE_H
#define HOLDFAST_CONFINE_H

#include <stdbool.h>

#include "users.h"

struct guest;

/* Rlimits and CPUs. What is not permitted stays as it is: cgroups are what holds. */
void confine_resources(const struct guest *guest);
/* Becomes the user, with at most the capabilities of a container's root. False with errno. */
bool confine_identity(const struct guest *guest, const struct user *user);
/*
 * For a file worker, which stays root inside but follows paths that the sandbox made: it may do no more than a command
 * of root's. False with errno.
 */
bool confine_worker(const struct guest *guest);
/* no_new_privs and the system call filter. False with errno. */
bool confine_system_calls(const struct guest *guest);

#endif
