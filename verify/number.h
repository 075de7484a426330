#ifndef CKPT_VERIFY_NUMBER_H
#define CKPT_VERIFY_NUMBER_H
/* Single elements as numbers, and how exact their dtypes are. */
#include <stdint.h>

#include "formats/dtype.h"

double ckpt_number_read(enum ckpt_dtype from, const uint8_t *element);
void ckpt_number_write(enum ckpt_dtype to, double d, uint8_t *element);
/* One unit in the last place of 1; *least becomes the smallest number there is, unless it is larger
 * already. 0 for what is no float. */
double ckpt_number_epsilon(enum ckpt_dtype t, double *least);

#endif
