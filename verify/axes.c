/* Spatial axes of an input, numbers given for each of them, and results that differ in them. */
#include "verify/axes.h"

#include <errno.h>
#include <string.h>

int ckpt_axes_init(struct ckpt_axes *a, const struct ckpt_array *x, uint32_t spatial,
                   struct ckpt_err *err) {
    char text[96];
    *a = (struct ckpt_axes){.spatial = spatial, .in = {1, 1, 1}, .planes = 1};
    a->unbatched = x->ndim == spatial + 1;
    if (!a->unbatched && x->ndim != spatial + 2)
        return ckpt_fail(err, -EINVAL, "the input %s has %u dimensions, expected %u",
                         ckpt_array_shape_text(x, text, sizeof(text)), x->ndim, spatial + 2);
    for (uint32_t d = 0; d < x->ndim - spatial; d++)
        a->planes *= x->shape[d];
    for (uint32_t d = 0; d < spatial; d++)
        a->in[3 - spatial + d] = x->shape[x->ndim - spatial + d];
    for (uint32_t d = 0; d < 3; d++)
        if (a->in[d] > INT32_MAX)
            return ckpt_fail(err, -EOVERFLOW, "the input %s has a dimension beyond 2^31",
                             ckpt_array_shape_text(x, text, sizeof(text)));
    return 0;
}

int ckpt_axes_read(const struct ckpt_call *c, uint32_t spatial, const char *name,
                   const int64_t *otherwise, int64_t absent, int64_t least, int64_t *out,
                   struct ckpt_err *err) {
    const struct ckpt_arg *const a = ckpt_call_arg(c, name);
    const bool given = a && !(a->kind == CKPT_ARG_INTS && a->ints.n == 0);
    const uint32_t first = 3 - spatial;
    int rc = 0;
    for (uint32_t d = 0; d < 3; d++)
        out[d] = d < first ? absent : otherwise[d];
    if (given)
        rc = ckpt_call_ints(c, name, spatial, 0, out + first, err);
    for (uint32_t d = first; rc == 0 && d < 3; d++)
        if (out[d] < least || out[d] > INT32_MAX)
            return ckpt_fail(err, -EINVAL, "%s is %lld, expected at least %lld", name,
                             (long long)out[d], (long long)least);
    return rc;
}

int ckpt_axes_result(struct ckpt_call *c, uint32_t i, enum ckpt_dtype dtype,
                     const struct ckpt_array *x, uint32_t spatial, const int64_t *size,
                     struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, x->shape, sizeof(shape));
    memcpy(shape + x->ndim - spatial, size + 3 - spatial, spatial * sizeof(*size));
    return ckpt_call_new(c, i, dtype, shape, x->ndim, err);
}
