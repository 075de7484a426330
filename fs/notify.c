#include "fs/notify.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"

/* The length of the address; 0: there is none. `@` stands for the NUL of an abstract one. */
static socklen_t manager_address(struct sockaddr_un *address) {
    const char *name = getenv("NOTIFY_SOCKET");
    const size_t n = name ? strlen(name) : 0;
    if (n < 2 || n >= sizeof address->sun_path || (name[0] != '/' && name[0] != '@'))
        return 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, name, n);
    if (name[0] == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

void ckpt_notify(const char *fmt, ...) {
    struct sockaddr_un address;
    const socklen_t n = manager_address(&address);
    if (n == 0)
        return;
    char text[512]; /* a STATUS that is longer is cut */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CKPT_AUTO(fd) const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    const ssize_t sent =
        sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&address, n);
    (void)sent;
}

void ckpt_notify_stopping(void) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        ckpt_notify("STOPPING=1");
}
