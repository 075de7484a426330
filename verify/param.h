#ifndef CKPT_VERIFY_PARAM_H
#define CKPT_VERIFY_PARAM_H
/*
 * A parameter: a tensor of the model, read in float32 a few rows at a time, so that no whole matrix
 * is ever copied. Where its elements come from is the reader's business: an array, the source's
 * bytes (the naive path), or the served bytes (the one read path).
 */
#include <stdbool.h>
#include <stdint.h>

#include "verify/array.h"

struct ckpt_param {
    struct ckpt_text name; /* for messages */
    uint32_t ndim;
    int64_t shape[CKPT_ARRAY_NDIM_MAX]; /* as stored */
    bool in_out; /* a matrix that is stored as the transpose of what its user takes it for: of
                    linear's weight [out, in], [in, out] as burn has it; of mm's mat2 [in, out],
                    [out, in] */
    /* Elements [first, first + n) in C order. */
    int (*read)(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                struct ckpt_err *err);
    const void *from; /* read's own */
};

int64_t ckpt_param_count(const struct ckpt_param *p);
/* The array must be dense float32 and outlive the parameter. */
struct ckpt_param ckpt_param_of_array(const struct ckpt_array *a, struct ckpt_text name);
/* Rows [first, first + n) of another parameter, which must outlive them. Not moved or copied. */
struct ckpt_param_rows {
    struct ckpt_param param;
    const struct ckpt_param *of;
    int64_t skip; /* elements */
};
void ckpt_param_rows_init(struct ckpt_param_rows *r, const struct ckpt_param *of, int64_t first,
                          int64_t n);
/* Rows of another parameter by their numbers, each as often as it is named: what index(w, ids)
 * gives, still read where it is used. `of` is copied, what it reads from must outlive the pick; the
 * ids, too, which must be rows of it. Not moved. */
struct ckpt_param_pick {
    struct ckpt_param param, of;
    const int64_t *id;
};
void ckpt_param_pick_init(struct ckpt_param_pick *p, const struct ckpt_param *of, const int64_t *id,
                          int64_t n);
/* The transpose of a matrix: nothing is moved, a band is still a band of the rows that are stored.
 */
struct ckpt_param ckpt_param_transpose(const struct ckpt_param *p);
/* All of it, as stored. */
int ckpt_param_load(const struct ckpt_param *p, struct ckpt_memory *memory, struct ckpt_array *out,
                    struct ckpt_err *err) CKPT_CHECKED;
/* All of it, as its user takes it: a view of the transpose if in_out. */
int ckpt_param_array(const struct ckpt_param *p, struct ckpt_memory *memory, struct ckpt_array *out,
                     struct ckpt_err *err) CKPT_CHECKED;

#endif
