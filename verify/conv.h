#ifndef CKPT_VERIFY_CONV_H
#define CKPT_VERIFY_CONV_H
/*
 * A convolution whose arguments have been checked, and the ways to compute it. All of them take one
 * to three axes as three and leave the bias to whoever calls them.
 */
#include "verify/axes.h"

struct ckpt_conv {
    struct ckpt_axes axes;
    int64_t batch, cin, cout, groups;
    int64_t out[3], kernel[3], stride[3], pad[3], dilation[3];
    int64_t positions_in, positions_out, kernel_size; /* products over the axes */
    bool transposed;
    struct ckpt_param weight;
    struct ckpt_array x, bias, hold;
};

/* Matrix products over columns of x. */
int ckpt_conv_forward(struct ckpt_call *c, const struct ckpt_conv *v,
                      struct ckpt_err *err) CKPT_CHECKED;
/* One input channel a group. */
int ckpt_conv_depthwise(struct ckpt_call *c, const struct ckpt_conv *v,
                        struct ckpt_err *err) CKPT_CHECKED;
int ckpt_conv_transposed(struct ckpt_call *c, const struct ckpt_conv *v,
                         struct ckpt_err *err) CKPT_CHECKED;

/* Along the last axis, where the kernel's element k meets input position o * stride + start for
 * output position o: positions [first, end) of o are those of them that lie inside the input. */
struct ckpt_conv_span {
    int64_t start, first, end;
};
struct ckpt_conv_span ckpt_conv_span(const struct ckpt_conv *v, int64_t k);
/* The input row that the kernel's element k (of three axes) meets at output row `row`, counted over
 * the first two axes; -1 in the padding. */
int64_t ckpt_conv_row(const struct ckpt_conv *v, const int64_t *k, int64_t row);
/* The three indices of an element, counted in C order. */
void ckpt_conv_unravel(int64_t at, const int64_t *size, int64_t *index);

#endif
