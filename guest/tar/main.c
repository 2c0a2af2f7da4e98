/*
 * holdfast-tar: packs and unpacks trees of files.
 *
 *   holdfast-tar unpack --into DIR   a tar stream on stdin, which may be hostile, into a directory
 *   holdfast-tar pack --from DIR     a directory as a tar stream on stdout, the same bytes every time
 *   holdfast-tar measure --from DIR  how many bytes `pack` would write
 *
 * `unpack` and `measure` print one line of JSON on stdout when they are done, `pack` on stderr. A failure is one line of
 * JSON on stderr and exit 1.
 */
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "pack.h"
#include "report.h"
#include "unpack.h"

static const char USAGE[] =
    "holdfast-tar unpack --into DIR [--root DIR [--make]] [--merge] [--chroot] [--lenient-end] [--deletions none|overlay]"
    " [--owner U[:G]] [--mode OCTAL] [--select GLOB]... [--as NAME] [--max-bytes N] [--max-entries N] [--max-depth N]"
    " | pack|measure --from DIR [--deletions none|overlay] [--max-bytes N] [--max-entries N]";

static uint64_t parse_number(const char *text, int base, uint64_t most, const char *problem) {
    if (!*text || strlen(text) > 20) fail("usage", problem);
    uint64_t value = 0;
    for (; *text; text++) {
        if (*text < '0' || *text >= '0' + base) fail("usage", problem);
        uint64_t digit = (uint64_t)(*text - '0');
        if (digit > most || value > (most - digit) / (uint64_t)base) fail("usage", problem);
        value = value * (uint64_t)base + digit;
    }
    return value;
}

static uint64_t parse_limit(const char *text) {
    return parse_number(text, 10, UINT64_MAX, "a limit is a whole number");
}

static bool parse_deletions(const char *text) {
    if (strcmp(text, "overlay") == 0) return true;
    if (strcmp(text, "none") != 0) fail("usage", "--deletions is none or overlay");
    return false;
}

enum { INTO = 1, ROOT, MAKE, MERGE, CHROOT, LENIENT_END, DELETIONS, OWNER, MODE, SELECT, AS, MAX_BYTES, MAX_ENTRIES,
       MAX_DEPTH, FROM };

static void take_unpack_option(struct unpack_options *options, int option, const char *value) {
    switch (option) {
    case INTO: options->into = value; break;
    case ROOT: options->root = value; break;
    case MAKE: options->make = true; break;
    case MERGE: options->merge = true; break;
    case CHROOT: options->confine = true; break;
    case LENIENT_END: options->lenient_end = true; break;
    case DELETIONS: options->overlay_deletions = parse_deletions(value); break;
    case OWNER: options->owner = value; break;
    case MODE:
        options->has_mode = true;
        options->mode = (mode_t)parse_number(value, 8, 07777, "--mode is an octal number up to 7777");
        break;
    case SELECT:
        if (options->selected_count == SELECTIONS_MAX) fail("usage", "too many --select");
        options->selected[options->selected_count++] = value;
        break;
    case AS: options->as = value; break;
    case MAX_BYTES: options->max_bytes = parse_limit(value); break;
    case MAX_ENTRIES: options->max_entries = parse_limit(value); break;
    case MAX_DEPTH:
        options->max_depth = (size_t)parse_number(value, 10, COMPONENTS_MAX, "--max-depth is a number up to 512");
        break;
    default: fail("usage", USAGE);
    }
}

static int unpack_verb(int argc, char **argv) {
    static const struct option KNOWN[] = {
        { "into", required_argument, NULL, INTO },
        { "root", required_argument, NULL, ROOT },
        { "make", no_argument, NULL, MAKE },
        { "merge", no_argument, NULL, MERGE },
        { "chroot", no_argument, NULL, CHROOT },
        { "lenient-end", no_argument, NULL, LENIENT_END },
        { "deletions", required_argument, NULL, DELETIONS },
        { "owner", required_argument, NULL, OWNER },
        { "mode", required_argument, NULL, MODE },
        { "select", required_argument, NULL, SELECT },
        { "as", required_argument, NULL, AS },
        { "max-bytes", required_argument, NULL, MAX_BYTES },
        { "max-entries", required_argument, NULL, MAX_ENTRIES },
        { "max-depth", required_argument, NULL, MAX_DEPTH },
        { NULL, 0, NULL, 0 },
    };
    struct unpack_options options = {
        .max_bytes = UINT64_MAX,
        .max_entries = UINT64_MAX,
        .max_depth = COMPONENTS_MAX,
    };
    for (int option; (option = getopt_long(argc, argv, "", KNOWN, NULL)) != -1;)
        take_unpack_option(&options, option, optarg);
    if (optind != argc || !options.into) fail("usage", USAGE);
    return unpack_main(&options);
}

static int pack_verb(int argc, char **argv, bool measure) {
    static const struct option KNOWN[] = {
        { "from", required_argument, NULL, FROM },
        { "deletions", required_argument, NULL, DELETIONS },
        { "max-bytes", required_argument, NULL, MAX_BYTES },
        { "max-entries", required_argument, NULL, MAX_ENTRIES },
        { NULL, 0, NULL, 0 },
    };
    struct pack_options options = { .measure = measure, .max_bytes = UINT64_MAX, .max_entries = UINT64_MAX };
    for (int option; (option = getopt_long(argc, argv, "", KNOWN, NULL)) != -1;) {
        switch (option) {
        case FROM: options.from = optarg; break;
        case DELETIONS: options.overlay_deletions = parse_deletions(optarg); break;
        case MAX_BYTES: options.max_bytes = parse_limit(optarg); break;
        case MAX_ENTRIES: options.max_entries = parse_limit(optarg); break;
        default: fail("usage", USAGE);
        }
    }
    if (optind != argc || !options.from) fail("usage", USAGE);
    return pack_main(&options);
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    signal(SIGPIPE, SIG_IGN);
    opterr = 0;
    if (strcmp(verb, "unpack") == 0) return unpack_verb(argc - 1, argv + 1);
    if (strcmp(verb, "pack") == 0) return pack_verb(argc - 1, argv + 1, false);
    if (strcmp(verb, "measure") == 0) return pack_verb(argc - 1, argv + 1, true);
    fail("usage", USAGE);
}
