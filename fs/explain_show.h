#ifndef CKPT_FS_EXPLAIN_SHOW_H
#define CKPT_FS_EXPLAIN_SHOW_H
/* What --explain prints. model NULL: it could not be built; more: tensors left out. */
#include "adapters/explain.h"
#include "base/text.h"

void ckpt_explain_text(const struct ckpt_explain *e, const struct ckpt_model *model, size_t more,
                       struct ckpt_str *out);
void ckpt_explain_json(const struct ckpt_explain *e, const struct ckpt_model *model, size_t more,
                       struct ckpt_str *out);

#endif
