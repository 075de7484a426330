#ifndef CKPT_ADAPTERS_RULE_PARSE_H
#define CKPT_ADAPTERS_RULE_PARSE_H
/* What the files that read rules share; nobody else includes it. */
#include <cjson/cJSON.h>

#include "adapters/rule.h"

struct ckpt_rule_reader {
    struct ckpt_rules *rules;
    const char *where; /* "FILE" or "FILE: rule 3": begins every message */
    struct ckpt_err *err;
};

/* -EINVAL: `"FIELD" is FOUND, expected EXPECTED`. */
int ckpt_rule_want(const struct ckpt_rule_reader *r, const char *field, const char *expected,
                   const cJSON *found) CKPT_CHECKED;
/* True if v is an integer >= lo that a double holds exactly. */
bool ckpt_rule_integer(const cJSON *v, int64_t lo, int64_t *out);
struct ckpt_text ckpt_rule_copy(const struct ckpt_rule_reader *r, const cJSON *string);
/* The list of operations; v NULL: none. */
int ckpt_rule_read_ops(const struct ckpt_rule_reader *r, const cJSON *v, struct ckpt_rule_op **out,
                       uint32_t *n) CKPT_CHECKED;

#endif
