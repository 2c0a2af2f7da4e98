/* The guest's command line; the launcher writes it. */
#ifndef HOLDFAST_OPTIONS_H
#define HOLDFAST_OPTIONS_H

#include <stdbool.h>

struct guest;

/* Fills in what the options say, and `listen_fd`. False after saying what is wrong on stderr. */
bool options_parse(int argc, char **argv, struct guest *guest, int *listen_fd);

#endif
