/* The command line of sudo, as far as scripts use it. */
#ifndef HOLDFAST_SUDO_OPTIONS_H
#define HOLDFAST_SUDO_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct sudo_options {
    const char *user; /* name or number */
    bool keep_environment; /* -E */
    bool set_home;         /* -H */
    bool login;            /* -i */
    bool shell;            /* -s */
    bool list;             /* -l */
    bool nothing_to_run;   /* -v, -k, -K, -l, -V: fine, and done */
    char **assignments;    /* VAR=value before the command */
    size_t assignment_count;
    char **words;          /* the command, NULL-terminated */
};

/* False after saying what is wrong. Nothing is copied: it points into argv. */
bool sudo_options_parse(int argc, char **argv, struct sudo_options *out);

#endif
