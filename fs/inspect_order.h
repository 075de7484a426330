#ifndef CKPT_FS_INSPECT_ORDER_H
#define CKPT_FS_INSPECT_ORDER_H
/* The order in which --inspect lists tensors: what lies in one folder stands together. */
#include "adapters/model.h"

/* Indices of the model's tensors, on the heap. NULL: out of memory. */
size_t *ckpt_inspect_order(const struct ckpt_model *m);

#endif
