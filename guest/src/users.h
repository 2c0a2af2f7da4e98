/*
 * Who a command runs as, from the sandbox's own /etc/passwd and /etc/group. Read anew for each command (`useradd` works)
 * and taken apart here: the guest is static, and name service modules of the image are not ours to run.
 */
#ifndef HOLDFAST_USERS_H
#define HOLDFAST_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define USER_TEXT_MAX 256
#define USER_GROUPS_MAX 64

struct user {
    char name[USER_TEXT_MAX]; /* the number as text if it has no name */
    char home[USER_TEXT_MAX];
    char shell[USER_TEXT_MAX];
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX];
    size_t group_count;
};

/* `who` is a name, a uid or uid:gid. False if there is no such user. */
bool user_find(const char *who, struct user *out);
/* `preferred` if it exists, else root. */
void user_default(const char *preferred, struct user *out);

#endif
