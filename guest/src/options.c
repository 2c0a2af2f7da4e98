#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest.h"

static bool parse_number(const char *text, uint64_t most, uint64_t *out) {
    if (text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end || number > most) return false;
    *out = number;
    return true;
}

static bool parse_fd(const char *text, int *out) {
    uint64_t number;
    if (!parse_number(text, INT_MAX, &number)) return false;
    *out = (int)number;
    return true;
}

static bool parse_cgroup(const char *text, struct cgroups *cgroups) {
    if (strncmp(text, "memory=", 7) == 0) return parse_fd(text + 7, &cgroups->memory);
    if (strncmp(text, "pids=", 5) == 0) return parse_fd(text + 5, &cgroups->pids);
    if (strncmp(text, "unified=", 8) == 0) return parse_fd(text + 8, &cgroups->unified);
    return false;
}

static bool parse_option(const char *name, const char *value, struct guest *guest, int *listen_fd) {
    if (strcmp(name, "--listen-fd") == 0) return parse_fd(value, listen_fd);
    if (strcmp(name, "--cgroup") == 0) return parse_cgroup(value, &guest->cgroups);
    if (strcmp(name, "--spill-fd") == 0) return parse_fd(value, &guest->spill_fd);
    if (strcmp(name, "--cpu-millis") == 0) return parse_number(value, UINT32_MAX, &guest->budget.cpu_millis);
    if (strcmp(name, "--memory-bytes") == 0) return parse_number(value, INT64_MAX, &guest->budget.memory_bytes);
    if (strcmp(name, "--pids") == 0) return parse_number(value, UINT32_MAX, &guest->budget.pids);
    if (strcmp(name, "--orphan-ms") == 0) return parse_number(value, INT64_MAX, &guest->budget.orphan_ms);
    if (strcmp(name, "--default-user") != 0) return false;
    guest->default_user = value;
    return true;
}

bool options_parse(int argc, char **argv, struct guest *guest, int *listen_fd) {
    guest->cgroups = (struct cgroups){ .memory = -1, .pids = -1, .unified = -1 };
    guest->spill_fd = -1;
    *listen_fd = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--outside") == 0) {
            guest->outside = true;
        } else if (strcmp(argv[i], "--host-writable") == 0) {
            guest->host_writable = true;
        } else if (strcmp(argv[i], "--spare") == 0) {
            guest->spare.wanted = true;
        } else if (strcmp(argv[i], "--egress") == 0) {
            guest->egress.enabled = true;
        } else if (i + 1 >= argc || !parse_option(argv[i], argv[i + 1], guest, listen_fd)) {
            fprintf(stderr, "holdfast-guest: bad option %s %s\n", argv[i], i + 1 < argc ? argv[i + 1] : "");
            return false;
        } else {
            i++;
        }
    }
    if (*listen_fd < 0) fprintf(stderr, "holdfast-guest: --listen-fd is missing\n");
    return *listen_fd >= 0;
}
