#include "verify/naive_norm.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/number.h"
#include "verify/source.h"

#define BLOCK 1024 /* elements */
/* What the read path may lose of a norm, relatively: it adds up to 2^32 squares in a row. */
#define SUM_ERROR 0x1p-36

/* ---- numbers ---- */

bool ckpt_naive_norm_close(enum ckpt_dtype source, enum ckpt_dtype served, const uint8_t *expected,
                           const uint8_t *got) {
    const double a = ckpt_number_read(served, expected), b = ckpt_number_read(served, got);
    double least = 0;
    const double unit =
        fmax(ckpt_number_epsilon(source, &least), ckpt_number_epsilon(served, &least));
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= (4 * unit + SUM_ERROR) * fabs(a) + 4 * least;
}

/* ---- norms ---- */

/* A tensor of v's shape whose element is the index along dim: only that dimension has a stride. */
static void make_ruler(struct ckpt_naive_norm *n, const struct ckpt_weight_norm *of) {
    n->ruler = *of->v;
    n->ruler.dtype = CKPT_DT_U8;
    n->ruler.stride = n->ruler_stride;
    if (of->dim != CKPT_WEIGHT_NORM_WHOLE)
        n->ruler_stride[of->dim] = 1;
}

/* Sums of squares with what each addition lost carried along (Kahan). */
struct sums {
    double *sum, *lost;
};

static void sums_fini(struct sums *s) {
    free(s->sum);
    free(s->lost);
}
CKPT_DEFINE_AUTO(sums, struct sums, sums_fini)

static void add(struct sums *s, int64_t at, double x) {
    const double y = x - s->lost[at], t = s->sum[at] + y;
    s->lost[at] = (t - s->sum[at]) - y;
    s->sum[at] = t;
}

/* Elements [from, from + count) of v and their indices; count <= BLOCK. */
static int read_block(const struct ckpt_naive *v, const struct ckpt_naive *ruler, int64_t from,
                      int64_t count, double *x, int64_t *index, struct ckpt_err *err) {
    uint8_t bytes[BLOCK * sizeof(double)];
    const int rc = ckpt_source_copy(v, from, count, bytes, err);
    if (rc < 0)
        return rc;
    for (int64_t i = 0; i < count; i++)
        x[i] = ckpt_number_read(v->source->dtype, bytes + i * v->unit);
    ckpt_naive_offsets(ruler, from, count, index);
    return 0;
}

static int sum_squares(const struct ckpt_naive *v, const struct ckpt_naive *ruler, struct sums *s,
                       struct ckpt_err *err) {
    double x[BLOCK];
    int64_t index[BLOCK];
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < v->count; done += BLOCK) {
        const int64_t n = v->count - done < BLOCK ? v->count - done : BLOCK;
        rc = read_block(v, ruler, done, n, x, index, err);
        for (int64_t i = 0; rc == 0 && i < n; i++)
            add(s, index[i], x[i] * x[i]);
    }
    return rc;
}

static int divide(const struct ckpt_tensor *g, const double *sum, double *scale,
                  struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    uint8_t element[sizeof(double)];
    int rc = ckpt_naive_init(&n, g, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&n, err);
    for (int64_t i = 0; rc == 0 && i < n.count; i++) {
        rc = ckpt_source_copy(&n, i, 1, element, err);
        if (rc == 0)
            scale[i] = ckpt_number_read(g->dtype, element) / sqrt(sum[i]);
    }
    return rc;
}

static int make_scale(struct ckpt_naive_norm *n, const struct ckpt_weight_norm *of,
                      struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive v = {0};
    CKPT_AUTO(naive) struct ckpt_naive ruler = {0};
    const size_t count = (size_t)ckpt_tensor_count(of->g) + 1;
    CKPT_AUTO(sums)
    struct sums s = {calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    n->scale = calloc(count, sizeof(double));
    if (!s.sum || !s.lost || !n->scale)
        return ckpt_fail_memory(err, "checking a weight norm");
    int rc = ckpt_naive_init(&v, of->v, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_init(&ruler, &n->ruler, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&v, err);
    if (rc == 0)
        rc = sum_squares(&v, &ruler, &s, err);
    return rc < 0 ? rc : divide(of->g, s.sum, n->scale, err);
}

/* ---- the weight ---- */

int ckpt_naive_norm_init(struct ckpt_naive_norm *n, const struct ckpt_weight_norm *of,
                         const struct ckpt_view_op *op, uint32_t nop, struct ckpt_err *err) {
    memset(n, 0, sizeof(*n));
    make_ruler(n, of);
    int rc = ckpt_naive_init(&n->v, of->v, op, nop, err);
    if (rc == 0)
        rc = ckpt_naive_init(&n->index, &n->ruler, op, nop, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&n->v, err);
    return rc < 0 ? rc : make_scale(n, of, err);
}

void ckpt_naive_norm_fini(struct ckpt_naive_norm *n) {
    ckpt_naive_fini(&n->v);
    ckpt_naive_fini(&n->index);
    free(n->scale);
    n->scale = NULL;
}

int ckpt_naive_norm_read(const struct ckpt_naive_norm *n, int64_t from, int64_t count, uint8_t *to,
                         struct ckpt_err *err) {
    double x[BLOCK];
    int64_t index[BLOCK];
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < count; done += BLOCK) {
        const int64_t block = count - done < BLOCK ? count - done : BLOCK;
        rc = read_block(&n->v, &n->index, from + done, block, x, index, err);
        for (int64_t i = 0; rc == 0 && i < block; i++)
            ckpt_number_write(n->v.source->dtype, x[i] * n->scale[index[i]],
                              to + (done + i) * n->v.unit);
    }
    return rc;
}
