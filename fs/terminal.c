#include "fs/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH_DEFAULT 100
#define WIDTH_MIN 40
#define WIDTH_MAX 1000

static unsigned width_of(int fd) {
    const char *columns = getenv("COLUMNS");
    const long said = columns ? strtol(columns, NULL, 10) : 0;
    struct winsize size;
    if (said > 0)
        return said < WIDTH_MIN ? WIDTH_MIN : said > WIDTH_MAX ? WIDTH_MAX : (unsigned)said;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < WIDTH_MIN ? WIDTH_MIN : size.ws_col;
    return WIDTH_DEFAULT;
}

struct ckpt_terminal ckpt_terminal_of(int fd) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    const bool plain = (no_color && *no_color) || !term || strcmp(term, "dumb") == 0;
    return (struct ckpt_terminal){.width = width_of(fd), .colour = isatty(fd) == 1 && !plain};
}
