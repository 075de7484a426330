#ifndef CKPT_VERIFY_REFERENCE_H
#define CKPT_VERIFY_REFERENCE_H
/*
 * What PyTorch recorded: `input.N` and `output.N` of the whole model, `LAYER.input` and
 * `LAYER.output` of single layers. The file is given by the user, or lies beside the source as
 * STEM.reference.safetensors.
 */
#include "base/strmap.h"
#include "formats/checkpoint.h"
#include "verify/op.h"
#include "verify/status.h"

struct ckpt_reference {
    struct ckpt_checkpoint *file; /* NULL: none */
    struct ckpt_strmap by_key;
    enum ckpt_status status; /* PASS: open; SKIP: none; TEST_FAIL: of no use */
    struct ckpt_reason reason;
};

/* STEM + ending, STEM being source without its last extension. NULL: out of memory. */
char *ckpt_reference_sidecar(const char *source, const char *ending);
int ckpt_reference_open(const struct ckpt_verify_options *options, struct ckpt_reference *ref,
                        struct ckpt_err *err) CKPT_CHECKED;
void ckpt_reference_close(struct ckpt_reference *ref);
#define ckpt_auto_reference ckpt_reference_close

/* The tensor "PATH.NAME" ("NAME" if path is empty), or NULL. */
const struct ckpt_tensor *ckpt_reference_get(const struct ckpt_reference *ref,
                                             struct ckpt_text path, const char *name);

#endif
