/*
 * Padding, an axis at a time: an element before or behind the input is a constant, or an element of
 * the input that its mode names. Negative padding cuts.
 *
 *     input  a b c   2 in front, 2 behind     reflect    c b a b c b a
 *                                             replicate  a a a b c c c
 *                                             circular   b c a b c a b
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"

/* Of every dimension; the lists of ATen begin with the last one. */
struct padding {
    int64_t before[CKPT_ARRAY_NDIM_MAX], behind[CKPT_ARRAY_NDIM_MAX];
};

static int take_padding(const struct ckpt_call *c, const struct ckpt_array *a, struct padding *p,
                        struct ckpt_err *err) {
    const struct ckpt_arg *const pad = ckpt_call_arg(c, "pad"), *const given =
                                                                    pad ? pad
                                                                        : ckpt_call_arg(c,
                                                                                        "padding");
    *p = (struct padding){0};
    if (!given || given->kind != CKPT_ARG_INTS)
        return ckpt_fail(err, -EINVAL, "the padding is missing or no list");
    if (given->ints.n % 2 != 0 || given->ints.n / 2 > a->ndim)
        return ckpt_fail(err, -EINVAL, "%u numbers of padding for %u dimensions", given->ints.n,
                         a->ndim);
    for (uint32_t i = 0; i < given->ints.n / 2; i++) {
        const uint32_t d = a->ndim - 1 - i;
        int64_t size = 0;
        p->before[d] = given->ints.v[2 * i];
        p->behind[d] = given->ints.v[2 * i + 1];
        if (!ckpt_add_i64(a->shape[d], p->before[d], &size) || size < 0 ||
            !ckpt_add_i64(size, p->behind[d], &size) || size < 0)
            return ckpt_fail(err, -EINVAL, "a padding of %lld and %lld to a dimension of %lld",
                             (long long)p->before[d], (long long)p->behind[d],
                             (long long)a->shape[d]);
    }
    return 0;
}

/* ---- a constant ---- */

static int pad_constant(struct ckpt_call *c, const struct ckpt_array *a, const struct padding *p,
                        const struct ckpt_scalar *value, struct ckpt_err *err) {
    const struct ckpt_array one = ckpt_scalar_array(value);
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    for (uint32_t d = 0; d < a->ndim; d++)
        shape[d] = a->shape[d] + p->before[d] + p->behind[d];
    int rc = ckpt_call_new(c, 0, a->dtype, shape, a->ndim, err);
    if (rc == 0 && value->f != 0)
        rc = ckpt_array_assign(c->out, &one, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(array) struct ckpt_array from = ckpt_array_ref(a), to = ckpt_array_ref(c->out);
    for (uint32_t d = 0; d < a->ndim; d++) {
        const int64_t before = p->before[d], behind = p->behind[d];
        const int64_t skip = before < 0 ? -before : 0;
        const int64_t len = a->shape[d] - skip + (behind < 0 ? behind : 0);
        CKPT_AUTO(array) struct ckpt_array whole_from = from, whole_to = to;
        from = ckpt_array_slice(&whole_from, d, skip, len < 0 ? 0 : len);
        to = ckpt_array_slice(&whole_to, d, before < 0 ? 0 : before, len < 0 ? 0 : len);
    }
    return ckpt_array_assign(&to, &from, err);
}

/* ---- elements of the input ---- */

/* Which element of n stands at place i, which may lie outside; -1: none. */
typedef int64_t place_fn(int64_t i, int64_t n);

static int64_t reflect(int64_t i, int64_t n) {
    const int64_t back = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    return back < n ? back : -1;
}

static int64_t replicate(int64_t i, int64_t n) {
    return n == 0 ? -1 : i < 0 ? 0 : i >= n ? n - 1 : i;
}

static int64_t circular(int64_t i, int64_t n) {
    const int64_t round = i < 0 ? i + n : i >= n ? i - n : i;
    return round < n ? round : -1;
}

/* Places [at, end) that follow each other in a, too, are copied together. */
static int copy_run(const struct ckpt_array *a, uint32_t d, place_fn *place, int64_t before,
                    struct ckpt_array *out, int64_t *at, struct ckpt_err *err) {
    const int64_t from = place(*at - before, a->shape[d]);
    int64_t len = 1;
    if (from < 0)
        return ckpt_fail(err, -EINVAL, "more padding than a dimension of %lld allows",
                         (long long)a->shape[d]);
    while (*at + len < out->shape[d] && place(*at + len - before, a->shape[d]) == from + len)
        len++;
    CKPT_AUTO(array) struct ckpt_array to = ckpt_array_slice(out, d, *at, len);
    CKPT_AUTO(array) struct ckpt_array part = ckpt_array_slice(a, d, from, len);
    *at += len;
    return ckpt_array_assign(&to, &part, err);
}

static int pad_axis(struct ckpt_call *c, const struct ckpt_array *a, uint32_t d,
                    const struct padding *p, place_fn *place, struct ckpt_array *out,
                    struct ckpt_err *err) {
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    memcpy(shape, a->shape, sizeof(shape));
    shape[d] += p->before[d] + p->behind[d];
    int rc = ckpt_array_new(out, &c->exec->memory, a->dtype, shape, a->ndim, err);
    const bool empty = rc < 0 || ckpt_array_count(out) == 0;
    for (int64_t at = 0; rc == 0 && !empty && at < shape[d];) {
        rc = copy_run(a, d, place, p->before[d], out, &at, err);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

/* What is cut is cut first, and does not come round. */
static void cut(struct ckpt_array *a, uint32_t d, struct padding *p) {
    const int64_t before = p->before[d] < 0 ? p->before[d] : 0;
    const int64_t behind = p->behind[d] < 0 ? p->behind[d] : 0;
    const int64_t len = a->shape[d] + before + behind;
    CKPT_AUTO(array) struct ckpt_array whole = *a;
    *a = ckpt_array_slice(&whole, d, -before, len < 0 ? 0 : len);
    p->before[d] -= before;
    p->behind[d] -= behind;
}

static int pad_places(struct ckpt_call *c, const struct ckpt_array *a, struct padding *p,
                      place_fn *place, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array now = ckpt_array_ref(a);
    int rc = 0;
    for (uint32_t d = 0; rc == 0 && d < a->ndim; d++) {
        if (p->before[d] == 0 && p->behind[d] == 0)
            continue;
        if (place == circular)
            cut(&now, d, p);
        CKPT_AUTO(array) struct ckpt_array before = now;
        memset(&now, 0, sizeof(now));
        rc = pad_axis(c, &before, d, p, place, &now, err);
    }
    return rc < 0 ? rc : ckpt_call_view(c, 0, ckpt_array_ref(&now), err);
}

/* ---- operations ---- */

static int pad_by(struct ckpt_call *c, place_fn *place, struct ckpt_scalar value,
                  struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    struct padding p;
    int rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = take_padding(c, &a, &p, err);
    if (rc < 0)
        return rc;
    return place ? pad_places(c, &a, &p, place, err) : pad_constant(c, &a, &p, &value, err);
}

static struct ckpt_scalar value_of(const struct ckpt_call *c) {
    const struct ckpt_scalar s = ckpt_call_scalar(c, "value");
    return s.dtype == CKPT_DT_NONE ? (struct ckpt_scalar){CKPT_DT_I64, 0, 0} : s;
}

static int constant_pad(struct ckpt_call *c, struct ckpt_err *err) {
    return pad_by(c, NULL, value_of(c), err);
}

static int reflection_pad(struct ckpt_call *c, struct ckpt_err *err) {
    return pad_by(c, reflect, value_of(c), err);
}

static int replication_pad(struct ckpt_call *c, struct ckpt_err *err) {
    return pad_by(c, replicate, value_of(c), err);
}

static int circular_pad(struct ckpt_call *c, struct ckpt_err *err) {
    return pad_by(c, circular, value_of(c), err);
}

static int pad(struct ckpt_call *c, struct ckpt_err *err) {
    static const struct {
        const char *mode;
        place_fn *place;
    } modes[] = {
        {"constant", NULL}, {"reflect", reflect}, {"replicate", replicate}, {"circular", circular}};
    const struct ckpt_arg *const mode = ckpt_call_arg(c, "mode");
    const char *const name = mode && mode->kind == CKPT_ARG_STRING ? mode->string : "constant";
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(name, modes[i].mode) == 0)
            return pad_by(c, modes[i].place, value_of(c), err);
    return ckpt_fail(err, -EOPNOTSUPP, "mode \"%s\"", name);
}

static const struct ckpt_op ops[] = {
    {"pad", "pad(Tensor self, SymInt[] pad, str mode=\"constant\", float? value=None) -> Tensor",
     pad},
    {"constant_pad_nd", "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
     constant_pad},
    {"reflection_pad1d", "reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor",
     reflection_pad},
    {"reflection_pad2d", "reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor",
     reflection_pad},
    {"reflection_pad3d", "reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor",
     reflection_pad},
    {"replication_pad1d", "replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor",
     replication_pad},
    {"replication_pad2d", "replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor",
     replication_pad},
    {"replication_pad3d", "replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor",
     replication_pad},
    {"_pad_circular", "_pad_circular(Tensor self, SymInt[] pad) -> Tensor", circular_pad},
};

const struct ckpt_op_family ckpt_family_pad = CKPT_OP_FAMILY(ops);
