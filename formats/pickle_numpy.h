#ifndef CKPT_FORMATS_PICKLE_NUMPY_H
#define CKPT_FORMATS_PICKLE_NUMPY_H
/* numpy's dtypes as pickles write them (private to pickle_*numpy*.c). */
#include "formats/dtype.h"
#include "formats/pickle_make.h"

struct numpy_dtype {
    enum ckpt_dtype dtype; /* NONE: strings, objects, structures */
    bool swap;             /* big-endian */
    char kind;             /* numpy's letter: 'f', 'U', 'O' ... */
    uint32_t size;         /* the number behind it: bytes, of 'U' characters */
};

/* A numpy array of strings or objects becomes a list of lists; leaves it alone and *made false if
 * the state is not that of such an array. */
int pickle_numpy_list(struct pickle_vm *vm, struct ckpt_value *target,
                      const struct ckpt_value *shape, const struct numpy_dtype *d,
                      const struct ckpt_value *data, bool *made) CKPT_CHECKED;

#endif
