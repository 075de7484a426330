/*
 * Elements that change places between channels and axes: a dimension is split, the pieces change
 * their order, and are joined again. Any dtype.
 *
 *     pixel_shuffle     [..., C * r * r, H, W]  ->  [..., C, H * r, W * r]
 *     pixel_unshuffle   the other way round
 *     channel_shuffle   [N, g * C, ...]         ->  channel c of group i becomes c * g + i
 */
#include <errno.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

/* x as `split`, its dimensions in this order, as `joined`. */
static int rearrange(struct ckpt_call *c, const struct ckpt_array *x, const int64_t *split,
                     const uint32_t *order, uint32_t nsplit, const int64_t *joined,
                     uint32_t njoined, struct ckpt_err *err) {
    struct ckpt_memory *const memory = &c->exec->memory;
    CKPT_AUTO(array) struct ckpt_array pieces = {0}, turned = {0};
    const int rc = ckpt_array_reshape(x, split, nsplit, memory, &pieces, err);
    if (rc < 0)
        return rc;
    turned = ckpt_array_permute(&pieces, order);
    return ckpt_array_reshape(&turned, joined, njoined, memory, c->out, err);
}

static int refuse(const struct ckpt_array *x, const char *name, int64_t by, struct ckpt_err *err) {
    char text[96];
    return ckpt_fail(err, -EINVAL, "the input %s does not divide by a %s of %lld",
                     ckpt_array_shape_text(x, text, sizeof(text)), name, (long long)by);
}

/* What lies in front of [C, H, W]. */
static int64_t in_front(const struct ckpt_array *x) {
    int64_t n = 1;
    for (uint32_t d = 0; d + 3 < x->ndim; d++)
        n *= x->shape[d];
    return n;
}

static int take(struct ckpt_call *c, const char *name, struct ckpt_array *x, int64_t *by,
                struct ckpt_err *err) {
    *by = ckpt_call_int(c, name, 0);
    const int rc = ckpt_call_tensor(c, "self", x, err);
    if (rc == 0 && (x->ndim < 3 || *by < 1 || *by > INT32_MAX))
        return refuse(x, name, *by, err);
    return rc;
}

static int pixel_shuffle(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    int64_t r = 0, joined[CKPT_ARRAY_NDIM_MAX];
    const int rc = take(c, "upscale_factor", &x, &r, err);
    if (rc < 0)
        return rc;
    int64_t *const last = x.shape + x.ndim - 3;
    if (last[0] % (r * r) != 0)
        return refuse(&x, "squared upscale_factor", r, err);
    for (uint32_t d = 0; d < x.ndim; d++)
        joined[d] = x.shape[d];
    joined[x.ndim - 3] /= r * r;
    if (!ckpt_mul_i64(last[1], r, &joined[x.ndim - 2]) ||
        !ckpt_mul_i64(last[2], r, &joined[x.ndim - 1]))
        return refuse(&x, "upscale_factor", r, err);
    const int64_t split[6] = {in_front(&x), last[0] / (r * r), r, r, last[1], last[2]};
    return rearrange(c, &x, split, (uint32_t[]){0, 1, 4, 2, 5, 3}, 6, joined, x.ndim, err);
}

static int pixel_unshuffle(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    int64_t r = 0, joined[CKPT_ARRAY_NDIM_MAX];
    const int rc = take(c, "downscale_factor", &x, &r, err);
    if (rc < 0)
        return rc;
    const int64_t *const last = x.shape + x.ndim - 3;
    if (last[1] % r != 0 || last[2] % r != 0)
        return refuse(&x, "downscale_factor", r, err);
    for (uint32_t d = 0; d < x.ndim; d++)
        joined[d] = x.shape[d];
    joined[x.ndim - 2] /= r;
    joined[x.ndim - 1] /= r;
    if (!ckpt_mul_i64(last[0], r * r, &joined[x.ndim - 3]))
        return refuse(&x, "downscale_factor", r, err);
    const int64_t split[6] = {in_front(&x), last[0], last[1] / r, r, last[2] / r, r};
    return rearrange(c, &x, split, (uint32_t[]){0, 1, 3, 5, 2, 4}, 6, joined, x.ndim, err);
}

static int channel_shuffle(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array x = {0};
    int64_t groups = 0, inner = 1;
    const int rc = take(c, "groups", &x, &groups, err);
    if (rc < 0)
        return rc;
    if (x.shape[1] % groups != 0)
        return refuse(&x, "groups", groups, err);
    for (uint32_t d = 2; d < x.ndim; d++)
        inner *= x.shape[d];
    const int64_t split[4] = {x.shape[0], groups, x.shape[1] / groups, inner};
    return rearrange(c, &x, split, (uint32_t[]){0, 2, 1, 3}, 4, x.shape, x.ndim, err);
}

static const struct ckpt_op ops[] = {
    {"pixel_shuffle", "pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", pixel_shuffle},
    {"pixel_unshuffle", "pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
     pixel_unshuffle},
    {"channel_shuffle", "channel_shuffle(Tensor self, SymInt groups) -> Tensor", channel_shuffle},
    {"native_channel_shuffle", "native_channel_shuffle(Tensor self, SymInt groups) -> Tensor",
     channel_shuffle},
};

const struct ckpt_op_family ckpt_family_shuffle = CKPT_OP_FAMILY(ops);
