/*
 * Virtual files. Reading is a binary search for the first segment and a walk over those that
 * follow; each adds its piece to the reply without copying.
 */
#include "fs/vfile.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "adapters/computed_blob.h"
#include "base/log.h"
#include "formats/mapped.h"
#include "formats/store_file.h"

struct ckpt_vfile *ckpt_vfile_new(struct ckpt_arena *a, uint32_t nsegments) {
    struct ckpt_vfile *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->kind = CKPT_VFILE_SEGMENTS;
    f->segment = ckpt_arena_array(a, nsegments, sizeof *f->segment);
    return f->segment ? f : NULL;
}

/* The next segment, n bytes at the file's end; NULL for n = 0, which needs none. */
static struct ckpt_segment *append(struct ckpt_vfile *f, enum ckpt_segment_kind kind, uint64_t n) {
    if (n == 0)
        return NULL;
    struct ckpt_segment *s = &f->segment[f->nsegments++];
    s->at = f->bytes;
    s->nbytes = n;
    s->kind = kind;
    f->bytes += n;
    return s;
}

void ckpt_vfile_add_bytes(struct ckpt_vfile *f, const void *bytes, uint64_t n) {
    struct ckpt_segment *s = append(f, CKPT_SEGMENT_BYTES, n);
    if (s)
        s->bytes = bytes;
}

void ckpt_vfile_add_zeros(struct ckpt_vfile *f, uint64_t n) {
    append(f, CKPT_SEGMENT_ZEROS, n);
}

void ckpt_vfile_add_tensor(struct ckpt_vfile *f, const struct ckpt_adapted *t) {
    struct ckpt_segment *s = append(f, CKPT_SEGMENT_TENSOR, t->nbytes);
    if (s)
        s->tensor = t;
}

void ckpt_vfile_add_made(struct ckpt_vfile *f, struct ckpt_made *m, uint64_t n) {
    struct ckpt_segment *s = append(f, CKPT_SEGMENT_MADE, n);
    if (s)
        s->made = m;
}

struct ckpt_vfile *ckpt_vfile_made(struct ckpt_arena *a, struct ckpt_made *m) {
    struct ckpt_vfile *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->kind = CKPT_VFILE_MADE;
    f->made = m;
    return f;
}

struct ckpt_vfile *ckpt_vfile_computed(struct ckpt_arena *a, struct ckpt_computed *c) {
    struct ckpt_vfile *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->kind = CKPT_VFILE_COMPUTED;
    f->bytes = ckpt_computed_size(c);
    f->computed = c;
    return f;
}

struct ckpt_vfile *ckpt_vfile_plain(struct ckpt_arena *a, struct ckpt_plain *p) {
    struct ckpt_vfile *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->kind = CKPT_VFILE_PLAIN;
    f->bytes = p->size;
    f->plain = p;
    return f;
}

struct ckpt_vfile *ckpt_vfile_later(struct ckpt_arena *a, struct ckpt_later *l) {
    struct ckpt_vfile *f = ckpt_arena_alloc(a, sizeof *f);
    if (!f)
        return NULL;
    f->kind = CKPT_VFILE_LATER;
    f->later = l;
    return f;
}

int ckpt_vfile_measure(const struct ckpt_vfile *f, uint64_t *size, struct ckpt_err *err) {
    *size = f->bytes;
    return f->kind == CKPT_VFILE_MADE ? ckpt_made_size(f->made, size, err) : 0;
}

uint64_t ckpt_vfile_size(const struct ckpt_vfile *f) {
    uint64_t size = 0;
    struct ckpt_err err = {0};
    if (ckpt_vfile_measure(f, &size, &err) < 0)
        ckpt_log_once("a text's size", "%s", err.text);
    return size;
}

/* Whether a source file of the tensor is still what it was at mount time. */
static int check_tensor(const struct ckpt_adapted *t, struct ckpt_err *err) {
    for (uint32_t i = 0; i < t->nparts; i++) {
        const struct ckpt_tensor *source = t->part[i].source;
        const struct ckpt_file *file = source ? ckpt_blob_changed_file(source->blob) : NULL;
        if (file)
            return ckpt_fail(err, -ESTALE,
                             "%s has changed since the mount: unmount and mount again", file->name);
    }
    return 0;
}

/* The segments that hold bytes before `end`, from the first of `i` on. The files behind consecutive
 * ones repeat: each is asked only when it differs from the last. */
static int check_segments(const struct ckpt_vfile *f, uint32_t i, uint64_t end,
                          struct ckpt_err *err) {
    const struct ckpt_file *last = NULL;
    for (; i < f->nsegments && f->segment[i].at < end; i++) {
        const struct ckpt_segment *s = &f->segment[i];
        if (s->kind != CKPT_SEGMENT_TENSOR)
            continue;
        const struct ckpt_adapted *t = s->tensor;
        const struct ckpt_tensor *source = t->nparts == 1 ? t->part[0].source : NULL;
        if (source && ckpt_computed_blob_of(source->blob))
            source = NULL; /* of several files, perhaps */
        if (source && source->blob->file == last)
            continue;
        const int rc = check_tensor(t, err);
        if (rc < 0)
            return rc;
        if (source)
            last = source->blob->file;
    }
    return 0;
}

/* The same for files that are looked at when they are opened only: arrays may have a thousand. */
static int check_stores(const struct ckpt_vfile *f, struct ckpt_err *err) {
    const struct ckpt_store_file *last = NULL;
    for (uint32_t i = 0; i < f->nsegments; i++) {
        const struct ckpt_adapted *const t =
            f->segment[i].kind == CKPT_SEGMENT_TENSOR ? f->segment[i].tensor : NULL;
        for (uint32_t k = 0; t && k < t->nparts; k++) {
            const struct ckpt_tensor *const source = t->part[k].source;
            const struct ckpt_store_file *const file =
                source ? ckpt_blob_changed_store(source->blob, &last) : NULL;
            if (file)
                return ckpt_fail(err, -ESTALE,
                                 "%s has changed since the mount: unmount and mount again",
                                 file->name);
        }
    }
    return 0;
}

/* What is made for readers only: of files of segments only a first one can be. */
static struct ckpt_made *made_of(const struct ckpt_vfile *f) {
    if (f->kind == CKPT_VFILE_MADE)
        return f->made;
    const bool has_first = f->kind == CKPT_VFILE_SEGMENTS && f->nsegments > 0;
    return has_first && f->segment[0].kind == CKPT_SEGMENT_MADE ? f->segment[0].made : NULL;
}

int ckpt_vfile_open(struct ckpt_vfile *f, struct ckpt_err *err) {
    int rc = 0;
    if (f->kind == CKPT_VFILE_SEGMENTS)
        rc = check_segments(f, 0, f->bytes, err);
    if (rc == 0 && f->kind == CKPT_VFILE_SEGMENTS)
        rc = check_stores(f, err);
    else if (f->kind == CKPT_VFILE_PLAIN)
        rc = ckpt_plain_open(f->plain, err);
    if (rc == 0 && made_of(f))
        ckpt_made_hold(made_of(f));
    return rc;
}

void ckpt_vfile_close(struct ckpt_vfile *f) {
    ckpt_vfile_let_go(f);
}

void ckpt_vfile_hold(struct ckpt_vfile *f) {
    if (f->kind == CKPT_VFILE_PLAIN)
        ckpt_plain_hold(f->plain);
    else if (made_of(f))
        ckpt_made_hold(made_of(f));
}

void ckpt_vfile_let_go(struct ckpt_vfile *f) {
    if (f->kind == CKPT_VFILE_PLAIN)
        ckpt_plain_close(f->plain);
    else if (made_of(f))
        ckpt_made_release(made_of(f));
}

/* The index of the segment that holds byte off, which lies inside the file. */
static uint32_t find_segment(const struct ckpt_vfile *f, uint64_t off) {
    uint32_t lo = 0, hi = f->nsegments;
    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (f->segment[mid].at <= off)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static ssize_t add_made(struct ckpt_made *m, uint64_t at, size_t n, struct ckpt_reply *reply,
                        struct ckpt_err *err) {
    const char *text;
    if (!ckpt_stop_may_work(&reply->stop) && !ckpt_made_is_there(m))
        return ckpt_fail_impatient(err);
    const int rc = ckpt_made_text(m, &text, err);
    return rc < 0 ? rc : (ssize_t)ckpt_reply_add_bytes(reply, text + at, n);
}

static ssize_t add_piece(const struct ckpt_segment *s, struct ckpt_reader *r, uint64_t at, size_t n,
                         struct ckpt_reply *reply, struct ckpt_err *err) {
    switch (s->kind) {
    case CKPT_SEGMENT_BYTES:
        return (ssize_t)ckpt_reply_add_bytes(reply, (const char *)s->bytes + at, n);
    case CKPT_SEGMENT_ZEROS:
        return (ssize_t)ckpt_reply_add_zeros(reply, n);
    case CKPT_SEGMENT_MADE:
        return add_made(s->made, at, n, reply, err);
    case CKPT_SEGMENT_TENSOR:
        break;
    }
    return ckpt_reader_add(r, s->tensor, at, n, reply, err);
}

static ssize_t add_segments(const struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off,
                            size_t len, struct ckpt_reply *reply, struct ckpt_err *err) {
    size_t done = 0;
    for (uint32_t i = find_segment(f, off); done < len;) {
        const struct ckpt_segment *s = &f->segment[i];
        const uint64_t at = off + done - s->at;
        const size_t want = s->nbytes - at < len - done ? (size_t)(s->nbytes - at) : len - done;
        if (reply->niov == CKPT_REPLY_IOV_MAX)
            break;
        const ssize_t n = add_piece(s, r, at, want, reply, err);
        if (n == -EIO && done > 0)
            return (ssize_t)done; /* who asks for the rest learns that it begins with what failed */
        if (n < 0)
            return n;
        if (n == 0)
            break;
        done += (size_t)n;
        i += at + (size_t)n == s->nbytes;
    }
    return (ssize_t)done;
}

static ssize_t add_plain(const struct ckpt_file *file, uint64_t off, size_t len,
                         struct ckpt_reply *reply) {
    const size_t n = ckpt_reply_add_bytes(reply, file->data + off, len);
    if (n > 0)
        ckpt_reply_is_in_file(reply, file);
    return (ssize_t)n;
}

static ssize_t add_range(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                         struct ckpt_reply *reply, struct ckpt_err *err) {
    if (f->kind == CKPT_VFILE_SEGMENTS)
        return add_segments(f, r, off, len, reply, err);
    if (f->kind == CKPT_VFILE_MADE)
        return add_made(f->made, off, len, reply, err);
    if (f->kind == CKPT_VFILE_PLAIN)
        return add_plain(f->plain->file, off, len, reply);
    const int rc = ckpt_computed_wait(f->computed, err);
    if (rc < 0)
        return rc;
    return (ssize_t)ckpt_reply_add_bytes(reply, ckpt_computed_text(f->computed) + off, len);
}

/* Whether the bytes [off, off + len) still lie in files as they were. Asked when they have been
 * gathered, and again when they were copied out of a mapping: what changes before or meanwhile is
 * noticed. -EIO: who opens a changed file gets ESTALE, who reads it this. */
static int check_range(const struct ckpt_vfile *f, uint64_t off, size_t len, struct ckpt_err *err) {
    int rc = 0;
    if (f->kind == CKPT_VFILE_SEGMENTS && len > 0)
        rc = check_segments(f, find_segment(f, off), off + len, err);
    else if (f->kind == CKPT_VFILE_PLAIN)
        rc = ckpt_plain_check(f->plain, err);
    return rc < 0 ? -EIO : 0;
}

ssize_t ckpt_vfile_add(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                       struct ckpt_reply *reply, struct ckpt_err *err) {
    assert(f->kind == CKPT_VFILE_MADE || (off <= f->bytes && len <= f->bytes - off));
    if (len == 0)
        return 0;
    const ssize_t n = add_range(f, r, off, len, reply, err);
    const int rc = n > 0 ? check_range(f, off, (size_t)n, err) : 0;
    return rc < 0 ? rc : n;
}

/* The tensor that holds byte off, or NULL. */
static const struct ckpt_adapted *tensor_at(const struct ckpt_vfile *f, uint64_t off,
                                            uint64_t *at) {
    if (f->kind != CKPT_VFILE_SEGMENTS || f->nsegments == 0)
        return NULL;
    const struct ckpt_segment *const s = &f->segment[find_segment(f, off)];
    *at = off - s->at;
    return s->kind == CKPT_SEGMENT_TENSOR ? s->tensor : NULL;
}

/* Byte off is not there, says the kernel. */
static int fail_lost(const struct ckpt_vfile *f, uint64_t off, struct ckpt_err *err) {
    uint64_t at = 0;
    const struct ckpt_adapted *const t = tensor_at(f, off, &at);
    return t ? ckpt_reader_lost(t, at, err)
             : ckpt_fail(err, -EIO, "%s " CKPT_LOST,
                         f->kind == CKPT_VFILE_PLAIN ? f->plain->path : "the source");
}

bool ckpt_vfile_lost(const struct ckpt_vfile *f, uint64_t off, const struct ckpt_reply *reply,
                     struct ckpt_err *err) {
    const size_t at = ckpt_reply_find_lost(reply);
    return at < reply->nbytes && fail_lost(f, off + at, err) < 0;
}

int ckpt_vfile_copy(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                    const struct ckpt_stop *stop, void *buf, struct ckpt_err *err) {
    for (size_t done = 0; done < len;) {
        struct ckpt_reply reply = {.stop = stop ? *stop : (struct ckpt_stop){.ask = NULL}};
        const ssize_t n = ckpt_vfile_add(f, r, off + done, len - done, &reply, err);
        const int rc = n < 0 ? (int)n : ckpt_reply_copy(&reply, (char *)buf + done);
        const size_t lost = rc < 0 ? ckpt_reply_find_lost(&reply) : 0;
        ckpt_reply_done(r, &reply);
        if (rc < 0)
            return n < 0 ? rc : fail_lost(f, off + done + lost, err);
        if (n == 0)
            return ckpt_fail(err, -EIO, "nothing could be read at byte %llu",
                             (unsigned long long)(off + done));
        done += (size_t)n;
    }
    return check_range(f, off, len, err);
}

/* Writes all of a reply; its iovecs are used up. -EFAULT: what comes after *written bytes is not
 * there. */
static int write_reply(struct ckpt_reply *reply, int fd, size_t *written, struct ckpt_err *err) {
    struct iovec *iov = reply->iov;
    for (uint32_t left = reply->niov; left > 0;) {
        ssize_t n = writev(fd, iov, (int)left);
        if (n < 0 && errno == EINTR)
            continue; /* the caller looks at its flag between pieces */
        if (n < 0)
            return errno == EFAULT ? -EFAULT
                                   : ckpt_fail(err, -errno, "writing: %s", strerror(errno));
        *written += (size_t)n;
        for (; left > 0 && (size_t)n >= iov->iov_len; iov++, left--)
            n -= (ssize_t)iov->iov_len;
        if (left > 0) {
            iov->iov_base = (char *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
    return 0;
}

/* For people: which tensor it is whose bytes can't be had. */
static int name_tensor(const struct ckpt_vfile *f, uint64_t off, int rc, struct ckpt_err *err) {
    uint64_t at;
    const struct ckpt_adapted *const t = tensor_at(f, off, &at);
    if (rc == -EIO && t)
        (void)ckpt_fail_in(err, "tensor \"%.*s\"", CKPT_TEXT_ARGS(t->key));
    return rc;
}

int ckpt_vfile_write(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len, int fd,
                     struct ckpt_err *err) {
    for (size_t done = 0; done < len;) {
        struct ckpt_reply reply = {0};
        const ssize_t n = ckpt_vfile_add(f, r, off + done, len - done, &reply, err);
        size_t written = 0;
        int rc = n < 0 ? (int)n : write_reply(&reply, fd, &written, err);
        if (rc == -EFAULT)
            rc = fail_lost(f, off + done + written, err);
        ckpt_reply_done(r, &reply);
        if (rc < 0)
            return name_tensor(f, off + done + written, rc, err);
        if (n == 0)
            return ckpt_fail(err, -EIO, "nothing could be read at byte %llu",
                             (unsigned long long)(off + done));
        done += (size_t)n;
    }
    return check_range(f, off, len, err);
}
