/* Rows over any dimensions: a view with the reduced ones last, made dense. */
#include "verify/reduce.h"

#include <string.h>

#include "base/cleanup.h"

void ckpt_reduction_fini(struct ckpt_reduction *r) {
    ckpt_array_fini(&r->rows);
}

const void *ckpt_reduction_row(const struct ckpt_reduction *r, int64_t i) {
    const int64_t size = ckpt_dtype_info(r->rows.dtype)->unit_bytes;
    return (const char *)r->rows.data + i * r->width * size;
}

/* Which dimensions, a bit each. */
static int reduced_dims(const struct ckpt_call *c, uint32_t ndim, bool empty_is_none,
                        uint32_t *mask, struct ckpt_err *err) {
    uint32_t dim[CKPT_ARRAY_NDIM_MAX], n = 0;
    const int rc = ckpt_call_dims(c, "dim", ndim, dim, &n, err);
    *mask = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        *mask |= 1u << dim[i];
    if (n == 0 && !(empty_is_none && ckpt_call_arg(c, "dim")))
        *mask = (1u << ndim) - 1;
    return rc;
}

/* Result shape and row width; order has the reduced dimensions last. */
static void lay_out(const struct ckpt_array *x, uint32_t mask, bool keep, uint32_t *order,
                    struct ckpt_reduction *r) {
    uint32_t n = 0;
    r->count = r->width = 1;
    for (uint32_t d = 0; d < x->ndim; d++) {
        const bool reduced = mask & 1u << d;
        if (!reduced)
            order[n++] = d;
        if (!reduced || keep)
            r->shape[r->ndim++] = reduced ? 1 : x->shape[d];
        *(reduced ? &r->width : &r->count) *= x->shape[d];
    }
    for (uint32_t d = 0; d < x->ndim; d++)
        if (mask & 1u << d)
            order[n++] = d;
}

int ckpt_reduction_init(const struct ckpt_call *c, const struct ckpt_array *x,
                        enum ckpt_dtype dtype, bool empty_is_none, struct ckpt_reduction *r,
                        struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array cast = {0}, turned = {0};
    uint32_t order[CKPT_ARRAY_NDIM_MAX], mask = 0;
    memset(r, 0, sizeof(*r));
    int rc = reduced_dims(c, x->ndim, empty_is_none, &mask, err);
    if (rc == 0)
        rc = ckpt_array_cast(x, dtype, &c->exec->memory, &cast, err);
    if (rc < 0)
        return rc;
    lay_out(x, mask, ckpt_call_bool(c, "keepdim", false), order, r);
    turned = ckpt_array_permute(&cast, order);
    return ckpt_array_contiguous(&turned, &c->exec->memory, &r->rows, err);
}
