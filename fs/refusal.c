#include "fs/refusal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

struct reason {
    const char *part; /* of what they say */
    int code;
    const char *sentence;
};

static const struct reason reasons[] = {
    {"user_allow_other", -EPERM,
     "allow_other and allow_root are for root, unless /etc/fuse.conf has the line "
     "user_allow_other"},
    {"failed to exec fusermount3", -ENODEV,
     "fusermount3, which mounts for other users than root, is not to be had: install the package "
     "fuse3"},
    {"mount failed: Operation not permitted", -EPERM,
     "fusermount3 may not mount: it must be setuid root, and in a user namespace you must be its "
     "root (unshare -Urm)"},
    {"no write access to mountpoint", -EPERM,
     "other users than root can mount only where they may write"},
    {"not owned by user", -EPERM, "in a sticky directory only its owner can mount"},
    {"mount_max", -EPERM,
     "too many FUSE mounts of other users than root: mount_max=N in /etc/fuse.conf is the limit"},
};

static const struct reason *find_reason(const char *text) {
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (strstr(text, reasons[i].part))
            return &reasons[i];
    return NULL;
}

static bool is_about_permission(const char *text) {
    return strstr(text, "ermi") /* "Permission denied", "not permitted" */ ||
           strstr(text, "only allowed");
}

/* Their first line, without their names. */
static const char *first_line(char *text) {
    text[strcspn(text, "\n")] = '\0';
    const char *const colon = strncmp(text, "fuse", 4) == 0 ? strstr(text, ": ") : NULL;
    return colon ? colon + 2 : text;
}

int ckpt_refusal_of(int said, const char *absolute, struct ckpt_err *err) {
    char text[512] = "";
    const ssize_t n = pread(said, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    const char *const why = first_line(text);
    const struct reason *r = find_reason(why);
    if (r)
        return ckpt_fail(err, r->code, "mounting on %s failed: %s", absolute, r->sentence);
    return ckpt_fail(err, is_about_permission(why) ? -EPERM : -EBUSY, "mounting on %s failed: %s",
                     absolute, *why ? why : "no reason was given");
}

int ckpt_refusal_of_device(struct ckpt_err *err) {
    CKPT_AUTO(fd) const int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return 0;
    if (errno == EACCES || errno == EPERM)
        return ckpt_fail(err, -EACCES,
                         "/dev/fuse may not be opened: %s (root makes it usable by "
                         "all with chmod 666 /dev/fuse); --export and --cat work without it",
                         strerror(errno));
    if (errno == EMFILE || errno == ENFILE)
        return ckpt_fail(err, -errno, "/dev/fuse cannot be opened: %s", strerror(errno));
    return ckpt_fail(
        err, -ENODEV,
        "/dev/fuse cannot be opened: %s (modprobe fuse; a container needs the device); "
        "--export and --cat work without it",
        strerror(errno));
}
