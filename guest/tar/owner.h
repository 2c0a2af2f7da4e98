#ifndef HOLDFAST_TAR_OWNER_H
#define HOLDFAST_TAR_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * `U` or `U:G`, each a name or a number. Without a group: the user's own, or, if the number is nobody's, the same number.
 * Names are looked up in the files of the tree that is written into if `in_root`, else in the system's.
 */
void owner_parse(const char *text, bool in_root, uid_t *uid, gid_t *gid);

#endif
