#include "formats/torch.h"

#include <errno.h>

#include "formats/pickle_vm.h"

/*
 * Looks below a value once and remembers: is there a tensor, does it contain itself, how large is
 * it when written out as a tree. A pickle's values are a graph: forty lists that each hold the
 * previous one ten times are 400 pointers here and 10^39 numbers as JSON, so nothing is written
 * before its weight is known.
 */

#define TEXT_PER_NODE 64 /* bytes of text that weigh as much as a node */

static uint64_t saturating_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static void become_opaque(struct ckpt_value *v, const char *cls) {
    v->kind = CKPT_VALUE_OPAQUE;
    v->text = ckpt_text_of(cls);
}

static const char *storage_class(const struct torch_storage *s) {
    return s->cls ? s->cls : "storage";
}

bool torch_has_state(const struct ckpt_value *v) {
    return v->kind == CKPT_VALUE_OPAQUE && pickle_is(v->attributes, CKPT_VALUE_DICT);
}

bool torch_has_content(const struct ckpt_value *v) {
    return torch_has_state(v) ||
           (v->kind == CKPT_VALUE_OPAQUE && pickle_is(v->attributes, CKPT_VALUE_TUPLE));
}

/* An object that refers to one above it (a child to its parent) shows the parent's class there: it
 * gets an object without state in its place. */
static int cut_cycle(struct ckpt_arena *a, struct ckpt_value **item, struct ckpt_err *err) {
    const struct pickle_object *above = (const struct pickle_object *)*item;
    if (!torch_has_content(*item) || above->mark != TORCH_ON_PATH)
        return 0;
    struct pickle_object *leaf = ckpt_arena_alloc(a, sizeof *leaf);
    if (!leaf)
        return ckpt_fail_memory(err, "walking the checkpoint");
    leaf->v.kind = CKPT_VALUE_OPAQUE;
    leaf->v.text = above->v.text;
    *item = &leaf->v;
    return 0;
}

/* Attributes beside the items of a dict or list (a subclass of them) are not shown, but a container
 * whose attributes hold tensors must be walked, so that they are listed. */
static int scan_attributes(struct ckpt_arena *a, const struct ckpt_value *v, unsigned depth,
                           enum torch_mark *result, struct ckpt_err *err) {
    enum torch_mark mark = TORCH_PLAIN;
    uint64_t weight;
    if (v->kind == CKPT_VALUE_OPAQUE || !pickle_is(v->attributes, CKPT_VALUE_DICT))
        return 0;
    const int rc = torch_scan(a, v->attributes, depth + 1, &mark, &weight, err);
    if (mark == TORCH_MIXED)
        *result = TORCH_MIXED;
    return rc;
}

static int scan_items(struct ckpt_arena *a, struct ckpt_value *v, unsigned depth,
                      struct ckpt_err *err) {
    struct pickle_object *o = (struct pickle_object *)v;
    const bool has_parts =
        v->kind == CKPT_VALUE_OPAQUE && pickle_is(v->attributes, CKPT_VALUE_TUPLE);
    const struct ckpt_value *from = has_parts ? v->attributes : ckpt_value_shown(v);
    enum torch_mark result = TORCH_PLAIN;
    uint64_t weight = 1;
    uint32_t height = 0;
    o->mark = TORCH_ON_PATH;
    for (size_t i = 0; i < from->seq.n; i++) {
        enum torch_mark mark = TORCH_PLAIN;
        uint64_t w = 0;
        int rc = cut_cycle(a, &from->seq.item[i], err);
        if (rc == 0)
            rc = torch_scan(a, from->seq.item[i], depth + 1, &mark, &w, err);
        if (rc)
            return rc;
        if (mark != TORCH_PLAIN)
            result = TORCH_MIXED;
        weight = saturating_add(weight, w);
        if (from->seq.item[i]->depth + 1 > height)
            height = from->seq.item[i]->depth + 1;
    }
    const int rc = scan_attributes(a, v, depth, &result, err);
    if (rc)
        return rc;
    v->b = has_parts && result == TORCH_MIXED;
    if (has_parts && !v->b) { /* its class says more than what it was made of */
        weight = 1;
        height = 0;
    }
    o->mark = (uint8_t)result;
    o->weight = weight;
    v->depth = height;
    return 0;
}

int torch_scan(struct ckpt_arena *a, struct ckpt_value *v, unsigned depth, enum torch_mark *mark,
               uint64_t *weight, struct ckpt_err *err) {
    struct pickle_object *o = (struct pickle_object *)v;
    *mark = TORCH_PLAIN;
    *weight = 1;
    if (depth > CKPT_LIMIT_PICKLE_DEPTH)
        return ckpt_fail(err, -E2BIG, "values nested more than %u deep (limit of pickle depth)",
                         CKPT_LIMIT_PICKLE_DEPTH);
    switch (v->kind) {
    case CKPT_PICKLE_TENSOR:
    case CKPT_VALUE_MODULE:
        *mark = TORCH_MIXED;
        return 0;
    case CKPT_PICKLE_STORAGE:
        become_opaque(v, storage_class(v->format));
        v->depth = 0;
        return 0;
    case CKPT_PICKLE_NUMPY_DTYPE:
        become_opaque(v, "numpy.dtype");
        v->depth = 0;
        return 0;
    case CKPT_PICKLE_LEFT_BYTES: /* too long to be shown, and nobody took them */
        become_opaque(v, "bytes");
        v->depth = 0;
        return 0;
    case CKPT_VALUE_STR:
    case CKPT_VALUE_BYTES:
    case CKPT_VALUE_BIGINT:
        *weight += v->text.n / TEXT_PER_NODE;
        return 0;
    case CKPT_VALUE_OPAQUE:
        if (torch_has_content(v))
            break;
        v->depth = 0;
        return 0;
    case CKPT_VALUE_LIST:
    case CKPT_VALUE_TUPLE:
    case CKPT_VALUE_SET:
    case CKPT_VALUE_DICT:
        break;
    default:
        return 0;
    }
    if (o->mark == TORCH_UNKNOWN) {
        const int rc = scan_items(a, v, depth, err);
        if (rc)
            return rc;
    }
    *mark = (enum torch_mark)o->mark;
    *weight = o->weight;
    return 0;
}
