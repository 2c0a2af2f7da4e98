/* How the program ends. Every failure is one line of JSON on stderr: error, entry (if one was at hand) and code. */
#ifndef HOLDFAST_TAR_REPORT_H
#define HOLDFAST_TAR_REPORT_H

#include "format.h"

/* The entry that is being worked on, named by failures; copied. */
void report_entry(struct slice name);

/* Codes: an errno's name, or hostile, corrupt, truncated, too_large, unsupported, no_match, changed, usage. */
_Noreturn void fail(const char *code, const char *text);
/* By errno. */
_Noreturn void fail_errno(const char *step);

void *allocate(void *former, size_t length);

/*
 * For what is kept until the end, of which a hostile archive or tree may have millions: it fails with "too_large" long
 * before the memory of the host is gone.
 */
char *remember_path(const char *path);
void remember_more(size_t bytes);

#endif
