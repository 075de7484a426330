/* Elements of any float dtype as doubles. */
#include "verify/number.h"

#include <math.h>

#include "adapters/gather.h"

double ckpt_number_read(enum ckpt_dtype from, const uint8_t *element) {
    const struct ckpt_element_map map = {.from = from, .to = CKPT_DT_F64};
    double d;
    ckpt_element_convert(&map, element, (uint8_t *)&d);
    return d;
}

void ckpt_number_write(enum ckpt_dtype to, double d, uint8_t *element) {
    const struct ckpt_element_map map = {.from = CKPT_DT_F64, .to = to};
    ckpt_element_convert(&map, (const uint8_t *)&d, element);
}

double ckpt_number_epsilon(enum ckpt_dtype t, double *least) {
    static const struct {
        enum ckpt_dtype dtype;
        double epsilon, least;
    } rows[] = {
        {CKPT_DT_F16, 0x1p-10, 0x1p-24},
        {CKPT_DT_BF16, 0x1p-7, 0x1p-133},
        {CKPT_DT_F32, 0x1p-23, 0x1p-149},
        {CKPT_DT_F64, 0x1p-52, 0x1p-1074},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].dtype != t)
            continue;
        *least = fmax(*least, rows[i].least);
        return rows[i].epsilon;
    }
    return 0;
}
