#include "formats/npy_write.h"

#include <errno.h>
#include <inttypes.h>

/*
 *     6 bytes   1 1     2 bytes   n bytes
 *     \x93NUMPY 1 0     n (LE)    {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n
 *
 * n is chosen so that all of it is a multiple of 64 bytes; 64 dimensions of 19 digits fit its 16
 * bits.
 */
#define ALIGNMENT 64u
#define FIXED 10u

static void add_shape(struct ckpt_str *s, const int64_t *shape, uint32_t ndim) {
    ckpt_str_puts(s, "(");
    for (uint32_t i = 0; i < ndim; i++)
        ckpt_str_printf(s, "%s%" PRId64, i ? ", " : "", shape[i]);
    ckpt_str_puts(s, ndim == 1 ? ",)" : ")");
}

int ckpt_npy_write_header(struct ckpt_str *out, enum ckpt_dtype dtype, const int64_t *shape,
                          uint32_t ndim, struct ckpt_err *err) {
    const struct ckpt_dtype_info *d = ckpt_dtype_info(dtype);
    if (!d->numpy)
        return ckpt_fail(err, -EINVAL, "numpy has no dtype for %s", d->name);
    const size_t start = out->n;
    ckpt_str_add(out, "\x93NUMPY\1\0\0\0", FIXED);
    ckpt_str_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': ", d->numpy);
    add_shape(out, shape, ndim);
    ckpt_str_puts(out, ", }");
    while ((out->n - start + 1) % ALIGNMENT && !out->failed)
        ckpt_str_puts(out, " ");
    ckpt_str_puts(out, "\n");
    if (out->failed)
        return ckpt_fail_memory(err, "writing a .npy header");
    const size_t length = out->n - start - FIXED;
    out->s[start + 8] = (char)(length & 0xff);
    out->s[start + 9] = (char)(length >> 8);
    return 0;
}
