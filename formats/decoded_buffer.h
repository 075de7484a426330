#ifndef CKPT_FORMATS_DECODED_BUFFER_H
#define CKPT_FORMATS_DECODED_BUFFER_H
/* Memory for decoded bytes: anonymous, or that of an unlinked temporary file. */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

int ckpt_decoded_buffer_new(const char *name, uint64_t size, bool spill, uint8_t **out,
                            struct ckpt_err *err) CKPT_CHECKED;
void ckpt_decoded_buffer_free(uint8_t *data, uint64_t size, bool spill); /* NULL is fine */

#endif
