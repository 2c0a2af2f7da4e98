#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"

int report_fd = STDERR_FILENO;

_Noreturn void die(const char *step, const char *what) {
    int reason = errno;
    char line[1024];
    int length = snprintf(line, sizeof line, "failed %s: %s: %s\n", step, what, strerror(reason));
    if (length >= (int)sizeof line) length = (int)sizeof line - 1;
    if (length > 0 && write(report_fd, line, (size_t)length) < 0) _exit(124);
    _exit(125);
}

static uint64_t parse_bytes(const char *text) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != 0) {
        errno = EINVAL;
        die("arguments", text);
    }
    return value;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "start") == 0) start_main(argc - 2, argv + 2);
    if (strcmp(verb, "disk-remove") == 0 && argc == 3) return disk_remove_main(argv[2]);
    if (strcmp(verb, "disk-usage") == 0 && argc == 3) return disk_usage_main(argv[2]);
    if (strcmp(verb, "disk-limit") == 0 && argc == 4) return disk_limit_main(argv[2], parse_bytes(argv[3]));
    if (strcmp(verb, "disk-settle") == 0 && argc == 3) return disk_settle_main(argv[2]);
    if (strcmp(verb, "disk-clone") == 0 && argc == 4) return disk_clone_main(argv[2], argv[3]);
    if (strcmp(verb, "disk-copy") == 0 && argc == 4) return disk_copy_main(argv[2], argv[3]);
    if (strcmp(verb, "layer-make") == 0 && (argc == 4 || argc == 5))
        return layer_make_main(argv[2], argv[3], argc == 5 ? argv[4] : NULL);
    if (strcmp(verb, "layer-finish") == 0 && argc == 5) return layer_finish_main(argv[2], argv[3], argv[4], NULL, NULL);
    if (strcmp(verb, "layer-finish") == 0 && argc == 7)
        return layer_finish_main(argv[2], argv[3], argv[4], argv[5], argv[6]);
    if (strcmp(verb, "seed-make") == 0 && argc == 3) return seed_make_main(argv[2]);
    if (strcmp(verb, "layer-id") == 0 && argc == 3) return layer_id_main(argv[2]);
    if (strcmp(verb, "quota-enable") == 0 && argc == 3) return quota_enable_main(argv[2]);
    if (strcmp(verb, "reclaim") == 0 && argc == 6)
        return reclaim_main(argv[2], argv[3], parse_bytes(argv[4]), (pid_t)parse_bytes(argv[5]));
    if (strcmp(verb, "watch") == 0 && argc == 2) return watch_main();
    fprintf(stderr, "usage: holdfast-launch start … | disk-remove DIR | disk-usage DIR | disk-limit DIR BYTES |"
                    " disk-settle DIR | disk-clone FROM TO | disk-copy FROM TO | layer-make DIR KIND [SEED] |"
                    " layer-finish DIR KIND synced|written [SEED FRESH] | seed-make POOL | layer-id DIR | quota-enable DIR | reclaim FILE VALUE MILLISECONDS PARENT | watch\n");
    return 125;
}
