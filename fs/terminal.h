#ifndef CKPT_FS_TERMINAL_H
#define CKPT_FS_TERMINAL_H
/* What text on a file descriptor may look like. */
#include <stdbool.h>

struct ckpt_terminal {
    unsigned width;
    bool colour;
};

/* The width is that of $COLUMNS, else of the terminal, else 100. Colours only on a terminal that is
 * not dumb, and not where $NO_COLOR says so. */
struct ckpt_terminal ckpt_terminal_of(int fd);

#endif
