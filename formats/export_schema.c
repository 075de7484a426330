#include "formats/export_schema.h"

#include <errno.h>
#include <string.h>

#include "base/json_walk.h"
#include "formats/tensor.h"

#define LAYOUT_STRIDED 7

enum ckpt_dtype ckpt_export_dtype(int64_t number) {
    static const enum ckpt_dtype dtypes[] = {
        [1] = CKPT_DT_U8,       [2] = CKPT_DT_I8,           [3] = CKPT_DT_I16,
        [4] = CKPT_DT_I32,      [5] = CKPT_DT_I64,          [6] = CKPT_DT_F16,
        [7] = CKPT_DT_F32,      [8] = CKPT_DT_F64,          [9] = CKPT_DT_C32,
        [10] = CKPT_DT_C64,     [11] = CKPT_DT_C128,        [12] = CKPT_DT_BOOL,
        [13] = CKPT_DT_BF16,    [28] = CKPT_DT_U16,         [29] = CKPT_DT_F8_E4M3,
        [30] = CKPT_DT_F8_E5M2, [31] = CKPT_DT_F8_E4M3FNUZ, [32] = CKPT_DT_F8_E5M2FNUZ,
        [33] = CKPT_DT_F8_E8M0, [34] = CKPT_DT_U32,         [35] = CKPT_DT_U64,
    };
    const bool known = number > 0 && (uint64_t)number < sizeof dtypes / sizeof dtypes[0];
    return known ? dtypes[number] : CKPT_DT_NONE;
}

/* A tensor's description while it is read. */
struct reader {
    struct ckpt_json *json;
    struct ckpt_arena *arena;
    struct ckpt_export_meta *out;
    const char *list_name; /* "sizes" or "strides" */
    int64_t list[CKPT_NDIM_MAX];
    uint32_t n; /* of list */
    uint32_t nstrides;
    int64_t number; /* the last one read */
    bool has_dtype, has_sizes;
};

/* {"as_int": 8}; {"as_expr": ...} is symbolic. */
static int number_member(void *user, struct ckpt_text key) {
    struct reader *r = user;
    if (!ckpt_text_is(key, "as_int"))
        return ckpt_json_read_nothing(r->json);
    return ckpt_json_read_int(r->json, "as_int", &r->number);
}

static int read_number(struct reader *r, int token, const char *what) {
    r->number = CKPT_SYMBOLIC;
    return ckpt_json_take_object(r->json, token, what, number_member, r);
}

static int list_element(void *user, int token) {
    struct reader *r = user;
    const int rc = read_number(r, token, r->list_name);
    if (rc)
        return rc;
    if (r->n == CKPT_NDIM_MAX)
        return ckpt_fail(r->json->err, -EINVAL, "%s with more than %d entries at byte %zu",
                         r->list_name, CKPT_NDIM_MAX, r->json->at);
    r->list[r->n++] = r->number;
    return 0;
}

static int read_list(struct reader *r, const char *name, const int64_t **out) {
    r->list_name = name;
    r->n = 0;
    const int rc = ckpt_json_read_array(r->json, name, list_element, r);
    if (rc)
        return rc;
    int64_t *copy = ckpt_arena_array(r->arena, r->n, sizeof *copy);
    if (!copy)
        return ckpt_fail_memory(r->json->err, "reading tensor descriptions");
    memcpy(copy, r->list, r->n * sizeof *copy);
    *out = copy;
    return 0;
}

static int read_sizes(struct reader *r) {
    const int rc = read_list(r, "sizes", &r->out->shape);
    if (rc)
        return rc;
    r->out->ndim = r->n;
    r->has_sizes = true;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->out->shape[i] < 0 && r->out->shape[i] != CKPT_SYMBOLIC)
            return ckpt_fail(r->json->err, -EINVAL, "a negative size (%lld) before byte %zu",
                             (long long)r->out->shape[i], r->json->at);
    return 0;
}

static int member(void *user, struct ckpt_text key) {
    struct reader *r = user;
    int64_t layout;
    int rc;
    if (ckpt_text_is(key, "sizes"))
        return read_sizes(r);
    if (ckpt_text_is(key, "strides")) {
        rc = read_list(r, "strides", &r->out->stride);
        r->nstrides = r->n;
        return rc;
    }
    if (ckpt_text_is(key, "storage_offset")) {
        rc = read_number(r, ckpt_json_next(r->json), "storage_offset");
        r->out->offset = r->number;
        return rc;
    }
    if (ckpt_text_is(key, "dtype")) {
        r->has_dtype = true;
        return ckpt_json_read_int(r->json, "dtype", &r->out->dtype_number);
    }
    if (!ckpt_text_is(key, "layout"))
        return ckpt_json_read_nothing(r->json);
    rc = ckpt_json_read_int(r->json, "layout", &layout);
    r->out->strided = rc == 0 && layout == LAYOUT_STRIDED;
    return rc;
}

int ckpt_export_meta_read(struct ckpt_json *j, struct ckpt_arena *a, struct ckpt_export_meta *out) {
    return ckpt_export_meta_take(j, ckpt_json_next(j), a, out);
}

int ckpt_export_meta_take(struct ckpt_json *j, int token, struct ckpt_arena *a,
                          struct ckpt_export_meta *out) {
    struct reader r = {.json = j, .arena = a, .out = out};
    *out = (struct ckpt_export_meta){.strided = true};
    const int rc = ckpt_json_take_object(j, token, "a tensor's description", member, &r);
    if (rc)
        return rc;
    if (!r.has_dtype || !r.has_sizes || (out->stride && r.nstrides != out->ndim))
        return ckpt_fail(j->err, -EINVAL, "a tensor's description before byte %zu has no %s", j->at,
                         !r.has_dtype   ? "dtype"
                         : !r.has_sizes ? "sizes"
                                        : "stride for each size");
    out->dtype = ckpt_export_dtype(out->dtype_number);
    return 0;
}
