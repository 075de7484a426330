#ifndef CKPT_FS_VFILE_H
#define CKPT_FS_VFILE_H
/*
 * A virtual file: what the mount serves, --cat prints and --export writes. Five kinds:
 *
 *     segments   sorted, without holes; each is literal bytes, zeros, an adapted tensor, or a text
 *                that is made while somebody reads it
 *
 *                    model.safetensors   | made: header | tensor | tensor | ... | tensor |
 *                    fc1/weight          | tensor |
 *                    fc1/weight.npy      | bytes: header | tensor |
 *                    epoch.json          | bytes |
 *
 *     made       such a text alone, whose size is not known until it is asked for (index.json)
 *     computed   a text made at first read, of a size fixed in advance (verify.json)
 *     plain      a file of the source directory, as it is
 *     later      stands in the tree for a file that is not laid out yet (model.bpk);
 * ckpt_dentry_file gives that file, so that nothing else meets this kind
 *
 * Immutable once made; any thread may read. Lives in an arena.
 */
#include <stdint.h>
#include <time.h>

#include "adapters/reader.h"
#include "base/arena.h"
#include "fs/computed.h"
#include "fs/later.h"
#include "fs/made.h"
#include "fs/plain.h"

enum ckpt_segment_kind {
    CKPT_SEGMENT_BYTES,
    CKPT_SEGMENT_ZEROS,
    CKPT_SEGMENT_TENSOR,
    CKPT_SEGMENT_MADE
};

struct ckpt_segment {
    uint64_t at, nbytes; /* [at, at + nbytes) of the file */
    enum ckpt_segment_kind kind;
    union {
        const void *bytes;
        const struct ckpt_adapted *tensor;
        struct ckpt_made *made;
    };
};

enum ckpt_vfile_kind {
    CKPT_VFILE_SEGMENTS,
    CKPT_VFILE_MADE,
    CKPT_VFILE_COMPUTED,
    CKPT_VFILE_PLAIN,
    CKPT_VFILE_LATER
};

struct ckpt_vfile {
    enum ckpt_vfile_kind kind;
    uint32_t nsegments;                /* of segments */
    uint64_t bytes;                    /* but of a made one: ckpt_vfile_measure tells */
    const struct ckpt_adapted *tensor; /* of a tensor's own file: what its xattrs tell; else NULL */
    _Atomic(struct ckpt_vfile *) npy;  /* of a tensor's own file: NAME.npy, once it was asked for */
    union {
        struct ckpt_segment *segment;
        struct ckpt_made *made;
        struct ckpt_computed *computed;
        struct ckpt_plain *plain;
        struct ckpt_later *later;
    };
};

/* An empty file of segments; NULL when out of memory. */
struct ckpt_vfile *ckpt_vfile_new(struct ckpt_arena *a, uint32_t nsegments);
/* Append at the end; at most the nsegments promised. The bytes must outlive the file. */
void ckpt_vfile_add_bytes(struct ckpt_vfile *f, const void *bytes, uint64_t n);
void ckpt_vfile_add_zeros(struct ckpt_vfile *f, uint64_t n);
void ckpt_vfile_add_tensor(struct ckpt_vfile *f, const struct ckpt_adapted *t);
void ckpt_vfile_add_made(struct ckpt_vfile *f, struct ckpt_made *m, uint64_t n);
struct ckpt_vfile *ckpt_vfile_made(struct ckpt_arena *a, struct ckpt_made *m);
struct ckpt_vfile *ckpt_vfile_computed(struct ckpt_arena *a, struct ckpt_computed *c);
struct ckpt_vfile *ckpt_vfile_plain(struct ckpt_arena *a, struct ckpt_plain *p);
struct ckpt_vfile *ckpt_vfile_later(struct ckpt_arena *a, struct ckpt_later *l);

/* A made text that cannot be written for lack of memory counts as empty until it can. */
/* A text that is made when it is read is measured now, for which there may be no memory. */
int ckpt_vfile_measure(const struct ckpt_vfile *f, uint64_t *size,
                       struct ckpt_err *err) CKPT_CHECKED;
/* Of one that has been measured, or needs no measuring. */
uint64_t ckpt_vfile_size(const struct ckpt_vfile *f);

/* Before the first read and after the last, for every reader; counted. -ESTALE if a file that the
 * bytes come from is no longer what it was when we looked. */
int ckpt_vfile_open(struct ckpt_vfile *f, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_vfile_close(struct ckpt_vfile *f);
/* Around a reply: once the kernel has it, the file may be closed before the call that sent it is
 * back, and what was made or mapped for readers would go while that call still has it. */
void ckpt_vfile_hold(struct ckpt_vfile *f);
void ckpt_vfile_let_go(struct ckpt_vfile *f);

/* Appends the bytes [off, off + len) to the reply, fewer only if the iovecs run out. The range lies
 * inside the file, which is open. A computed file is made now if it has not been yet. Bytes added
 * or a negative errno: -EIO if a file that they come from shrank or has changed. */
ssize_t ckpt_vfile_add(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                       struct ckpt_reply *reply, struct ckpt_err *err) CKPT_CHECKED;
/* Whether the reply that was added at byte off cannot be copied, since not all of its bytes are
 * there any more; then err says which. */
bool ckpt_vfile_lost(const struct ckpt_vfile *f, uint64_t off, const struct ckpt_reply *reply,
                     struct ckpt_err *err);
/* Copies [off, off + len) into buf: where many small segments exceed a reply's iovecs.
 * `stop` as in a reply; may be NULL. 0 or a negative errno. */
int ckpt_vfile_copy(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                    const struct ckpt_stop *stop, void *buf, struct ckpt_err *err) CKPT_CHECKED;
/* Writes [off, off + len) to a file descriptor, straight from where the bytes lie. */
int ckpt_vfile_write(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len, int fd,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
