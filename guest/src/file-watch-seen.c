#include "file-watch-seen.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 65536
#define BUCKETS 4096

struct seen {
    struct seen *next;
    int watch;
    char name[];
};

/* A worker serves one watch and then ends: one table is all there is. */
static struct seen *buckets[BUCKETS];
static size_t seen_count;

bool seen_any(void) {
    return seen_count > 0;
}

static struct seen **seen_slot(int watch, const char *name) {
    uint32_t hash = 2166136261u ^ (uint32_t)watch;
    for (const char *at = name; *at; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
    struct seen **slot = &buckets[hash % BUCKETS];
    while (*slot && ((*slot)->watch != watch || strcmp((*slot)->name, name) != 0)) slot = &(*slot)->next;
    return slot;
}

void seen_add(int watch, const char *name) {
    struct seen **slot = seen_slot(watch, name);
    if (*slot || seen_count >= SEEN_MAX) return; /* at worst one CREATE comes twice */
    size_t length = strlen(name);
    struct seen *seen = malloc(sizeof *seen + length + 1);
    if (!seen) return;
    seen->next = NULL;
    seen->watch = watch;
    memcpy(seen->name, name, length + 1);
    *slot = seen;
    seen_count++;
}

bool seen_take(int watch, const char *name) {
    if (seen_count == 0) return false;
    struct seen **slot = seen_slot(watch, name);
    struct seen *seen = *slot;
    if (!seen) return false;
    *slot = seen->next;
    free(seen);
    seen_count--;
    return true;
}

void seen_clear(void) {
    for (size_t i = 0; seen_count > 0 && i < BUCKETS; i++)
        while (buckets[i]) {
            struct seen *seen = buckets[i];
            buckets[i] = seen->next;
            free(seen);
            seen_count--;
        }
}
