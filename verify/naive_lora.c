#include "verify/naive_lora.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/number.h"
#include "verify/source.h"

#define BLOCK 1024 /* elements */

/* ---- the factors ---- */

/* All elements of a tensor in C order. */
static int load(const struct ckpt_tensor *t, double **out, struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    uint8_t bytes[BLOCK * sizeof(double)];
    int rc = ckpt_naive_init(&n, t, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&n, err);
    *out = rc == 0 ? malloc((size_t)(n.count + 1) * sizeof **out) : NULL;
    if (rc == 0 && !*out)
        return ckpt_fail_memory(err, "checking a merged weight");
    for (int64_t done = 0, block; rc == 0 && done < n.count; done += block) {
        block = n.count - done < BLOCK ? n.count - done : BLOCK;
        rc = ckpt_source_copy(&n, done, block, bytes, err);
        for (int64_t i = 0; rc == 0 && i < block; i++)
            (*out)[done + i] = ckpt_number_read(t->dtype, bytes + i * n.unit);
    }
    return rc;
}

/* A tensor of w's shape whose element is its own number in C order: bytes without bytes. */
static void make_ruler(struct ckpt_naive_lora *n) {
    n->ruler = *n->of->w;
    n->ruler.dtype = CKPT_DT_U8;
    n->ruler.stride = NULL;
    n->ruler.offset = 0;
}

int ckpt_naive_lora_init(struct ckpt_naive_lora *n, const struct ckpt_lora *of,
                         const struct ckpt_view_op *op, uint32_t nop, struct ckpt_err *err) {
    *n = (struct ckpt_naive_lora){.of = of};
    make_ruler(n);
    int rc = ckpt_naive_init(&n->w, of->w, op, nop, err);
    if (rc == 0)
        rc = ckpt_naive_init(&n->index, &n->ruler, op, nop, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&n->w, err);
    if (rc == 0)
        rc = load(of->a, &n->a, err);
    return rc < 0 ? rc : load(of->b, &n->b, err);
}

void ckpt_naive_lora_fini(struct ckpt_naive_lora *n) {
    ckpt_naive_fini(&n->w);
    ckpt_naive_fini(&n->index);
    free(n->a);
    free(n->b);
    n->a = n->b = NULL;
}

/* ---- an element ---- */

/* The number in C order of an index into a shape. */
static int64_t number_of(const struct ckpt_tensor *t, const int64_t *index) {
    int64_t at = 0;
    for (uint32_t d = 0; d < t->ndim; d++)
        at = at * t->shape[d] + index[d];
    return at;
}

/* b at an index, added up along the axis. *size gets what was added, without signs. */
static double b_at(const struct ckpt_naive_lora *n, int64_t *index, double *size) {
    const uint32_t axis = n->of->sum;
    if (axis == CKPT_LORA_NO_SUM) {
        const double b = n->b[number_of(n->of->b, index)];
        *size = fabs(b);
        return b;
    }
    const int64_t kept = index[axis];
    double sum = *size = 0;
    for (index[axis] = 0; index[axis] < n->of->b->shape[axis]; index[axis]++) {
        const double b = n->b[number_of(n->of->b, index)];
        sum += b;
        *size += fabs(b);
    }
    index[axis] = kept;
    return sum;
}

/* Element `at` of w in C order, whose own value is w. */
static double element(const struct ckpt_naive_lora *n, int64_t at, double w, float *slack) {
    const struct ckpt_tensor *const t = n->of->w;
    const uint32_t row = t->ndim - 2, column = t->ndim - 1;
    const int64_t rank = n->of->a->shape[column];
    int64_t index[CKPT_NDIM_MAX];
    for (uint32_t d = t->ndim; d-- > 0; at /= t->shape[d])
        index[d] = at % t->shape[d];
    const int64_t i = index[row], j = index[column];
    double sum = 0, size = fabs(w);
    for (int64_t k = 0; k < rank; k++) {
        double size_b;
        index[row] = i;
        index[column] = k;
        const double a = n->a[number_of(n->of->a, index)];
        index[row] = k;
        index[column] = j;
        sum += a * b_at(n, index, &size_b);
        size += fabs(a) * size_b;
    }
    *slack = (float)((double)(rank + 4) * 0x1p-24 * size);
    return w + sum;
}

int ckpt_naive_lora_read(const struct ckpt_naive_lora *n, int64_t from, int64_t count, float *to,
                         float *slack, struct ckpt_err *err) {
    uint8_t bytes[BLOCK * sizeof(double)];
    int64_t number[BLOCK];
    int rc = 0;
    for (int64_t done = 0, block; rc == 0 && done < count; done += block) {
        block = count - done < BLOCK ? count - done : BLOCK;
        rc = ckpt_source_copy(&n->w, from + done, block, bytes, err);
        ckpt_naive_offsets(&n->index, from + done, block, number);
        for (int64_t i = 0; rc == 0 && i < block; i++) {
            float unasked;
            const double w = ckpt_number_read(n->of->w->dtype, bytes + i * n->w.unit);
            to[done + i] = (float)element(n, number[i], w, slack ? &slack[done + i] : &unasked);
        }
    }
    return rc;
}

bool ckpt_naive_lora_close(enum ckpt_dtype served, float slack, const uint8_t *expected,
                           const uint8_t *got) {
    const double a = ckpt_number_read(served, expected), b = ckpt_number_read(served, got);
    double least = 0;
    const double unit = ckpt_number_epsilon(served, &least);
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= (double)slack + unit * fabs(a) + least;
}
