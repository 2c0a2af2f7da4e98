#include "users.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "read-text.h"

#define DATABASE_BYTES_MAX (1024 * 1024)
#define PASSWD_FIELDS 7
#define GROUP_FIELDS 4
/* (uid_t)-1 means "leave as it is" to the kernel, so it is no id. */
#define ID_MAX 4294967294UL

static bool parse_id(const char *text, unsigned long *out) {
    if (text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return errno == 0 && *end == 0 && *out <= ID_MAX;
}

static bool copy_text(char to[USER_TEXT_MAX], const char *from) {
    size_t length = strlen(from);
    if (length >= USER_TEXT_MAX) return false;
    memcpy(to, from, length + 1);
    return true;
}

/* Cuts the next line off *text and splits it at colons; the number of fields, or -1 at the end. */
static int next_record(char **text, char *fields[], int wanted) {
    if (!*text || !**text) return -1;
    char *line = *text;
    char *end = strchr(line, '\n');
    *text = end ? end + 1 : NULL;
    if (end) *end = 0;
    int count = 0;
    for (char *field = line; field && count < wanted; count++) {
        fields[count] = field;
        char *colon = strchr(field, ':');
        if (colon) *colon = 0;
        field = colon ? colon + 1 : NULL;
    }
    return count;
}

static bool take_record(char *fields[], struct user *out) {
    unsigned long uid;
    unsigned long gid;
    if (!parse_id(fields[2], &uid) || !parse_id(fields[3], &gid)) return false;
    if (!copy_text(out->name, fields[0]) || !copy_text(out->home, fields[5]) || !copy_text(out->shell, fields[6]))
        return false;
    if (!out->home[0]) strcpy(out->home, "/");
    if (!out->shell[0]) strcpy(out->shell, "/bin/sh");
    out->uid = (uid_t)uid;
    out->gid = (gid_t)gid;
    return true;
}

/* By name, or by uid if `name` is NULL. */
static bool find_record(const char *name, unsigned long uid, struct user *out) {
    char *database = read_path("/etc/passwd", DATABASE_BYTES_MAX, NULL);
    if (!database) return false;
    char *cursor = database;
    char *fields[PASSWD_FIELDS];
    bool found = false;
    for (int count; !found && (count = next_record(&cursor, fields, PASSWD_FIELDS)) >= 0;) {
        unsigned long id;
        if (count < PASSWD_FIELDS || !parse_id(fields[2], &id)) continue;
        if (name ? strcmp(fields[0], name) == 0 : id == uid) found = take_record(fields, out);
    }
    free(database);
    return found;
}

static bool lists_member(const char *members, const char *name) {
    size_t length = strlen(name);
    while (*members) {
        size_t run = strcspn(members, ",");
        if (run == length && memcmp(members, name, length) == 0) return true;
        members += run;
        if (*members == ',') members++;
    }
    return false;
}

static void find_groups(struct user *user) {
    user->group_count = 0;
    user->groups[user->group_count++] = user->gid;
    char *database = read_path("/etc/group", DATABASE_BYTES_MAX, NULL);
    if (!database) return;
    char *cursor = database;
    char *fields[GROUP_FIELDS];
    for (int count; (count = next_record(&cursor, fields, GROUP_FIELDS)) >= 0;) {
        unsigned long gid;
        if (count < GROUP_FIELDS || !parse_id(fields[2], &gid) || gid == user->gid) continue;
        if (user->group_count < USER_GROUPS_MAX && lists_member(fields[3], user->name))
            user->groups[user->group_count++] = (gid_t)gid;
    }
    free(database);
}

/* A number need not be in the database: images are run with made-up uids. */
static bool find_by_number(const char *who, struct user *out) {
    char text[64];
    if (strlen(who) >= sizeof text) return false;
    strcpy(text, who);
    char *colon = strchr(text, ':');
    if (colon) *colon = 0;
    unsigned long uid;
    unsigned long gid = 0;
    if (!parse_id(text, &uid) || (colon && !parse_id(colon + 1, &gid))) return false;
    if (!find_record(NULL, uid, out)) {
        snprintf(out->name, sizeof out->name, "%lu", uid);
        strcpy(out->home, "/");
        strcpy(out->shell, "/bin/sh");
        out->uid = (uid_t)uid;
        out->gid = uid == 0 ? 0 : (gid_t)uid;
    }
    if (colon) out->gid = (gid_t)gid;
    return true;
}

bool user_find(const char *who, struct user *out) {
    memset(out, 0, sizeof *out);
    if (!who[0]) return false;
    if (!find_record(who, 0, out) && !find_by_number(who, out)) return false;
    find_groups(out);
    return true;
}

void user_default(const char *preferred, struct user *out) {
    if (preferred && user_find(preferred, out)) return;
    if (user_find("0", out)) return;
    memset(out, 0, sizeof *out);
}
