#ifndef CKPT_BASE_ARRAY_H
#define CKPT_BASE_ARRAY_H
/* Arrays on the heap that grow by doubling. */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for element n of *array (a pointer to a pointer of any type) of *cap elements. False
 * when out of memory; the array is then as it was. */
static inline bool ckpt_array_grow(void *array, size_t n, size_t *cap, size_t element_size) {
    if (n < *cap)
        return true;
    void *p;
    memcpy(&p, array, sizeof p);
    const size_t bigger = *cap ? 2 * *cap : 64;
    p = reallocarray(p, bigger, element_size);
    if (!p)
        return false;
    memcpy(array, &p, sizeof p);
    *cap = bigger;
    return true;
}

#endif
