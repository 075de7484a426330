#ifndef CKPT_VERIFY_SOURCE_H
#define CKPT_VERIFY_SOURCE_H
/*
 * Tensors as the two runs see them. The reference run reads the source by the naive path; the other
 * reads the served bytes, only through the reader that the mount serves from.
 */
#include "adapters/reader.h"
#include "verify/naive.h"
#include "verify/naive_lora.h"
#include "verify/naive_norm.h"
#include "verify/param.h"

/* Copies units [from, from + count) of a pinned naive tensor as they lie in the source, in C order.
 * -EIO if the source went away. */
int ckpt_source_raw(const struct ckpt_naive *n, int64_t from, int64_t count, uint8_t *to,
                    struct ckpt_err *err) CKPT_CHECKED;
/* Copies elements [from, from + count) of a pinned naive tensor, in C order, little-endian, with
 * the neg bit resolved. */
int ckpt_source_copy(const struct ckpt_naive *n, int64_t from, int64_t count, uint8_t *to,
                     struct ckpt_err *err) CKPT_CHECKED;

/* Elements [from, from + n) of a pinned naive tensor of floats, in float32. */
int ckpt_source_floats(const struct ckpt_naive *naive, int64_t from, int64_t n, float *out,
                       struct ckpt_err *err) CKPT_CHECKED;

/* Several source tensors, or zeros, that follow one another or take turns. */
struct ckpt_source_joined {
    const struct ckpt_joined *of;
    struct ckpt_naive *naive; /* of each part; on the heap */
    int64_t round;            /* elements of all parts in one turn */
};
int ckpt_source_joined_init(struct ckpt_source_joined *j, const struct ckpt_joined *of,
                            struct ckpt_err *err) CKPT_CHECKED;
void ckpt_source_joined_fini(struct ckpt_source_joined *j);
int ckpt_source_joined_read(const struct ckpt_source_joined *j, int64_t first, int64_t n,
                            float *out, struct ckpt_err *err) CKPT_CHECKED;

/* A source tensor brought to PyTorch's layout by the dialect's operations alone; several that it
 * joins; or a weight that is computed from several, as PyTorch itself would. */
struct ckpt_source_param {
    struct ckpt_param param;
    struct ckpt_param exact; /* cast: what is rounded */
    enum ckpt_dtype to;      /* cast: to this */
    struct ckpt_source_joined joined;
    struct ckpt_naive naive;
    struct ckpt_naive_norm norm;
    struct ckpt_naive_lora lora;
};
/* cast: each element is rounded to the dtype that the mount shows. Not moved afterwards. */
int ckpt_source_param_init(struct ckpt_source_param *s, const struct ckpt_adapted *t, bool cast,
                           struct ckpt_err *err) CKPT_CHECKED;
void ckpt_source_param_fini(struct ckpt_source_param *s);

struct ckpt_served_param {
    struct ckpt_param param;
    struct ckpt_reader *reader;
    const struct ckpt_adapted *tensor;
};
int ckpt_served_param_init(struct ckpt_served_param *s, struct ckpt_reader *reader,
                           const struct ckpt_adapted *t, struct ckpt_err *err) CKPT_CHECKED;

/* A whole tensor of a checkpoint (a reference file): floats as F32, or F64 if `wide` and the
 * tensor is; integers as I64; truth values as BOOL. */
int ckpt_source_load(const struct ckpt_tensor *t, bool wide, struct ckpt_memory *memory,
                     struct ckpt_array *out, struct ckpt_err *err) CKPT_CHECKED;
/* Whether two tensors of checkpoints differ: in dtype, shape or any element's bits. */
int ckpt_source_differs(const struct ckpt_tensor *a, const struct ckpt_tensor *b, bool *differs,
                        struct ckpt_err *err) CKPT_CHECKED;

#endif
