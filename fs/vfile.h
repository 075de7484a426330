#ifndef CKPT_FS_VFILE_H
#define CKPT_FS_VFILE_H
/*
 * A virtual file: what the mount serves, --cat prints and --export writes. Three kinds:
 *
 *     segments   sorted, without holes; each is literal bytes, zeros or an adapted tensor
 *
 *                    model.safetensors   | bytes: header | tensor | tensor | ... | tensor |
 *                    fc1/weight          | tensor |
 *                    fc1/weight.npy      | bytes: header | tensor |
 *                    index.json          | bytes |
 *
 *     computed   a text made at first read, of a size fixed in advance (verify.json)
 *     plain      a file of the source directory, as it is
 *
 * Immutable once made; any thread may read. Lives in the session's arena.
 */
#include <stdint.h>
#include <time.h>

#include "adapters/reader.h"
#include "base/arena.h"
#include "fs/computed.h"
#include "fs/plain.h"

enum ckpt_segment_kind { CKPT_SEGMENT_BYTES, CKPT_SEGMENT_ZEROS, CKPT_SEGMENT_TENSOR };

struct ckpt_segment {
    uint64_t at, nbytes; /* [at, at + nbytes) of the file */
    enum ckpt_segment_kind kind;
    union {
        const void *bytes;
        const struct ckpt_adapted *tensor;
    };
};

enum ckpt_vfile_kind { CKPT_VFILE_SEGMENTS, CKPT_VFILE_COMPUTED, CKPT_VFILE_PLAIN };

struct ckpt_vfile {
    enum ckpt_vfile_kind kind;
    uint64_t size;
    struct timespec mtime;
    const struct ckpt_adapted *tensor; /* of a tensor's own file: what its xattrs tell; else NULL */
    union {
        struct {
            struct ckpt_segment *segment;
            uint32_t nsegments, cap;
        };
        struct ckpt_computed *computed;
        struct ckpt_plain *plain;
    };
};

/* An empty file of segments; NULL when out of memory. */
struct ckpt_vfile *ckpt_vfile_new(struct ckpt_arena *a, uint32_t nsegments);
/* Append at the end; at most the nsegments promised. The bytes must outlive the file. */
void ckpt_vfile_add_bytes(struct ckpt_vfile *f, const void *bytes, uint64_t n);
void ckpt_vfile_add_zeros(struct ckpt_vfile *f, uint64_t n);
void ckpt_vfile_add_tensor(struct ckpt_vfile *f, const struct ckpt_adapted *t);
struct ckpt_vfile *ckpt_vfile_computed(struct ckpt_arena *a, struct ckpt_computed *c);
struct ckpt_vfile *ckpt_vfile_plain(struct ckpt_arena *a, struct ckpt_plain *p);

/* Before the first read and after the last, for every reader; counted. -ESTALE if a file that the
 * bytes come from is no longer what it was when we looked. */
int ckpt_vfile_open(struct ckpt_vfile *f, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_vfile_close(struct ckpt_vfile *f);

/* Appends the bytes [off, off + len) to the reply, fewer only if the iovecs run out. The range lies
 * inside the file, which is open. A computed file is made now if it has not been yet. Bytes added
 * or a negative errno: -EIO if a file that they come from shrank or has changed. */
ssize_t ckpt_vfile_add(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                       struct ckpt_reply *reply, struct ckpt_err *err) CKPT_CHECKED;
/* Copies [off, off + len) into buf: where many small segments exceed a reply's iovecs.
 * `interrupted` and `arg` as in a reply. 0 or a negative errno. */
int ckpt_vfile_copy(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len,
                    bool (*interrupted)(void *), void *arg, void *buf,
                    struct ckpt_err *err) CKPT_CHECKED;
/* Writes [off, off + len) to a file descriptor, straight from where the bytes lie. */
int ckpt_vfile_write(struct ckpt_vfile *f, struct ckpt_reader *r, uint64_t off, size_t len, int fd,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
