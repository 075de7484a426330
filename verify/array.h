#ifndef CKPT_VERIFY_ARRAY_H
#define CKPT_VERIFY_ARRAY_H
/*
 * An array: what operations take and give. Memory is shared by reference count, so that transposes,
 * slices and most reshapes copy nothing:
 *
 *     store  [ 0 1 2 3 4 5 ]  refs 2
 *               |
 *     a      data = store, shape [2,3], stride [3,1]
 *     a.T    data = store, shape [3,2], stride [1,3]
 *
 * A zeroed array is empty and may be passed to ckpt_array_fini. One thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/dtype.h"

#define CKPT_ARRAY_NDIM_MAX 16

/* Bytes that all arrays of a run may take together. */
struct ckpt_memory {
    uint64_t limit, used;
};

struct ckpt_array_store;

struct ckpt_array {
    enum ckpt_dtype dtype; /* F32, F64, I64 or BOOL; NONE: no array */
    uint32_t ndim;
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    int64_t stride[CKPT_ARRAY_NDIM_MAX]; /* elements */
    void *data;                          /* the element at index 0... */
    struct ckpt_array_store *store;
};

/* The dtype that arrays have for it: F16 and BF16 are F32, integers I64. NONE: none has. */
enum ckpt_dtype ckpt_array_dtype(enum ckpt_dtype dtype);

/* Zeros in C order. memory may be NULL: unlimited; else it must outlive the array. -ENOMEM names
 * the limit. */
int ckpt_array_new(struct ckpt_array *out, struct ckpt_memory *memory, enum ckpt_dtype dtype,
                   const int64_t *shape, uint32_t ndim, struct ckpt_err *err) CKPT_CHECKED;
/* The same with elements of any value, for those who write all of them. */
int ckpt_array_new_unset(struct ckpt_array *out, struct ckpt_memory *memory, enum ckpt_dtype dtype,
                         const int64_t *shape, uint32_t ndim, struct ckpt_err *err) CKPT_CHECKED;
/* Drops the reference; the array is then empty. */
void ckpt_array_fini(struct ckpt_array *a);
#define ckpt_auto_array ckpt_array_fini
/* One more reference to the same memory. */
struct ckpt_array ckpt_array_ref(const struct ckpt_array *a);

int64_t ckpt_array_count(const struct ckpt_array *a);
bool ckpt_array_dense(const struct ckpt_array *a); /* C order without gaps */
bool ckpt_array_same_shape(const struct ckpt_array *a, const struct ckpt_array *b);
/* "[2, 3]" into buf, which is returned; cut if too long. */
const char *ckpt_array_shape_text(const struct ckpt_array *a, char *buf, size_t size);

/* Views: *out is a new reference. order must be a permutation; slices must lie inside. */
struct ckpt_array ckpt_array_permute(const struct ckpt_array *a, const uint32_t *order);
struct ckpt_array ckpt_array_slice(const struct ckpt_array *a, uint32_t dim, int64_t start,
                                   int64_t len);
/* Takes away a dimension, of which index 0 is left. */
void ckpt_array_drop_dim(struct ckpt_array *a, uint32_t dim);
/* In C order; copies only what is not dense. */
int ckpt_array_contiguous(const struct ckpt_array *a, struct ckpt_memory *memory,
                          struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* A dense array of its own, whatever a is. */
int ckpt_array_copy(const struct ckpt_array *a, struct ckpt_memory *memory, struct ckpt_array *out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* All of the memory that a shares, as a vector. */
struct ckpt_array ckpt_array_whole(const struct ckpt_array *a);
/* The same elements in another shape; one -1 is inferred. A view wherever a's strides allow one,
 * else a dense copy. */
int ckpt_array_reshape(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                       struct ckpt_memory *memory, struct ckpt_array *out,
                       struct ckpt_err *err) CKPT_CHECKED;

/* The shape that all n broadcast to, as in NumPy; -EINVAL names two that don't fit. */
int ckpt_array_broadcast(const struct ckpt_array *const *a, uint32_t n, int64_t *shape,
                         uint32_t *ndim, struct ckpt_err *err) CKPT_CHECKED;
/* A view of that shape in which dimensions of size 1, or that a lacks in front, repeat. */
int ckpt_array_expand(const struct ckpt_array *a, const int64_t *shape, uint32_t ndim,
                      struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* Writes from, broadcast and converted, into the elements that *to shows. Where the two share
 * memory they must show the same elements in the same places. */
int ckpt_array_assign(const struct ckpt_array *to, const struct ckpt_array *from,
                      struct ckpt_err *err) CKPT_CHECKED;
/* Converted as PyTorch converts (a float beyond int64 becomes INT64_MIN); the same memory if it has
 * the dtype already. */
int ckpt_array_cast(const struct ckpt_array *a, enum ckpt_dtype dtype, struct ckpt_memory *memory,
                    struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;

#define CKPT_ARRAY_ROWS_MAX 8
/* n elements of each array, the next one `step` bytes on. */
typedef void ckpt_row_fn(void *arg, char *const *at, const int64_t *step, int64_t n);
/* Calls row for every innermost run of up to CKPT_ARRAY_ROWS_MAX arrays of one shape, in C order
 * of that shape; dimensions that all of them have dense are one run. A 0-d array is a run of 1. */
void ckpt_array_rows(const struct ckpt_array *const *a, uint32_t n, ckpt_row_fn *row, void *arg);

/* Element i of a dense array as a number. */
double ckpt_array_get(const struct ckpt_array *a, int64_t i);
static inline float *ckpt_array_f32(const struct ckpt_array *a) {
    return a->data;
}
static inline double *ckpt_array_f64(const struct ckpt_array *a) {
    return a->data;
}
static inline uint8_t *ckpt_array_bool(const struct ckpt_array *a) {
    return a->data;
}
static inline int64_t *ckpt_array_i64(const struct ckpt_array *a) {
    return a->data;
}

#endif
