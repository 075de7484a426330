#ifndef CKPT_FS_VERIFY_TEXT_H
#define CKPT_FS_VERIFY_TEXT_H
/* A verification for people, who want to see where it went wrong: --verify --verbose. */
#include "verify/run.h"

/* Appends to a struct ckpt_str, `arg`: what each stage took, outputs and their differences, layers
 * and properties that are no PASS, and what the numbers of the tensors are like. */
int ckpt_verify_text(void *arg, const struct ckpt_verification *v, struct ckpt_err *err);

#endif
