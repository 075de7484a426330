#ifndef CKPT_ADAPTERS_VIEW_H
#define CKPT_ADAPTERS_VIEW_H
/*
 * A view: which bytes of one blob a tensor shows, in which order. It is an offset, a *walk* and a
 * label.
 *
 *     walk    pairs (size, stride in bytes) in C order, always canonical: no pair of size 1, and
 *             (a, s)(b, t) with s = b*t is one pair (a*b, t). An empty tensor has none.
 *     label   the shape shown. Its borders are cut out of the walk only when an operation needs
 * them.
 *
 *     source [8,4] f32, contiguous      offset 0   (32, 4)          label [8,4]
 *     permuted (1,0)                    offset 0   (4, 4)(8, 16)    label [4,8]
 *     permuted (1,0) once more          offset 0   (32, 4)          label [8,4]   untouched again
 *
 * The canonical walk of a sequence of offsets is unique, so: same bytes <=> same walk; contiguous
 * <=> no pair or one whose stride is the element size. A reshape never copies and never fails by
 * layout. An operation that no walk can express is refused (-EOPNOTSUPP) and leaves the view as it
 * was; the sentence names the operation. Pure functions: any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/tensor.h"

#define CKPT_WALK_MAX 64

struct ckpt_dim {
    int64_t size;   /* >= 2 in a canonical walk */
    int64_t stride; /* bytes; may be 0 or negative */
};

/* While building; 2.5 KiB. ckpt_walk_pack keeps what is used. */
struct ckpt_view {
    int64_t offset;         /* byte of the blob of the element at index 0... */
    uint32_t esize;         /* bytes of an addressable unit */
    uint32_t unit_elements; /* elements in a unit: 1, except F4 (2) and F6 (4) */
    uint32_t npairs, ndim;
    struct ckpt_dim pair[CKPT_WALK_MAX];
    int64_t shape[CKPT_NDIM_MAX]; /* elements */
    /* The last reshape, for the sentence of a later refusal: it is what moved the borders. */
    struct {
        bool done;
        uint32_t from_ndim, to_ndim;
        int64_t from[CKPT_NDIM_MAX], to[CKPT_NDIM_MAX];
    } reshape;
};

/* What is kept: the walk alone. */
struct ckpt_walk {
    int64_t offset;
    uint32_t esize, npairs;
    int64_t count; /* units */
    struct ckpt_dim pair[];
};

/* The view that a tensor is. Checks the tensor against its blob (ckpt_tensor_check), so that no
 * view made from it can leave the blob. */
int ckpt_view_init(struct ckpt_view *v, const struct ckpt_tensor *t,
                   struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_reshape(struct ckpt_view *v, const int64_t *shape, uint32_t ndim,
                      struct ckpt_err *err) CKPT_CHECKED; /* one -1 is inferred */
int ckpt_view_permute(struct ckpt_view *v, const uint32_t *order, uint32_t n,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Elements start, start+step, ... (len of them) along dim; step >= 1. */
int ckpt_view_slice(struct ckpt_view *v, uint32_t dim, int64_t start, int64_t len, int64_t step,
                    struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_index(struct ckpt_view *v, uint32_t dim, int64_t at,
                    struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_flip(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_squeeze(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_unsqueeze(struct ckpt_view *v, uint32_t dim, struct ckpt_err *err) CKPT_CHECKED;
int ckpt_view_expand(struct ckpt_view *v, uint32_t dim, int64_t size,
                     struct ckpt_err *err) CKPT_CHECKED;

int64_t ckpt_view_count(const struct ckpt_view *v); /* elements shown */
/* One run of bytes: what can be served from a mapping. */
bool ckpt_view_contiguous(const struct ckpt_view *v);

/* Puts a kept walk back into the view of the same tensor, under the shape it had. */
void ckpt_view_unpack(struct ckpt_view *v, const struct ckpt_walk *w, const int64_t *shape,
                      uint32_t ndim);
/* NULL when out of memory. */
struct ckpt_walk *ckpt_walk_pack(struct ckpt_arena *a, const struct ckpt_view *v);
bool ckpt_walk_contiguous(const struct ckpt_walk *w);
bool ckpt_walk_equal(const struct ckpt_walk *a, const struct ckpt_walk *b);
/* The units from `unit` on along the innermost pair, as far as they go. */
struct ckpt_run {
    int64_t at, stride; /* bytes of the blob: of the first; from one to the next */
    int64_t n;
};
struct ckpt_run ckpt_walk_run(const struct ckpt_walk *w, int64_t unit);
/* The bytes of the blob that units [first, first+n) touch, n > 0: [*lo, *hi). */
void ckpt_walk_bounds(const struct ckpt_walk *w, int64_t first, int64_t n, int64_t *lo,
                      int64_t *hi);

#endif
