#ifndef CKPT_VERIFY_OP_SCHEMA_H
#define CKPT_VERIFY_OP_SCHEMA_H
/*
 * What a schema says of an operation's parameters: "max.dim(Tensor self, int dim, bool
 * keepdim=False)
 * -> ..." has self, dim and keepdim. Only our own tables are read, which are well formed.
 */
#include "verify/op.h"

struct ckpt_schema_param {
    struct ckpt_text type, name; /* "Tensor?", "bias" */
    bool optional;               /* has a default */
    bool named;                  /* behind "*": given by its name only */
};

/* Parameter i; false: there are not so many. */
bool ckpt_schema_param(const char *schema, uint32_t i, struct ckpt_schema_param *out);
/* The parameter of that name. */
bool ckpt_schema_find(const char *schema, struct ckpt_text name, struct ckpt_schema_param *out);

#endif
