#include "sudo-options.h"

#include <stdio.h>
#include <string.h>

/* Single letters that take a value; and those that mean nothing where no password is ever asked for. */
static const char with_value[] = "ugphCTrtDR";
static const char without_meaning[] = "nSAbBPN";

static void usage(void) {
    fprintf(stderr, "usage: sudo [-EHikKlnSsvV] [-u user] [VAR=value] [--] [command [arg ...]]\n");
}

static bool apply_letter(char letter, const char *value, struct sudo_options *out) {
    switch (letter) {
        case 'u': out->user = value[0] == '#' ? value + 1 : value; return true;
        case 'E': out->keep_environment = true; return true;
        case 'H': out->set_home = true; return true;
        case 'i': out->login = true; return true;
        case 's': out->shell = true; return true;
        case 'l': out->list = out->nothing_to_run = true; return true;
        case 'v':
        case 'V':
        case 'K': out->nothing_to_run = true; return true;
        case 'k': return true; /* with a command: run it without cached credentials, which there are none of */
        case 'p':
        case 'C':
        case 'T': return true; /* password prompt, descriptor limit, timeout of the prompt */
        default: break;
    }
    if (strchr(without_meaning, letter)) return true;
    fprintf(stderr, "sudo: option -%c is not supported in a sandbox\n", letter);
    usage();
    return false;
}

static char letter_of(const char *name, size_t length) {
    static const struct {
        const char *name;
        char letter;
    } names[] = {
        { "user", 'u' }, { "preserve-env", 'E' }, { "set-home", 'H' }, { "login", 'i' }, { "shell", 's' },
        { "list", 'l' }, { "validate", 'v' }, { "version", 'V' }, { "remove-timestamp", 'K' },
        { "reset-timestamp", 'k' }, { "non-interactive", 'n' }, { "stdin", 'S' }, { "prompt", 'p' },
        { "askpass", 'A' }, { "bell", 'B' },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == length && strncmp(names[i].name, name, length) == 0) return names[i].letter;
    return 0;
}

/* Parses argv[*at], which begins with "--", and its value if that is the next word. */
static bool parse_long(char **argv, int *at, struct sudo_options *out) {
    const char *name = argv[*at] + 2;
    size_t length = strcspn(name, "=");
    char letter = letter_of(name, length);
    if (!letter) {
        fprintf(stderr, "sudo: unknown option %s\n", argv[*at]);
        usage();
        return false;
    }
    const char *value = name[length] ? name + length + 1 : NULL;
    if (!value && strchr(with_value, letter)) value = argv[++*at];
    if (!value && strchr(with_value, letter)) {
        usage();
        return false;
    }
    return apply_letter(letter, value, out);
}

/* Parses argv[*at], a group of letters such as -nE or -uroot. */
static bool parse_letters(char **argv, int *at, struct sudo_options *out) {
    for (const char *letter = argv[*at] + 1; *letter; letter++) {
        if (!strchr(with_value, *letter)) {
            if (!apply_letter(*letter, NULL, out)) return false;
            continue;
        }
        const char *value = letter[1] ? letter + 1 : argv[++*at];
        if (value) return apply_letter(*letter, value, out);
        usage();
        return false;
    }
    return true;
}

bool sudo_options_parse(int argc, char **argv, struct sudo_options *out) {
    memset(out, 0, sizeof *out);
    out->user = "0"; /* root, whatever it is called */
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (!(argv[at][1] == '-' ? parse_long(argv, &at, out) : parse_letters(argv, &at, out))) return false;
    }
    if (at > argc) at = argc;
    out->assignments = argv + at;
    while (at < argc && strchr(argv[at], '=') && argv[at][0] != '=') {
        out->assignment_count++;
        at++;
    }
    out->words = argv + at;
    if (at < argc || out->login || out->shell) return true;
    bool forget_only = argc == 2 && strcmp(argv[1], "-k") == 0;
    out->nothing_to_run = out->nothing_to_run || forget_only;
    if (!out->nothing_to_run) usage();
    return out->nothing_to_run;
}
