#include "environment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char **find(const struct environment *environment, const char *name, size_t length) {
    for (size_t i = 0; i < environment->count; i++)
        if (strncmp(environment->entries[i], name, length) == 0 && environment->entries[i][length] == '=')
            return &environment->entries[i];
    return NULL;
}

static bool add(struct environment *environment, char *entry) {
    if (environment->count + 1 >= environment->capacity) {
        size_t capacity = environment->capacity ? environment->capacity * 2 : 32;
        char **entries = realloc(environment->entries, capacity * sizeof *entries);
        if (!entries) return false;
        environment->entries = entries;
        environment->capacity = capacity;
    }
    environment->entries[environment->count++] = entry;
    environment->entries[environment->count] = NULL;
    return true;
}

bool environment_put(struct environment *environment, const char *entry, size_t length) {
    const char *equals = length ? memchr(entry, '=', length) : NULL;
    if (!equals || equals == entry || memchr(entry, 0, length)) {
        errno = EINVAL;
        return false;
    }
    char *copy = malloc(length + 1);
    if (!copy) return false;
    memcpy(copy, entry, length);
    copy[length] = 0;
    char **place = find(environment, copy, (size_t)(equals - entry));
    if (place) {
        free(*place);
        *place = copy;
        return true;
    }
    if (add(environment, copy)) return true;
    free(copy);
    return false;
}

bool environment_set(struct environment *environment, const char *name, const char *value) {
    size_t name_length = strlen(name);
    size_t value_length = strlen(value);
    char *entry = malloc(name_length + 1 + value_length);
    if (!entry) return false;
    memcpy(entry, name, name_length);
    entry[name_length] = '=';
    memcpy(entry + name_length + 1, value, value_length);
    bool done = environment_put(environment, entry, name_length + 1 + value_length);
    free(entry);
    return done;
}

const char *environment_get(const struct environment *environment, const char *name) {
    char **place = find(environment, name, strlen(name));
    return place ? *place + strlen(name) + 1 : NULL;
}

bool environment_for_user(struct environment *environment, const struct user *user) {
    return environment_set(environment, "PATH", SECURE_PATH) && environment_set(environment, "HOME", user->home) &&
           environment_set(environment, "USER", user->name) && environment_set(environment, "LOGNAME", user->name) &&
           environment_set(environment, "SHELL", user->shell);
}

void environment_free(struct environment *environment) {
    for (size_t i = 0; i < environment->count; i++) free(environment->entries[i]);
    free(environment->entries);
    memset(environment, 0, sizeof *environment);
}
