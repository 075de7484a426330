#ifndef CKPT_ADAPTERS_READER_H
#define CKPT_ADAPTERS_READER_H
/*
 * The one read path: any byte range of an adapted tensor. The mount, --cat, --export and the
 * checker all call it, so what is checked is what is served.
 *
 *     request [off, off+len) of the adapted bytes
 *       part -> untouched run: the mapping itself, no copy          -> iovec
 *            -> long runs (a row slice): mapping pieces             -> iovecs
 *            -> everything else: a *band*, gathered into a buffer of the band cache and kept (LRU,
 *               keyed by walk, blob, element map and band number) -> iovec into the band
 *
 * A second reader of a band waits for the first; no lock is held while one is computed; the band
 * after the last one of a sequential reader is prefetched by a worker.
 *
 * Tensors, and all that they point to, must outlive the reader: bands are keyed by them, and the
 * worker may still be computing one.
 *
 * Threads: all functions may be called from any thread, on any number of requests at once.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "adapters/model.h"

struct ckpt_reader;

struct ckpt_reader_options {
    size_t band_bytes; /* 0: the default, 28 MiB in all */
    bool no_prefetch;  /* start no worker (single-threaded tools) */
};

int ckpt_reader_new(const struct ckpt_reader_options *options, struct ckpt_reader **out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* Calls back whenever a band was finished, which whoever got -EAGAIN may have missed. It must not
 * wait, and not read. NULL: no more, from then on. A band that ended with -EAGAIN is no news, or
 * those who wait would try for ever: whoever got that, and will not try again, tells. */
void ckpt_reader_watch(struct ckpt_reader *r, void (*finished)(void *arg), void *arg);
void ckpt_reader_free(struct ckpt_reader *r); /* NULL is fine; no request may be under way */

#define CKPT_REPLY_IOV_MAX 256

/* Where the bytes of one request lie. Zero-initialise before the first add. */
struct ckpt_reply {
    struct iovec iov[CKPT_REPLY_IOV_MAX];
    uint32_t niov;
    size_t nbytes;
    struct ckpt_reply_hold *holds; /* bands and pins that the iovecs point into */
    struct ckpt_stop stop;         /* asked between pieces of work */
    /* What follows in the source's mapping upon the bytes that were added last, if they are its
     * own: where a reader who goes forwards is likely to read next. */
    const uint8_t *after;
    size_t nafter;
};

/* Appends the bytes [off, off+len) of t to the reply, fewer only if the iovecs run out: returns the
 * bytes added (> 0 for len > 0 unless the reply is full) or a negative errno: -EIO the source
 * failed, -EINTR or -EAGAIN as reply->stop says, -ENOMEM; then the reply must be done with, too.
 * [off, off+len) lies inside t.
 * What is not in a mapping is held in memory until ckpt_reply_done, so ask for a MiB or a few at a
 * time; whoever streams a whole tensor does so in a loop of add, write, done. Iovecs may point into
 * mappings: whoever copies from them (not the kernel) does so by ckpt_reply_copy. */
ssize_t ckpt_reader_add(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off,
                        size_t len, struct ckpt_reply *reply, struct ckpt_err *err) CKPT_CHECKED;
/* Other bytes of a reply: they must outlive it. Bytes added, 0 when the iovecs ran out. */
size_t ckpt_reply_add_bytes(struct ckpt_reply *reply, const void *data, size_t n);
size_t ckpt_reply_add_zeros(struct ckpt_reply *reply, size_t n);
/* The bytes added last, more than none, lie in this file's mapping. */
void ckpt_reply_is_in_file(struct ckpt_reply *reply, const struct ckpt_file *file);
/* Copies a reply's bytes into buf, under the guard: 0, or -EIO if a source went away. */
int ckpt_reply_copy(const struct ckpt_reply *reply, void *buf) CKPT_CHECKED;
/* Of a reply that could not be copied: the first of its bytes that isn't there; nbytes if all are
 * by now. */
size_t ckpt_reply_find_lost(const struct ckpt_reply *reply);
/* -EIO and the sentence that byte `off` of t can't be read from its source. */
int ckpt_reader_lost(const struct ckpt_adapted *t, uint64_t off, struct ckpt_err *err);
/* Whether none of the reply's bytes must be read from a disk first, as far as can be known. */
bool ckpt_reply_is_resident(const struct ckpt_reply *reply);
/* Releases what the reply holds; the reply is empty afterwards. */
void ckpt_reply_done(struct ckpt_reader *r, struct ckpt_reply *reply);

/* Copies [off, off+len) of t into buf. 0 or negative errno. */
int ckpt_reader_read(struct ckpt_reader *r, const struct ckpt_adapted *t, uint64_t off, size_t len,
                     void *buf, struct ckpt_err *err) CKPT_CHECKED;

#endif
