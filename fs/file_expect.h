#ifndef CKPT_FS_FILE_EXPECT_H
#define CKPT_FS_FILE_EXPECT_H
/* What -o expect= found, as people and programs read it. Both do nothing where it was not asked. */
#include "adapters/model.h"
#include "base/json.h"

/* Appends to summary.txt: what burn would print. */
void ckpt_expect_write_summary(struct ckpt_str *out, const struct ckpt_model *m);
/* Adds the member "expect" to index.json. */
void ckpt_expect_write_index(struct ckpt_json_out *w, const struct ckpt_model *m);

#endif
