/*
 * --export: model.safetensors, or model.bpk for an OUT that ends in .bpk, into a file, without
 * FUSE. Written under a temporary name beside OUT and renamed when it is whole and on the disk; on
 * failure or a signal nothing is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/session.h"

#define PIECE (4u << 20)
#define BAR 40 /* characters */

static volatile sig_atomic_t caught;

static void catch (int signal) {
    caught = signal;
}

static void catch_signals(void) {
    const struct sigaction action = {.sa_handler = catch}; /* no SA_RESTART: writes end early */
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}

static void show_progress(uint64_t done, uint64_t size) {
    static int last = -1;
    const int percent = size ? (int)((double)done / (double)size * 100) : 100;
    if (percent == last)
        return;
    last = percent;
    const int full = percent * BAR / 100;
    fprintf(stderr, "\r[%.*s%*s] %3d%%%s", full, "########################################",
            BAR - full, "", percent, percent == 100 ? "\n" : "");
}

/* Better refused now than when the disk is full. Filesystems that can't tell say 0 blocks. */
static int check_room(int fd, uint64_t size, const char *out, struct ckpt_err *err) {
    struct statvfs fs;
    if (fstatvfs(fd, &fs) != 0 || fs.f_blocks == 0)
        return 0;
    uint64_t room;
    if (__builtin_mul_overflow(fs.f_bavail, fs.f_frsize, &room) || size <= room)
        return 0;
    return ckpt_fail(err, -ENOSPC,
                     "%s would have %llu bytes, and its filesystem has room for %llu: free some or "
                     "choose another folder",
                     out, (unsigned long long)size, (unsigned long long)room);
}

static int write_all(struct ckpt_session *s, struct ckpt_vfile *f, int fd, struct ckpt_err *err) {
    const bool bar = isatty(STDERR_FILENO);
    const uint64_t size = ckpt_vfile_size(f);
    for (uint64_t off = 0; off < size;) {
        const uint64_t left = size - off;
        const size_t n = left < PIECE ? (size_t)left : PIECE;
        const int rc = ckpt_vfile_write(f, s->reader, off, n, fd, err);
        if (rc < 0)
            return rc;
        if (caught)
            return ckpt_fail(err, -EINTR, "interrupted after %llu of %llu bytes; nothing was kept",
                             (unsigned long long)off, (unsigned long long)size);
        off += n;
        if (bar)
            show_progress(off, size);
    }
    return 0;
}

/* OUT must not be one of the files that are read. */
static int check_target(const struct ckpt_session *s, const char *out, struct ckpt_err *err) {
    struct stat st;
    if (!*out)
        return ckpt_fail(err, -EINVAL, "--export needs the name of a file");
    if (stat(out, &st) != 0)
        return 0;
    if (!S_ISREG(st.st_mode))
        return ckpt_fail(err, -EINVAL, "%s is no regular file", out);
    for (size_t i = 0; i < s->checkpoint->nfiles; i++) {
        const struct ckpt_file *f = s->checkpoint->files[i];
        if (f->dev == st.st_dev && f->ino == st.st_ino)
            return ckpt_fail(err, -EACCES, "%s is the source itself: choose another name", out);
    }
    return 0;
}

/* Data and directory entry are on the disk before success is reported. */
static int commit(int fd, const char *temporary, const char *out, struct ckpt_err *err) {
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) != 0 || fsync(fd) != 0)
        return ckpt_fail(err, -errno, "writing %s: %s", out, strerror(errno));
    if (rename(temporary, out) != 0)
        return ckpt_fail(err, -errno, "renaming to %s: %s", out, strerror(errno));
    CKPT_AUTO(free) char *folder = strdup(out);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = '\0'; /* "/" keeps its slash */
    CKPT_AUTO(fd) int dir = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        (void)!fsync(dir); /* some filesystems cannot; the file itself is safe */
    return 0;
}

static int export_to(struct ckpt_session *s, struct ckpt_vfile *f, const char *out,
                     struct ckpt_err *err) {
    const char *temporary = ckpt_arena_printf(&s->arena, "%s.XXXXXX", out);
    if (!temporary)
        return ckpt_fail_memory(err, "exporting");
    CKPT_AUTO(fd) int fd = mkostemp((char *)temporary, O_CLOEXEC);
    if (fd < 0)
        return ckpt_fail(err, -errno, "making a file beside %s: %s", out, strerror(errno));
    catch_signals();
    int rc = check_room(fd, ckpt_vfile_size(f), out, err);
    if (rc == 0 && (rc = write_all(s, f, fd, err)) != 0)
        (void)ckpt_fail_in(err, "%s was not written", out);
    if (rc == 0)
        rc = commit(fd, temporary, out, err);
    if (rc < 0)
        unlink(temporary);
    return rc;
}

/* OUT's ending says which of the two. */
static int choose(struct ckpt_session *s, const char *out, struct ckpt_vfile **f,
                  struct ckpt_err *err) {
    *f = s->model_file;
    return ckpt_text_ends(ckpt_text_of(out), ".bpk") ? ckpt_later_file(s->burnpack, f, err) : 0;
}

int ckpt_cmd_export(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    struct ckpt_vfile *f = NULL;
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = check_target(s, c->path, err);
    if (rc == 0)
        rc = ckpt_session_start(s, true, err);
    if (rc == 0)
        rc = choose(s, c->path, &f, err);
    if (rc == 0)
        rc = ckpt_vfile_open(f, err);
    if (rc < 0)
        return rc;
    rc = export_to(s, f, c->path, err);
    ckpt_vfile_close(f);
    return rc;
}
