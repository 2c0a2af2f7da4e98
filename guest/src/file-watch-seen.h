/* What a scan has reported as created, so that the kernel's own news of it is not sent again. */
#ifndef HOLDFAST_FILE_WATCH_SEEN_H
#define HOLDFAST_FILE_WATCH_SEEN_H

#include <stdbool.h>

bool seen_any(void);
void seen_add(int watch, const char *name);
/* True, once, for what was added. */
bool seen_take(int watch, const char *name);
void seen_clear(void);

#endif
