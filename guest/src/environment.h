/* A list of "NAME=value" strings in which a name stands once. */
#ifndef HOLDFAST_ENVIRONMENT_H
#define HOLDFAST_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "users.h"

#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct environment {
    char **entries; /* NULL-terminated once something was set */
    size_t count;
    size_t capacity;
};

/* Takes "NAME=value" of the given length; false with EINVAL if it is not that, or ENOMEM. The last one wins. */
bool environment_put(struct environment *environment, const char *entry, size_t length);
bool environment_set(struct environment *environment, const char *name, const char *value);
const char *environment_get(const struct environment *environment, const char *name);
/* PATH, HOME, USER, LOGNAME and SHELL as this user gets them at login. Nothing of the guest's own environment. */
bool environment_for_user(struct environment *environment, const struct user *user);
void environment_free(struct environment *environment);

#endif
