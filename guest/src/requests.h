/* What the host may ask for; each function answers or opens a stream. */
#ifndef HOLDFAST_REQUESTS_H
#define HOLDFAST_REQUESTS_H

#include "connection.h"

void request_start(const struct request *request);     /* command-start.c */
void request_attach(const struct request *request);    /* command-requests.c */
void request_signal(const struct request *request);
void request_resize(const struct request *request);
void request_forget(const struct request *request);
void request_commands(const struct request *request);  /* listing.c */
void request_configure(const struct request *request); /* requests.c */
void request_shutdown(const struct request *request);
void request_file(const struct request *request);      /* worker.c: STAT to WATCH */
void request_dial(const struct request *request);      /* dial.c */
void request_egress(const struct request *request);    /* egress.c */
void request_accept(const struct request *request);
void request_refuse(const struct request *request);
void request_answer(const struct request *request);    /* egress-dns.c */

/* False if the type is none of ours. */
bool request_dispatch(const struct request *request);

#endif
