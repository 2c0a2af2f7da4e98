#include "path.h"

#include <fnmatch.h>
#include <string.h>

struct problem path_clean(struct slice name, size_t max_components, char out[PATH_BYTES]) {
    out[0] = 0;
    if (name.length == 0) return (struct problem){ "hostile", "a name is empty" };
    if (memchr(name.bytes, 0, name.length)) return (struct problem){ "hostile", "a name holds a NUL" };
    size_t length = 0;
    size_t components = 0;
    for (size_t at = 0; at < name.length;) {
        const char *start = name.bytes + at;
        const char *slash = memchr(start, '/', name.length - at);
        size_t run = slash ? (size_t)(slash - start) : name.length - at;
        at += run + 1;
        if (run == 0 || (run == 1 && start[0] == '.')) continue;
        if (run == 2 && start[0] == '.' && start[1] == '.') return (struct problem){ "hostile", "a name contains `..`" };
        if (run > COMPONENT_BYTES) return (struct problem){ "too_large", "a part of a name is over 255 bytes" };
        if (++components > max_components) return (struct problem){ "too_large", "a name has too many parts" };
        if (length + 1 + run >= PATH_BYTES) return (struct problem){ "too_large", "a name is over 4095 bytes" };
        if (length > 0) out[length++] = '/';
        memcpy(out + length, start, run);
        length += run;
        out[length] = 0;
    }
    return (struct problem){ NULL, NULL };
}

bool path_join(const char *first, const char *second, char out[PATH_BYTES]) {
    size_t first_length = strlen(first);
    size_t second_length = strlen(second);
    bool slash = first_length > 0 && second_length > 0;
    if (first_length + slash + second_length >= PATH_BYTES) return false;
    memmove(out + first_length + slash, second, second_length + 1);
    memmove(out, first, first_length);
    if (slash) out[first_length] = '/';
    return true;
}

const char *path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_wild(const char *component) {
    for (; *component; component++) {
        if (*component == '\\' && component[1]) component++;
        else if (strchr("*?[", *component)) return true;
    }
    return false;
}

static bool is_any_depth(const char *component) { return strcmp(component, "**") == 0; }

struct problem selection_parse(const char *glob, struct selection *out) {
    memset(out, 0, sizeof *out);
    struct problem problem = path_clean((struct slice){ glob, strlen(glob) }, COMPONENTS_MAX, out->pattern);
    if (problem.code) return problem;
    for (char *at = out->pattern; *at;) {
        char *slash = strchr(at, '/');
        if (slash) *slash = 0;
        out->components[out->count++] = at;
        at = slash ? slash + 1 : at + strlen(at);
    }
    size_t first_wild = out->count;
    bool any_depth = false;
    for (size_t i = out->count; i-- > 0;) {
        if (is_wild(out->components[i])) first_wild = i;
        if (is_any_depth(out->components[i])) any_depth = true;
    }
    bool last_is_wild = out->count > 0 && is_wild(out->components[out->count - 1]);
    out->keeps_own_name = !last_is_wild && !any_depth;
    out->strip = any_depth ? first_wild : last_is_wild ? out->count - 1 : out->count;
    return problem;
}

bool selection_has_wildcard(const struct selection *selection) {
    for (size_t i = 0; i < selection->count; i++)
        if (is_wild(selection->components[i])) return true;
    return false;
}

static const char *after_component(const char *name) {
    const char *slash = strchr(name, '/');
    return slash ? slash + 1 : name + strlen(name);
}

static bool component_matches(const char *pattern, const char *name) {
    char component[COMPONENT_BYTES + 1];
    const char *slash = strchr(name, '/');
    size_t length = slash ? (size_t)(slash - name) : strlen(name);
    if (length > COMPONENT_BYTES) return false;
    memcpy(component, name, length);
    component[length] = 0;
    return fnmatch(pattern, component, 0) == 0;
}

/*
 * Whether the components match the beginning of `name`. A "**" takes as little as it can and, when what follows does not
 * match, one component more: only the last "**" met has to be tried again.
 */
static bool begins_with(const struct selection *selection, const char *name) {
    const char *at = name;
    size_t next = 0;
    size_t retry = SIZE_MAX;
    const char *retry_at = name;
    while (next < selection->count) {
        if (is_any_depth(selection->components[next])) {
            retry = ++next;
            retry_at = at;
        } else if (*at && component_matches(selection->components[next], at)) {
            next++;
            at = after_component(at);
        } else if (retry != SIZE_MAX && *retry_at) {
            retry_at = after_component(retry_at);
            at = retry_at;
            next = retry;
        } else {
            return false;
        }
    }
    return true;
}

bool selection_map(const struct selection *selection, const char *name, bool is_directory, char out[PATH_BYTES]) {
    if (!begins_with(selection, name)) return false;
    const char *rest = name;
    for (size_t i = 0; i < selection->strip; i++) rest = after_component(rest);
    bool is_file_itself = selection->keeps_own_name && *rest == 0 && !is_directory;
    if (is_file_itself && !selection->as) rest = path_base(name);
    return path_join(selection->as ? selection->as : "", rest, out);
}
