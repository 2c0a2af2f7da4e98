#include "truth-text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STAT_COLUMNS 10
#define STAT_WIDTH 14

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* ---- meminfo ---- */

struct meminfo_value {
    const char *name;
    uint64_t bytes;
};

static const struct meminfo_value *find_value(const struct meminfo_value *values, size_t count, const char *line,
                                              size_t length) {
    for (size_t i = 0; i < count; i++)
        if (strlen(values[i].name) == length && strncmp(values[i].name, line, length) == 0) return &values[i];
    return NULL;
}

/* Properties of the kernel, not amounts of memory. */
static bool is_constant(const char *line) {
    return strncmp(line, "Vmalloc", 7) == 0 || strncmp(line, "Hugepagesize:", 13) == 0;
}

char *truth_meminfo(const char *real, uint64_t total, const struct cgroup_memory *memory) {
    uint64_t used = memory->used_bytes < total ? memory->used_bytes : total;
    uint64_t cache = memory->cache_bytes < used ? memory->cache_bytes : used;
    uint64_t inactive = memory->inactive_bytes < cache ? memory->inactive_bytes : cache;
    uint64_t anonymous = used - cache;
    const struct meminfo_value values[] = {
        { "MemTotal", total },           { "MemFree", total - used },
        { "MemAvailable", total - used + inactive },
        { "Cached", cache },             { "Active", anonymous + cache - inactive },
        { "Inactive", inactive },        { "Active(anon)", anonymous },
        { "Active(file)", cache - inactive }, { "Inactive(file)", inactive },
        { "AnonPages", anonymous },      { "CommitLimit", total },
        { "Committed_AS", anonymous },
    };
    size_t lines = 0;
    for (const char *line = real; *line; line = next_line(line)) lines++;
    size_t size = strlen(real) + lines * 32 + 1;
    char *text = malloc(size);
    if (!text) return NULL;
    size_t used_text = 0;
    for (const char *line = real; *line; line = next_line(line)) {
        size_t length = strcspn(line, "\n");
        size_t name = strcspn(line, ":\n");
        const struct meminfo_value *value = find_value(values, sizeof values / sizeof values[0], line, name);
        bool in_kib = length > 3 && strncmp(line + length - 3, " kB", 3) == 0;
        int written;
        if (is_constant(line) || line[name] != ':')
            written = snprintf(text + used_text, size - used_text, "%.*s\n", (int)length, line);
        else
            written = snprintf(text + used_text, size - used_text, "%.*s:%*s%10" PRIu64 "%s\n", (int)name, line,
                               name < 14 ? (int)(14 - name) : 0, "", value ? value->bytes / 1024 : 0,
                               in_kib ? " kB" : "");
        if (written < 0 || (size_t)written >= size - used_text) break;
        used_text += (size_t)written;
    }
    text[used_text] = 0;
    return text;
}

/* ---- stat ---- */

/* "cpu3 …" but not "cpu  …" */
static bool is_numbered_cpu(const char *line) {
    return strncmp(line, "cpu", 3) == 0 && isdigit((unsigned char)line[3]);
}

size_t truth_count_cpus(const char *stat) {
    size_t count = 0;
    for (const char *line = stat; *line; line = next_line(line)) count += is_numbered_cpu(line);
    return count;
}

static int print_cpu(char *to, size_t size, const char *name, const uint64_t columns[STAT_COLUMNS]) {
    int used = snprintf(to, size, "%-4s", name);
    for (int i = 0; i < STAT_COLUMNS; i++)
        used += snprintf(to + used, size - (size_t)used, " %*" PRIu64, STAT_WIDTH, columns[i]);
    return used + snprintf(to + used, size - (size_t)used, "\n");
}

static void read_columns(const char *line, uint64_t columns[STAT_COLUMNS]) {
    const char *cursor = line + strcspn(line, " \n");
    for (int i = 0; i < STAT_COLUMNS; i++) {
        char *end;
        columns[i] = *cursor == '\n' ? 0 : strtoull(cursor, &end, 10);
        if (*cursor != '\n') cursor = end;
    }
}

char *truth_stat(const char *real, size_t cpus) {
    size_t line_size = 32 + STAT_COLUMNS * (STAT_WIDTH + 8);
    size_t size = strlen(real) + (cpus + 2) * line_size + 1;
    char *text = malloc(size);
    if (!text) return NULL;
    /* The sum goes first, but is known last: its line has a constant length. */
    uint64_t sum[STAT_COLUMNS] = { 0 };
    size_t used = (size_t)print_cpu(text, size, "cpu", sum);
    size_t shown = 0;
    for (const char *line = real; *line; line = next_line(line)) {
        if (is_numbered_cpu(line) && shown < cpus) {
            uint64_t columns[STAT_COLUMNS];
            char name[24];
            read_columns(line, columns);
            for (int i = 0; i < STAT_COLUMNS; i++) sum[i] += columns[i];
            snprintf(name, sizeof name, "cpu%zu", shown++);
            used += (size_t)print_cpu(text + used, size - used, name, columns);
        } else if (strncmp(line, "cpu", 3) != 0) {
            size_t length = (size_t)(next_line(line) - line);
            memcpy(text + used, line, length);
            used += length;
        }
    }
    text[used] = 0;
    char *first_line = malloc(line_size);
    if (first_line) {
        int length = print_cpu(first_line, line_size, "cpu", sum);
        memcpy(text, first_line, (size_t)length);
        free(first_line);
    }
    return text;
}

/* ---- cpuinfo ---- */

char *truth_cpuinfo(const char *real, size_t cpus) {
    char *text = malloc(strlen(real) + cpus * 24 + 1);
    if (!text) return NULL;
    size_t used = 0;
    size_t seen = 0;
    for (const char *line = real; *line; line = next_line(line)) {
        size_t length = (size_t)(next_line(line) - line);
        bool first_of_block = strncmp(line, "processor", 9) == 0 && (line[9] == '\t' || line[9] == ' ');
        if (first_of_block && ++seen > cpus) break;
        if (first_of_block) {
            used += (size_t)sprintf(text + used, "processor\t: %zu\n", seen - 1);
        } else {
            memcpy(text + used, line, length);
            used += length;
        }
    }
    text[used] = 0;
    return text;
}
