/* The names of the ids that own files, from the sandbox's own files, read once per request. */
#include <stdlib.h>
#include <string.h>

#include "file-internal.h"
#include "read-text.h"

#define OWNER_FILE_MAX ((size_t)1 << 20)
#define OWNER_SLOTS 16

/* A listing asks for the same few ids again and again. */
struct owner_database {
    const char *path;
    bool loaded;
    char *text;
    struct {
        bool known;
        uint32_t id;
        char name[USER_TEXT_MAX];
    } slots[OWNER_SLOTS];
};

static struct owner_database users = { .path = "/etc/passwd" };
static struct owner_database groups = { .path = "/etc/group" };

/* Both files have the name in the first and the id in the third column. */
static bool line_names(const char *line, size_t length, uint32_t id, char out[USER_TEXT_MAX]) {
    const char *end = line + length;
    const char *first = memchr(line, ':', length);
    const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
    if (!second || first == line || (size_t)(first - line) >= USER_TEXT_MAX) return false;
    const char *digit = second + 1;
    uint64_t value = 0;
    while (digit < end && *digit >= '0' && *digit <= '9' && value <= UINT32_MAX) value = value * 10 + (uint64_t)(*digit++ - '0');
    if (digit == second + 1 || (digit < end && *digit != ':') || value != id) return false;
    memcpy(out, line, (size_t)(first - line));
    out[first - line] = 0;
    return true;
}

static const char *look_up(struct owner_database *database, uint32_t id) {
    if (!database->loaded) {
        database->loaded = true;
        database->text = read_path(database->path, OWNER_FILE_MAX, NULL); /* none: ids without names */
    }
    char *name = database->slots[id % OWNER_SLOTS].name;
    if (database->slots[id % OWNER_SLOTS].known && database->slots[id % OWNER_SLOTS].id == id) return name;
    database->slots[id % OWNER_SLOTS].known = true;
    database->slots[id % OWNER_SLOTS].id = id;
    name[0] = 0;
    for (const char *line = database->text; line && *line;) {
        size_t length = strcspn(line, "\n");
        if (line_names(line, length, id, name)) break;
        line += length + (line[length] ? 1 : 0);
    }
    return name;
}

const char *owner_name(uid_t uid) { return look_up(&users, uid); }
const char *owner_group(gid_t gid) { return look_up(&groups, gid); }
