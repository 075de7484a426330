#include "formats/box.h"

#include <string.h>

/* One line along the last axis. */
static void copy_line(const struct ckpt_box *b, uint32_t last, const uint8_t *from, uint8_t *to) {
    const int64_t n = b->size[last], es = b->esize;
    if (b->from[last] == es && b->to[last] == es) {
        memcpy(to, from, (size_t)(n * es));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * b->to[last], from + i * b->from[last], (size_t)es);
}

void ckpt_box_copy(const struct ckpt_box *b, const uint8_t *from, uint8_t *to) {
    int64_t at[CKPT_NDIM_MAX] = {0};
    if (b->ndim == 0) {
        memcpy(to, from, b->esize);
        return;
    }
    const uint32_t last = b->ndim - 1;
    for (;;) {
        copy_line(b, last, from, to);
        uint32_t d = last;
        while (d > 0) {
            d--;
            from += b->from[d];
            to += b->to[d];
            if (++at[d] < b->size[d])
                break;
            from -= b->size[d] * b->from[d];
            to -= b->size[d] * b->to[d];
            at[d] = 0;
            if (d == 0)
                return;
        }
        if (last == 0)
            return;
    }
}
