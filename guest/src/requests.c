#include "requests.h"

#include "guest.h"

void request_configure(const struct request *request) {
    struct budget *budget = &request->guest->budget;
    const uint8_t *payload = request->payload;
    size_t length = request->length;
    budget->cpu_millis = fields_u64(payload, length, FIELD_CPU_MILLIS, budget->cpu_millis);
    budget->memory_bytes = fields_u64(payload, length, FIELD_MEMORY_BYTES, budget->memory_bytes);
    budget->pids = fields_u64(payload, length, FIELD_PIDS, budget->pids);
    budget->orphan_ms = fields_u64(payload, length, FIELD_ORPHAN_MS, budget->orphan_ms);
    guest_budget_changed(request->guest);
    answer_done(request);
}

void request_shutdown(const struct request *request) {
    answer_done(request);
    guest_stop(request->guest);
}

bool request_dispatch(const struct request *request) {
    switch (request->type) {
        case FRAME_START: request_start(request); return true;
        case FRAME_ATTACH: request_attach(request); return true;
        case FRAME_SIGNAL: request_signal(request); return true;
        case FRAME_RESIZE: request_resize(request); return true;
        case FRAME_COMMANDS: request_commands(request); return true;
        case FRAME_FORGET: request_forget(request); return true;
        case FRAME_CONFIGURE: request_configure(request); return true;
        case FRAME_SHUTDOWN: request_shutdown(request); return true;
        case FRAME_STAT:
        case FRAME_LIST:
        case FRAME_READ:
        case FRAME_WRITE:
        case FRAME_MKDIR:
        case FRAME_MOVE:
        case FRAME_REMOVE:
        case FRAME_WATCH: request_file(request); return true;
        case FRAME_DIAL: request_dial(request); return true;
        case FRAME_EGRESS: request_egress(request); return true;
        case FRAME_ACCEPT: request_accept(request); return true;
        case FRAME_REFUSE: request_refuse(request); return true;
        case FRAME_ANSWER: request_answer(request); return true;
        default: return false;
    }
}
