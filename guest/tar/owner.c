#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"
#include "root.h"

/* (uid_t)-1 means "leave as it is" to the kernel, so it is no id. */
#define ID_MAX 4294967294UL
#define FIELDS 4 /* both files: name, password, id, and in passwd the group */

static bool parse_id(const char *text, unsigned long *out) {
    if (text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return errno == 0 && *end == 0 && *out <= ID_MAX;
}

static size_t split(char *line, char *fields[FIELDS]) {
    line[strcspn(line, "\n")] = 0;
    size_t count = 0;
    for (char *at = line; at && count < FIELDS; count++) {
        fields[count] = at;
        at = strchr(at, ':');
        if (at) *at++ = 0;
    }
    return count;
}

/* By name, or by number if `number` is given; the group only of passwd. */
static bool look_up(const char *path, bool in_root, const char *name, const unsigned long *number, unsigned long *id,
                    unsigned long *group) {
    int fd = in_root ? root_open_at(path, O_RDONLY | O_NONBLOCK) : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        if (fd >= 0) close(fd);
        return false;
    }
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    while (!found && getline(&line, &capacity, file) >= 0) {
        char *fields[FIELDS];
        size_t count = split(line, fields);
        if (count < 3 || !parse_id(fields[2], id)) continue;
        if (group && (count < 4 || !parse_id(fields[3], group))) continue;
        found = number ? *id == *number : strcmp(fields[0], name) == 0;
    }
    free(line);
    fclose(file);
    return found;
}

void owner_parse(const char *text, bool in_root, uid_t *uid, gid_t *gid) {
    char user[256];
    size_t length = strcspn(text, ":");
    const char *group = text[length] ? text + length + 1 : "";
    if (length == 0 || length >= sizeof user) fail("usage", "--owner is a user, or a user and a group: U or U:G");
    memcpy(user, text, length);
    user[length] = 0;

    unsigned long user_id;
    unsigned long group_id;
    unsigned long found;
    if (parse_id(user, &user_id)) {
        if (!look_up("/etc/passwd", in_root, NULL, &user_id, &found, &group_id)) group_id = user_id;
    } else if (!look_up("/etc/passwd", in_root, user, NULL, &user_id, &group_id)) {
        fail("unknown_user", "the user of --owner is not in /etc/passwd");
    }
    if (group[0] && !parse_id(group, &group_id) && !look_up("/etc/group", in_root, group, NULL, &group_id, NULL))
        fail("unknown_group", "the group of --owner is not in /etc/group");
    *uid = (uid_t)user_id;
    *gid = (gid_t)group_id;
}
