/*
 * Parts of a tensor along one dimension, as views: an index, a range, all of the pieces. A few rows
 * of a parameter are read, and nothing else of it.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"

/* Every step-th of [start, start + len) of one dimension; a single index takes the dimension away.
 */
struct span {
    uint32_t dim;
    int64_t start, len, step;
    bool single;
};

typedef int span_fn(const struct ckpt_call *c, const struct ckpt_array *form, struct span *s,
                    struct ckpt_err *err);

static int select_span(const struct ckpt_call *c, const struct ckpt_array *form, struct span *s,
                       struct ckpt_err *err) {
    const int64_t at = ckpt_call_int(c, "index", 0), n = form->shape[s->dim];
    if (at < -n || at >= n)
        return ckpt_fail(err, -EINVAL, "index %lld of a dimension of %lld", (long long)at,
                         (long long)n);
    s->start = at < 0 ? at + n : at;
    s->len = 1;
    s->single = true;
    return 0;
}

/* A bound as Python takes it: counted from the end if negative, and never outside. */
static int64_t bound(int64_t at, int64_t n) {
    at += at < 0 ? n : 0;
    return at < 0 ? 0 : at > n ? n : at;
}

static int slice_span(const struct ckpt_call *c, const struct ckpt_array *form, struct span *s,
                      struct ckpt_err *err) {
    const int64_t n = form->shape[s->dim];
    const int64_t end = bound(ckpt_call_int(c, "end", INT64_MAX), n);
    s->start = bound(ckpt_call_int(c, "start", 0), n);
    s->step = ckpt_call_int(c, "step", 1);
    s->len = end > s->start ? end - s->start : 0;
    return s->step < 1 ? ckpt_fail(err, -EINVAL, "a step of %lld", (long long)s->step) : 0;
}

static int narrow_span(const struct ckpt_call *c, const struct ckpt_array *form, struct span *s,
                       struct ckpt_err *err) {
    const int64_t n = form->shape[s->dim];
    s->start = ckpt_call_int(c, "start", 0);
    s->start += s->start < 0 ? n : 0;
    s->len = ckpt_call_int(c, "length", 0);
    if (s->start < 0 || s->start > n || s->len < 0 || s->len > n - s->start)
        return ckpt_fail(err, -EINVAL, "%lld from %lld on, of a dimension of %lld",
                         (long long)s->len, (long long)s->start, (long long)n);
    return 0;
}

static int find_span(const struct ckpt_call *c, span_fn *span, struct span *s,
                     struct ckpt_err *err) {
    struct ckpt_array form;
    *s = (struct span){.step = 1};
    int rc = ckpt_call_form(c, "self", &form, err);
    if (rc == 0)
        rc = ckpt_call_real_dim(c, "dim", form.ndim, &s->dim, err);
    return rc < 0 ? rc : span(c, &form, s, err);
}

static struct ckpt_array span_view(const struct ckpt_array *a, const struct span *s) {
    struct ckpt_array out = ckpt_array_slice(a, s->dim, s->start, s->len);
    if (s->step > 1) {
        out.shape[s->dim] = s->len / s->step + (s->len % s->step != 0);
        out.stride[s->dim] *= out.shape[s->dim] > 1 ? s->step : 1;
    }
    if (s->single)
        ckpt_array_drop_dim(&out, s->dim);
    return out;
}

/* Of dimension 0 of a parameter, these rows alone are loaded. */
static int load_rows(const struct ckpt_call *c, const struct ckpt_param *p, struct span *s,
                     struct ckpt_array *out, struct ckpt_err *err) {
    struct ckpt_param_rows rows;
    ckpt_param_rows_init(&rows, p, s->start, s->len);
    s->start = 0;
    return ckpt_param_load(&rows.param, &c->exec->memory, out, err);
}

static int part(struct ckpt_call *c, span_fn *span, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    const struct ckpt_arg *const self = ckpt_call_arg(c, "self");
    struct span s;
    int rc = find_span(c, span, &s, err);
    if (rc < 0)
        return rc;
    rc = self->kind == CKPT_ARG_PARAM && s.dim == 0 ? load_rows(c, self->param, &s, &a, err)
                                                    : ckpt_call_tensor(c, "self", &a, err);
    return rc < 0 ? rc : ckpt_call_view(c, 0, span_view(&a, &s), err);
}

/* A copy in which the part is replaced. */
static int replace(struct ckpt_call *c, span_fn *span, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0}, src = {0}, view = {0};
    struct span s;
    int rc = find_span(c, span, &s, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "self", &a, err);
    if (rc == 0)
        rc = ckpt_call_tensor(c, "src", &src, err);
    if (rc == 0)
        rc = ckpt_call_new(c, 0, a.dtype, a.shape, a.ndim, err);
    if (rc == 0)
        rc = ckpt_array_assign(c->out, &a, err);
    if (rc < 0)
        return rc;
    view = span_view(c->out, &s);
    return ckpt_array_assign(&view, &src, err);
}

static int select_index(struct ckpt_call *c, struct ckpt_err *err) {
    return part(c, select_span, err);
}

static int slice(struct ckpt_call *c, struct ckpt_err *err) {
    return part(c, slice_span, err);
}

static int narrow(struct ckpt_call *c, struct ckpt_err *err) {
    return part(c, narrow_span, err);
}

static int select_scatter(struct ckpt_call *c, struct ckpt_err *err) {
    return replace(c, select_span, err);
}

static int slice_scatter(struct ckpt_call *c, struct ckpt_err *err) {
    return replace(c, slice_span, err);
}

/* ---- pieces ---- */

/* Piece i of dimension dim is size[i] long, or `each`, the last one what is left. */
static int pieces(struct ckpt_call *c, const struct ckpt_array *a, uint32_t dim, int64_t each,
                  const int64_t *size, struct ckpt_err *err) {
    const int64_t n = a->shape[dim];
    int64_t at = 0;
    for (uint32_t i = 0; i < c->nout; i++) {
        const int64_t left = n - at, len = size ? size[i] : each < left ? each : left;
        if (len < 0 || len > left)
            return ckpt_fail(err, -EINVAL, "a piece of %lld where %lld are left", (long long)len,
                             (long long)left);
        c->out[i] = ckpt_array_slice(a, dim, at, len);
        at += len;
    }
    if (at != n)
        return ckpt_fail(err, -EINVAL, "pieces of %lld together, of a dimension of %lld",
                         (long long)at, (long long)n);
    return 0;
}

static int begin_pieces(const struct ckpt_call *c, struct ckpt_array *a, uint32_t *dim,
                        struct ckpt_err *err) {
    const int rc = ckpt_call_tensor(c, "self", a, err);
    return rc < 0 ? rc : ckpt_call_real_dim(c, "dim", a->ndim, dim, err);
}

/* n pieces are there; as many must be wanted. */
static int wanted(const struct ckpt_call *c, int64_t n, struct ckpt_err *err) {
    if (n == (int64_t)c->nout)
        return 0;
    return ckpt_fail(err, -EINVAL, "gives %lld results, not the %u that are wanted", (long long)n,
                     c->nout);
}

static int chunk(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    int rc = begin_pieces(c, &a, &dim, err);
    if (rc < 0)
        return rc;
    const int64_t n = a.shape[dim], chunks = ckpt_call_int(c, "chunks", 1);
    if (chunks < 1)
        return ckpt_fail(err, -EINVAL, "%lld chunks", (long long)chunks);
    const int64_t each = n / chunks + (n % chunks != 0);
    rc = wanted(c, each == 0 ? chunks : n / each + (n % each != 0), err);
    return rc < 0 ? rc : pieces(c, &a, dim, each, NULL, err);
}

static int split(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    int rc = begin_pieces(c, &a, &dim, err);
    if (rc < 0)
        return rc;
    const int64_t n = a.shape[dim], each = ckpt_call_int(c, "split_size", 0);
    if (each < 0 || (each == 0 && n > 0))
        return ckpt_fail(err, -EINVAL, "pieces of %lld", (long long)each);
    rc = wanted(c, n == 0 ? 1 : n / each + (n % each != 0), err);
    return rc < 0 ? rc : pieces(c, &a, dim, each, NULL, err);
}

/* The list is called split_size in one overload, split_sizes in the others. */
static int split_sizes(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    const struct ckpt_arg *const one = ckpt_call_arg(c, "split_size"), *const sizes =
                                                                           one ? one
                                                                               : ckpt_call_arg(
                                                                                     c,
                                                                                     "split_sizes");
    int rc = begin_pieces(c, &a, &dim, err);
    if (rc == 0 && (!sizes || sizes->kind != CKPT_ARG_INTS))
        return ckpt_fail(err, -EINVAL, "the sizes are missing or no list");
    if (rc == 0)
        rc = wanted(c, sizes->ints.n, err);
    return rc < 0 ? rc : pieces(c, &a, dim, 0, sizes->ints.v, err);
}

static int unbind(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array a = {0};
    uint32_t dim = 0;
    int rc = begin_pieces(c, &a, &dim, err);
    if (rc == 0)
        rc = wanted(c, a.shape[dim], err);
    if (rc == 0)
        rc = pieces(c, &a, dim, 1, NULL, err);
    for (uint32_t i = 0; rc == 0 && i < c->nout; i++)
        ckpt_array_drop_dim(&c->out[i], dim);
    return rc;
}

static const struct ckpt_op ops[] = {
    {"select", "select.int(Tensor self, int dim, SymInt index) -> Tensor", select_index},
    {"slice",
     "slice.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> "
     "Tensor",
     slice},
    {"narrow", "narrow(Tensor self, int dim, SymInt start, SymInt length) -> Tensor", narrow},
    {"chunk", "chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk},
    {"unsafe_chunk", "unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]", chunk},
    {"split", "split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]", split},
    {"split", "split.sizes(Tensor self, SymInt[] split_size, int dim=0) -> Tensor[]", split_sizes},
    {"split", "split(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]", split_sizes},
    {"split_with_sizes",
     "split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]", split_sizes},
    {"unsafe_split", "unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
     split},
    {"unsafe_split_with_sizes",
     "unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
     split_sizes},
    {"unbind", "unbind.int(Tensor self, int dim=0) -> Tensor[]", unbind},
    {"select_scatter", "select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
     select_scatter},
    {"slice_scatter",
     "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, "
     "SymInt step=1) -> Tensor",
     slice_scatter},
};

const struct ckpt_op_family ckpt_family_slice = CKPT_OP_FAMILY(ops);
