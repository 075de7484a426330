#ifndef CKPT_VERIFY_ELEMENTWISE_H
#define CKPT_VERIFY_ELEMENTWISE_H
/*
 * Element-wise operations. Operands are arrays, parameters or numbers; they are seen in the shape
 * that all broadcast to, and in the dtype that PyTorch promotes them to; then one loop runs over
 * rows of all of them:
 *
 *     int64 [3, 1]  and  float32 []      float32 [3, 1]
 *     float32 [2]   and  float64 []      float32 [2]      0-d arrays and numbers only change the
 *     int64 [2]     and  2.5             float32 [2]      kind of number, never its width
 */
#include "verify/op.h"

#define CKPT_OPERANDS_MAX 3

struct ckpt_operands {
    uint32_t n;
    struct ckpt_array at[CKPT_OPERANDS_MAX];
    enum ckpt_dtype dtype; /* what they promote to */
    uint32_t ndim;         /* of the common shape */
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
};

void ckpt_operands_fini(struct ckpt_operands *o);
#define ckpt_auto_operands ckpt_operands_fini
/* The arguments of these n names, as they are. */
int ckpt_operands_init(const struct ckpt_call *c, const char *const *name, uint32_t n,
                       struct ckpt_operands *o, struct ckpt_err *err) CKPT_CHECKED;
/* All become views of the common shape, in this dtype. */
int ckpt_operands_align(struct ckpt_operands *o, enum ckpt_dtype dtype, struct ckpt_exec *exec,
                        struct ckpt_err *err) CKPT_CHECKED;

#define CKPT_FUNCTION_NUMBERS 3

/* What is computed for each element: v holds the operands' elements, p the other numbers. */
struct ckpt_function {
    const char *name;
    double (*f)(const double *v, const struct ckpt_scalar *p);   /* of floats */
    int64_t (*i)(const int64_t *v, const struct ckpt_scalar *p); /* of integers; NULL: none */
    ckpt_row_fn *f32; /* instead of f for float32: a loop that the compiler vectorises. Its arg is
                         p, its first array the result. NULL: none */
    enum {
        CKPT_INTS_TO_F32, /* without i, integers are computed as float32 */
        CKPT_FLOATS_ONLY,
        CKPT_TRUTH,    /* gives truth values */
        CKPT_DIVIDES,  /* i divides by the second operand */
        CKPT_NO_BOOL,  /* has i, but not for truth values */
        CKPT_INTS_ONLY /* f is not there */
    } kind;
    const char *number[CKPT_FUNCTION_NUMBERS]; /* names of p */
    double otherwise[CKPT_FUNCTION_NUMBERS];   /* their defaults */
};

/* The row of that name; it must be there. */
const struct ckpt_function *ckpt_function_find(const struct ckpt_function *table, const char *name);
/* Runs it on the arguments of these n names; the result is c->out. */
int ckpt_elementwise(struct ckpt_call *c, const struct ckpt_function *f, const char *const *name,
                     uint32_t n, struct ckpt_err *err) CKPT_CHECKED;

/* A loop over rows of one float32 operand: y of x and p. */
#define CKPT_ROWS_F32_1(function, expression)                                                      \
    static void function(void *arg, char *const *at, const int64_t *step, int64_t n) {             \
        const struct ckpt_scalar *const p = arg;                                                   \
        float *const restrict y = (float *)(void *)at[0];                                          \
        (void)p;                                                                                   \
        if (step[1] == (int64_t)sizeof(float))                                                     \
            for (int64_t k = 0; k < n; k++) {                                                      \
                const float x = ((const float *)(const void *)at[1])[k];                           \
                y[k] = (expression);                                                               \
            }                                                                                      \
        else                                                                                       \
            for (int64_t k = 0; k < n; k++) {                                                      \
                const float x = *(const float *)(const void *)(at[1] + k * step[1]);               \
                y[k] = (expression);                                                               \
            }                                                                                      \
    }

#define CKPT_ROWS_F32_LOOP_(a_at, b_at, expression)                                                \
    for (int64_t k = 0; k < n; k++) {                                                              \
        const float a = (a_at), b = (b_at);                                                        \
        y[k] = (expression);                                                                       \
    }
/* The same of two operands a and b, of which one may repeat along the row. */
#define CKPT_ROWS_F32_2(function, expression)                                                      \
    static void function(void *arg, char *const *at, const int64_t *step, int64_t n) {             \
        const struct ckpt_scalar *const p = arg;                                                   \
        const int64_t size = sizeof(float);                                                        \
        float *const restrict y = (float *)(void *)at[0];                                          \
        const float *const l = (const float *)(const void *)at[1];                                 \
        const float *const r = (const float *)(const void *)at[2];                                 \
        const float l0 = *l, r0 = *r;                                                              \
        (void)p;                                                                                   \
        if (step[1] == size && step[2] == size)                                                    \
            CKPT_ROWS_F32_LOOP_(l[k], r[k], expression)                                            \
        else if (step[1] == size && step[2] == 0)                                                  \
            CKPT_ROWS_F32_LOOP_(l[k], r0, expression)                                              \
        else if (step[1] == 0 && step[2] == size)                                                  \
            CKPT_ROWS_F32_LOOP_(l0, r[k], expression)                                              \
        else                                                                                       \
            CKPT_ROWS_F32_LOOP_(l[k * (step[1] / size)], r[k * (step[2] / size)], expression)      \
    }

#endif
