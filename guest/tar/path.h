/* Names of entries, judged and brought into one form; and which entries are wanted. Pure. */
#ifndef HOLDFAST_TAR_PATH_H
#define HOLDFAST_TAR_PATH_H

#include "format.h"

/* With the NUL: what the kernel takes. */
#define PATH_BYTES 4096
#define COMPONENT_BYTES 255
#define COMPONENTS_MAX 512

/*
 * Writes components joined by single slashes, none of them "." or "..", no slash at either end; "" is the top itself. The
 * problem, if it may not be used.
 */
struct problem path_clean(struct slice name, size_t max_components, char out[PATH_BYTES]);

/* False: too long. `first` may be empty. */
bool path_join(const char *first, const char *second, char out[PATH_BYTES]);

/* The last component. */
const char *path_base(const char *path);

/*
 * A glob, component by component. What lies below a match is wanted too. What the names lose: with a wildcard in the last
 * component all before it; with "**" all before the first wildcard; without a wildcard in the last component a directory's
 * own path, while a file keeps its last component.
 */
struct selection {
    char pattern[PATH_BYTES]; /* cleaned, slashes replaced by NULs */
    const char *components[COMPONENTS_MAX];
    size_t count;
    size_t strip;        /* components that go, unless the match is a file itself */
    bool keeps_own_name; /* a match that is a file keeps its last component */
    const char *as;      /* or takes this name; so does a directory. NULL: none */
};

struct problem selection_parse(const char *glob, struct selection *out);
bool selection_has_wildcard(const struct selection *selection);
/* Whether `name`, cleaned, is wanted, and what it is called then: always shorter than PATH_BYTES, or it is not wanted. */
bool selection_map(const struct selection *selection, const char *name, bool is_directory, char out[PATH_BYTES]);

#endif
