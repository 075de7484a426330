/* The operations of a rule: ["permute", [1, 0]], ["slice", 0, 8, 16] and their kin. */
#include <errno.h>
#include <string.h>

#include "adapters/lora.h"
#include "adapters/rule_parse.h"

struct op_reader {
    const struct ckpt_rule_reader *r;
    const cJSON *arg; /* the next one, or NULL */
    uint32_t number;  /* of the operation, from 1 */
    const char *name, *usage;
};

static int bad(const struct op_reader *o) {
    return ckpt_fail(o->r->err, -EINVAL, "%s: operation %u: expected %s", o->r->where, o->number,
                     o->usage);
}

static int take_integer(struct op_reader *o, int64_t lo, int64_t *out) {
    if (!o->arg || !ckpt_rule_integer(o->arg, lo, out))
        return bad(o);
    o->arg = o->arg->next;
    return 0;
}

static int take_axis(struct op_reader *o, uint32_t *axis) {
    int64_t v;
    const int rc = take_integer(o, 0, &v);
    if (rc || v >= CKPT_NDIM_MAX)
        return rc ? rc : bad(o);
    *axis = (uint32_t)v;
    return 0;
}

static int read_list(const struct op_reader *o, const cJSON *v, int64_t lo, const int64_t **list,
                     uint32_t *n) {
    const int size = cJSON_IsArray(v) ? cJSON_GetArraySize(v) : -1;
    if (size < 0 || size > (int)CKPT_RULE_LIST_MAX)
        return bad(o);
    int64_t *out = ckpt_arena_array(&o->r->rules->arena, (size_t)size, sizeof *out);
    if (!out)
        return ckpt_fail_memory(o->r->err, "reading rules");
    *n = 0;
    for (const cJSON *e = v->child; e; e = e->next)
        if (!ckpt_rule_integer(e, lo, &out[(*n)++]))
            return bad(o);
    *list = out;
    return 0;
}

static int take_list(struct op_reader *o, int64_t lo, struct ckpt_rule_op *op) {
    const int rc = read_list(o, o->arg, lo, &op->list, &op->n);
    if (rc == 0)
        o->arg = o->arg->next;
    return rc;
}

static int read_permute(struct op_reader *o, struct ckpt_rule_op *op) {
    const int rc = take_list(o, 0, op);
    uint64_t seen = 0;
    for (uint32_t i = 0; rc == 0 && i < op->n; i++) {
        if (op->list[i] >= op->n || seen & (1ull << op->list[i]))
            return bad(o);
        seen |= 1ull << op->list[i];
    }
    return rc;
}

static int read_reshape(struct op_reader *o, struct ckpt_rule_op *op) {
    const int rc = take_list(o, -1, op);
    uint32_t inferred = 0;
    for (uint32_t i = 0; rc == 0 && i < op->n; i++)
        inferred += op->list[i] == -1;
    return rc == 0 && inferred > 1 ? bad(o) : rc;
}

static int read_slice(struct op_reader *o, struct ckpt_rule_op *op) {
    int rc = take_axis(o, &op->axis);
    if (rc == 0)
        rc = take_integer(o, 0, &op->start);
    if (rc || !o->arg) { /* x[start]: the axis goes */
        op->kind = CKPT_RULE_INDEX;
        return rc;
    }
    op->step = 1;
    op->stop = INT64_MAX;
    if (cJSON_IsNull(o->arg))
        o->arg = o->arg->next;
    else
        rc = take_integer(o, 0, &op->stop);
    if (rc == 0 && o->arg)
        rc = take_integer(o, 1, &op->step);
    return rc;
}

static int read_axis(struct op_reader *o, struct ckpt_rule_op *op) {
    op->which = CKPT_RULE_EACH;
    return take_axis(o, &op->axis);
}

/* Equal blocks, or the length of each; one of them may be -1, the rest. */
static int read_split(struct op_reader *o, struct ckpt_rule_op *op) {
    int rc = read_axis(o, op);
    if (rc || !cJSON_IsArray(o->arg))
        return rc ? rc : take_integer(o, 1, &op->count);
    rc = take_list(o, -1, op);
    uint32_t rests = 0;
    for (uint32_t i = 0; rc == 0 && i < op->n; i++)
        rests += op->list[i] == -1;
    op->count = op->n;
    return rc == 0 && (op->n == 0 || rests > 1) ? bad(o) : rc;
}

static int read_join(const struct op_reader *o, const cJSON *v, struct ckpt_rule_join *join) {
    if (cJSON_IsString(v)) {
        join->key = ckpt_rule_copy(o->r, v);
        return join->key.s ? 0 : ckpt_fail_memory(o->r->err, "reading rules");
    }
    const cJSON *word = cJSON_IsArray(v) ? v->child : NULL;
    if (!word || !cJSON_IsString(word) || strcmp(word->valuestring, "zeros") != 0)
        return bad(o);
    if (!word->next)
        return 0;
    if (word->next->next)
        return bad(o);
    const int rc = read_list(o, word->next, 0, &join->shape, &join->ndim);
    return rc == 0 && join->ndim == 0 ? bad(o) : rc;
}

static int read_concat(struct op_reader *o, struct ckpt_rule_op *op) {
    const int rc = take_axis(o, &op->axis);
    if (rc)
        return rc;
    const int n = cJSON_IsArray(o->arg) ? cJSON_GetArraySize(o->arg) : 0;
    if (n < 1 || n >= (int)CKPT_RULE_PIECES_MAX)
        return bad(o);
    struct ckpt_rule_join *join = ckpt_arena_array(&o->r->rules->arena, (size_t)n, sizeof *join);
    if (!join)
        return ckpt_fail_memory(o->r->err, "reading rules");
    for (const cJSON *e = o->arg->child; e; e = e->next) {
        const int bad_join = read_join(o, e, &join[op->njoin++]);
        if (bad_join)
            return bad_join;
    }
    op->join = join;
    o->arg = o->arg->next;
    return 0;
}

static int read_zeros(struct op_reader *o, struct ckpt_rule_op *op) {
    op->alike = !o->arg;
    return op->alike ? 0 : take_list(o, 0, op);
}

/* n keys, of what is computed with the source. */
static int take_keys(struct op_reader *o, uint32_t n, struct ckpt_rule_op *op) {
    struct ckpt_rule_join *join = ckpt_arena_array(&o->r->rules->arena, n, sizeof *join);
    if (!join)
        return ckpt_fail_memory(o->r->err, "reading rules");
    op->join = join;
    for (; op->njoin < n; o->arg = o->arg->next) {
        if (!o->arg || !cJSON_IsString(o->arg))
            return bad(o);
        const int rc = read_join(o, o->arg, &join[op->njoin++]);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_weight_norm(struct op_reader *o, struct ckpt_rule_op *op) {
    return take_keys(o, 1, op);
}

static int read_lora(struct op_reader *o, struct ckpt_rule_op *op) {
    const int rc = take_keys(o, 2, op);
    op->axis = CKPT_LORA_NO_SUM;
    return rc || !o->arg ? rc : take_axis(o, &op->axis);
}

static const struct op_row {
    const char *name;
    enum ckpt_rule_op_kind kind;
    int (*read)(struct op_reader *o, struct ckpt_rule_op *op);
    const char *usage;
} rows[] = {
    {"permute", CKPT_RULE_PERMUTE, read_permute, "[\"permute\", [each axis once]]"},
    {"reshape", CKPT_RULE_RESHAPE, read_reshape, "[\"reshape\", [sizes, 0 keeps, one -1]]"},
    {"slice", CKPT_RULE_SLICE, read_slice,
     "[\"slice\", axis, start, stop or null, step] or [\"slice\", axis, index]"},
    {"flip", CKPT_RULE_FLIP, read_axis, "[\"flip\", axis]"},
    {"squeeze", CKPT_RULE_SQUEEZE, read_axis, "[\"squeeze\", axis]"},
    {"unsqueeze", CKPT_RULE_UNSQUEEZE, read_axis, "[\"unsqueeze\", axis]"},
    {"split", CKPT_RULE_SPLIT, read_split,
     "[\"split\", axis, blocks] or [\"split\", axis, [lengths, one may be -1]]"},
    {"unstack", CKPT_RULE_UNSTACK, read_axis, "[\"unstack\", axis]"},
    {"concat", CKPT_RULE_CONCAT, read_concat,
     "[\"concat\", axis, [keys, or [\"zeros\", [shape]], or [\"zeros\"]]]"},
    {"zeros", CKPT_RULE_ZEROS, read_zeros, "[\"zeros\", [shape]] or [\"zeros\"]"},
    {"weight_norm", CKPT_RULE_WEIGHT_NORM, read_weight_norm, "[\"weight_norm\", key of g]"},
    {"lora", CKPT_RULE_LORA, read_lora,
     "[\"lora\", key of a, key of b] or [\"lora\", key of a, key of b, axis of b to add up]"},
};

static int read_op(const struct ckpt_rule_reader *r, const cJSON *v, uint32_t number,
                   struct ckpt_rule_op *op) {
    const cJSON *name = cJSON_IsArray(v) ? v->child : NULL;
    if (!name || !cJSON_IsString(name))
        return ckpt_fail(r->err, -EINVAL,
                         "%s: operation %u: expected an array that begins with a name", r->where,
                         number);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(name->valuestring, rows[i].name) != 0)
            continue;
        struct op_reader o = {r, name->next, number, rows[i].name, rows[i].usage};
        op->kind = rows[i].kind;
        const int rc = rows[i].read(&o, op);
        return rc == 0 && o.arg ? bad(&o) : rc;
    }
    return ckpt_fail(r->err, -EINVAL, "%s: operation %u: none is called \"%s\"", r->where, number,
                     name->valuestring);
}

/* zeros of a shape can only begin a list, and there is one concat at most. */
static int check_order(const struct ckpt_rule_reader *r, const struct ckpt_rule_op *op,
                       uint32_t n) {
    uint32_t concats = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (op[i].kind == CKPT_RULE_ZEROS && !op[i].alike && i > 0)
            return ckpt_fail(r->err, -EINVAL,
                             "%s: operation %u: zeros of a shape can only be the first", r->where,
                             i + 1);
        concats += op[i].kind == CKPT_RULE_CONCAT;
    }
    return concats > 1 ? ckpt_fail(r->err, -EINVAL, "%s: \"ops\": more than one concat", r->where)
                       : 0;
}

int ckpt_rule_read_ops(const struct ckpt_rule_reader *r, const cJSON *v, struct ckpt_rule_op **out,
                       uint32_t *n) {
    const int size = !v ? 0 : cJSON_IsArray(v) ? cJSON_GetArraySize(v) : -1;
    if (size < 0 || size > (int)CKPT_RULE_OPS_MAX)
        return ckpt_rule_want(r, "ops", "an array of at most 16 operations", v);
    *out = ckpt_arena_array(&r->rules->arena, (size_t)size, sizeof **out);
    if (!*out)
        return ckpt_fail_memory(r->err, "reading rules");
    *n = 0;
    for (const cJSON *e = size ? v->child : NULL; e; e = e->next) {
        const int rc = read_op(r, e, *n + 1, &(*out)[*n]);
        if (rc)
            return rc;
        ++*n;
    }
    return check_order(r, *out, *n);
}
