#include "inflow.h"

#include <errno.h>
#include <sys/socket.h>

#include "stream.h"

enum inflow_state inflow_flush(struct inflow *inflow, int socket, struct stream *stream) {
    enum inflow_state state = INFLOW_DRAINED;
    while (buffer_length(&inflow->pending) > 0) {
        ssize_t sent = send(socket, buffer_head(&inflow->pending), buffer_length(&inflow->pending),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            buffer_consume(&inflow->pending, (size_t)sent);
        } else if (errno == EAGAIN) {
            return INFLOW_BLOCKED;
        } else if (errno != EINTR) {
            state = INFLOW_BROKEN;
            break;
        }
    }
    buffer_release(&inflow->pending);
    stream_grant(stream, inflow->unacknowledged);
    inflow->unacknowledged = 0;
    return state;
}
