#include "pty.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

bool pty_resize(int master, uint16_t columns, uint16_t rows) {
    struct winsize size = { .ws_row = rows, .ws_col = columns };
    return ioctl(master, TIOCSWINSZ, &size) == 0;
}

static int open_slave(int master, uid_t uid) {
    int unlocked = 0;
    if (ioctl(master, TIOCSPTLCK, &unlocked) < 0) return -1;
    /* By descriptor and not by path: what is mounted at /dev/pts does not matter. */
    int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) return -1;
    if (fchown(slave, uid, (gid_t)-1) == 0 && fchmod(slave, 0620) == 0) return slave;
    int error = errno;
    close(slave);
    errno = error;
    return -1;
}

bool pty_open(uid_t uid, uint16_t columns, uint16_t rows, int *master, int *slave) {
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*master < 0) return false;
    *slave = open_slave(*master, uid);
    if (*slave >= 0 && pty_resize(*master, columns, rows)) return true;
    int error = errno;
    if (*slave >= 0) close(*slave);
    close(*master);
    errno = error;
    return false;
}
