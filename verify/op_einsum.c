/*
 * einsum: operands are multiplied from left to right, each time as one batch of matrix products
 *
 *     "bik,bkj->bij"      batch b, rows i, columns j, summed over k
 *
 * A letter is a batch dimension if both sides and something after them have it, it is summed over
 * if nothing after them has it. Dimensions behind an ellipsis are letters of their own, counted
 * from the right.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/op.h"
#include "verify/product.h"

#define LETTERS 52                             /* a to z, A to Z */
#define LABELS (LETTERS + CKPT_ARRAY_NDIM_MAX) /* and those of the ellipsis */
#define OPERANDS_MAX 16

/* An array whose dimension d has the label label[d]; a label occurs once. */
struct labelled {
    struct ckpt_array a;
    uint8_t label[CKPT_ARRAY_NDIM_MAX];
};

static void labelled_fini(struct labelled *l) {
    ckpt_array_fini(&l->a);
}
CKPT_DEFINE_AUTO(labelled, struct labelled, labelled_fini)

/* The labels that one side of the equation writes. */
struct term {
    uint8_t label[LETTERS];
    uint32_t n;
    int ellipsis; /* before which label; -1: none */
};

struct equation {
    struct term in[OPERANDS_MAX], out;
    uint32_t nin;
};

/* ---- the equation ---- */

static int parse_term(const char **at, struct term *t, struct ckpt_err *err) {
    const char *s = *at;
    t->ellipsis = -1;
    t->n = 0;
    for (; *s && *s != ',' && !(s[0] == '-' && s[1] == '>'); s++) {
        if (*s == ' ')
            continue;
        if (strncmp(s, "...", 3) == 0 && t->ellipsis < 0) {
            t->ellipsis = (int)t->n;
            s += 2;
            continue;
        }
        if (!isalpha((unsigned char)*s) || t->n >= CKPT_ARRAY_NDIM_MAX)
            return ckpt_fail(err, -EINVAL, "the equation has a term that cannot be read");
        t->label[t->n++] = (uint8_t)(islower((unsigned char)*s) ? *s - 'a' : *s - 'A' + 26);
    }
    *at = s;
    return 0;
}

/* Without "->", the result has the labels that occur once, A to Z before a to z. */
static void implicit_output(struct equation *e) {
    uint32_t seen[LETTERS] = {0};
    e->out = (struct term){.ellipsis = -1};
    for (uint32_t i = 0; i < e->nin; i++) {
        if (e->in[i].ellipsis >= 0)
            e->out.ellipsis = 0;
        for (uint32_t k = 0; k < e->in[i].n; k++)
            seen[e->in[i].label[k]]++;
    }
    for (uint32_t k = 0; k < LETTERS; k++) {
        const uint8_t label = (uint8_t)((k + 26) % LETTERS);
        if (seen[label] == 1)
            e->out.label[e->out.n++] = label;
    }
}

static int parse_equation(const char *s, struct equation *e, struct ckpt_err *err) {
    for (;; s++) {
        if (e->nin == OPERANDS_MAX)
            return ckpt_fail(err, -EOPNOTSUPP, "has more than %d operands", OPERANDS_MAX);
        const int rc = parse_term(&s, &e->in[e->nin++], err);
        if (rc < 0)
            return rc;
        if (*s != ',')
            break;
    }
    if (*s == '\0') {
        implicit_output(e);
        return 0;
    }
    s += 2;
    const int rc = parse_term(&s, &e->out, err);
    if (rc == 0 && *s)
        return ckpt_fail(err, -EINVAL, "the equation goes on after its result");
    return rc;
}

/* ---- labels of an operand ---- */

/* Drops dimension d by looking at the diagonal of it and dimension `with`. */
static void merge_diagonal(struct labelled *l, uint32_t with, uint32_t d) {
    l->a.stride[with] += l->a.stride[d];
    for (uint32_t k = d; k + 1 < l->a.ndim; k++) {
        l->a.shape[k] = l->a.shape[k + 1];
        l->a.stride[k] = l->a.stride[k + 1];
        l->label[k] = l->label[k + 1];
    }
    l->a.ndim--;
}

static int merge_repeated(struct labelled *l, struct ckpt_err *err) {
    for (uint32_t with = 0; with < l->a.ndim; with++)
        for (uint32_t d = l->a.ndim; d-- > with + 1;) {
            if (l->label[d] != l->label[with])
                continue;
            if (l->a.shape[d] != l->a.shape[with])
                return ckpt_fail(err, -EINVAL, "a repeated label has two sizes");
            merge_diagonal(l, with, d);
        }
    return 0;
}

static int label_operand(struct labelled *l, const struct term *t, struct ckpt_err *err) {
    if (t->ellipsis < 0 ? t->n != l->a.ndim : t->n > l->a.ndim)
        return ckpt_fail(err, -EINVAL, "a term has %u labels, its operand %u dimensions", t->n,
                         l->a.ndim);
    const uint32_t dots = l->a.ndim - t->n;
    uint32_t d = 0;
    for (uint32_t k = 0; k <= t->n; k++) {
        for (uint32_t e = 0; t->ellipsis == (int)k && e < dots; e++)
            l->label[d++] = (uint8_t)(LETTERS + dots - 1 - e);
        if (k < t->n)
            l->label[d++] = t->label[k];
    }
    return merge_repeated(l, err);
}

static int find(const struct labelled *l, uint8_t label) {
    for (uint32_t d = 0; d < l->a.ndim; d++)
        if (l->label[d] == label)
            return (int)d;
    return -1;
}

/* ---- one product ---- */

/* Takes out the dimensions whose label is not wanted, by summing over them. */
static int sum_out(struct labelled *l, const bool *wanted, struct ckpt_exec *exec,
                   struct ckpt_err *err) {
    int64_t dim[CKPT_ARRAY_NDIM_MAX];
    uint32_t n = 0, kept = 0;
    for (uint32_t d = 0; d < l->a.ndim; d++) {
        if (wanted[l->label[d]])
            l->label[kept++] = l->label[d];
        else
            dim[n++] = d;
    }
    if (n == 0)
        return 0;
    const struct ckpt_arg arg[] = {{.name = "self", .kind = CKPT_ARG_ARRAY, .array = &l->a},
                                   {.name = "dim", .kind = CKPT_ARG_INTS, .ints = {dim, n}}};
    struct ckpt_array sum;
    const int rc = ckpt_op_run(ckpt_op_find_overload(CKPT_TEXT("sum"), CKPT_TEXT("dim_IntList")),
                               arg, 2, exec, &sum, err);
    ckpt_array_fini(&l->a);
    l->a = sum;
    return rc;
}

enum group { BATCH, LEFT, RIGHT, SUMMED };

/* Labels by group, in the order in which they are met. */
struct plan {
    uint8_t label[4][LABELS];
    uint32_t n[4];
};

static void plan_labels(const struct labelled *x, const struct labelled *y, const bool *later,
                        struct plan *p) {
    for (uint32_t d = 0; d < x->a.ndim; d++) {
        const uint8_t label = x->label[d];
        const enum group g = find(y, label) < 0 ? LEFT : later[label] ? BATCH : SUMMED;
        p->label[g][p->n[g]++] = label;
    }
    for (uint32_t d = 0; d < y->a.ndim; d++)
        if (find(x, y->label[d]) < 0)
            p->label[RIGHT][p->n[RIGHT]++] = y->label[d];
}

/* The size of a label in either operand; one of size 1 repeats. */
static int64_t size_of(const struct labelled *x, const struct labelled *y, uint8_t label) {
    const int a = find(x, label), b = find(y, label);
    const int64_t of_x = a < 0 ? 1 : x->a.shape[a], of_y = b < 0 ? 1 : y->a.shape[b];
    return of_x == 1 ? of_y : of_x;
}

/* l as a batch of matrices: dimensions of groups g[0], g[1], g[2], each group one dimension. */
static int as_matrices(const struct labelled *l, const struct labelled *x, const struct labelled *y,
                       const struct plan *p, const enum group *g, struct ckpt_exec *exec,
                       struct ckpt_array *out, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array turned = {0}, whole = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX], size[3] = {1, 1, 1};
    uint32_t order[CKPT_ARRAY_NDIM_MAX], n = 0;
    for (int k = 0; k < 3; k++)
        for (uint32_t i = 0; i < p->n[g[k]]; i++) {
            const uint8_t label = p->label[g[k]][i];
            order[n] = (uint32_t)find(l, label);
            shape[n] = size_of(x, y, label);
            size[k] *= shape[n++];
        }
    uint64_t count = 0;
    if (!ckpt_shape_count(shape, n, &count))
        return ckpt_fail(err, -EOVERFLOW, "has an operand too large for this machine");
    turned = ckpt_array_permute(&l->a, order);
    const int rc = ckpt_array_expand(&turned, shape, n, &whole, err);
    return rc < 0 ? rc : ckpt_array_reshape(&whole, size, 3, &exec->memory, out, err);
}

/* *x becomes x times y. */
static int contract(struct labelled *x, struct labelled *y, const bool *later,
                    struct ckpt_exec *exec, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array left = {0}, right = {0}, product = {0}, shaped = {0};
    struct plan p = {0};
    int64_t shape[CKPT_ARRAY_NDIM_MAX];
    uint8_t label[CKPT_ARRAY_NDIM_MAX];
    uint32_t n = 0;
    plan_labels(x, y, later, &p);
    if (p.n[BATCH] + p.n[LEFT] + p.n[RIGHT] > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "has an intermediate of more than %d dimensions",
                         CKPT_ARRAY_NDIM_MAX);
    int rc = as_matrices(x, x, y, &p, (const enum group[]){BATCH, LEFT, SUMMED}, exec, &left, err);
    if (rc == 0)
        rc =
            as_matrices(y, x, y, &p, (const enum group[]){BATCH, SUMMED, RIGHT}, exec, &right, err);
    if (rc == 0)
        rc = ckpt_product(&left, &right, exec, &product, err);
    for (int g = BATCH; g <= RIGHT; g++)
        for (uint32_t i = 0; i < p.n[g]; i++) {
            label[n] = p.label[g][i];
            shape[n++] = size_of(x, y, p.label[g][i]);
        }
    if (rc == 0)
        rc = ckpt_array_reshape(&product, shape, n, NULL, &shaped, err);
    if (rc < 0)
        return rc;
    ckpt_array_fini(&x->a);
    x->a = ckpt_array_ref(&shaped);
    memcpy(x->label, label, n);
    return 0;
}

/* ---- all of them ---- */

static void mark_term(const struct term *t, bool *labels) {
    for (uint32_t k = 0; k < t->n; k++)
        labels[t->label[k]] = true;
    for (uint32_t k = LETTERS; t->ellipsis >= 0 && k < LABELS; k++)
        labels[k] = true;
}

/* The labels that operands from `from` on or the result have. */
static void later_labels(const struct equation *e, uint32_t from, bool *labels) {
    memset(labels, 0, LABELS * sizeof(*labels));
    for (uint32_t i = from; i < e->nin; i++)
        mark_term(&e->in[i], labels);
    mark_term(&e->out, labels);
}

static int take_operand(const struct ckpt_call *c, const struct equation *e, uint32_t i,
                        struct labelled *l, struct ckpt_err *err) {
    const int rc = ckpt_call_item(c, "tensors", i, &l->a, err);
    return rc < 0 ? rc : label_operand(l, &e->in[i], err);
}

/* Sums out of both what only one of them has, then multiplies. */
static int multiply_next(const struct ckpt_call *c, const struct equation *e, uint32_t i,
                         struct labelled *x, struct ckpt_err *err) {
    CKPT_AUTO(labelled) struct labelled y = {0};
    bool later[LABELS], wanted[LABELS];
    int rc = take_operand(c, e, i, &y, err);
    if (rc < 0)
        return rc;
    later_labels(e, i + 1, later);
    memcpy(wanted, later, sizeof(wanted));
    for (uint32_t d = 0; d < x->a.ndim; d++)
        wanted[x->label[d]] |= find(&y, x->label[d]) >= 0;
    rc = sum_out(x, wanted, c->exec, err);
    for (uint32_t d = 0; d < y.a.ndim; d++)
        wanted[y.label[d]] = later[y.label[d]] || find(x, y.label[d]) >= 0;
    if (rc == 0)
        rc = sum_out(&y, wanted, c->exec, err);
    return rc < 0 ? rc : contract(x, &y, later, c->exec, err);
}

/* The dimensions in the order of the result. */
static int arrange(struct ckpt_call *c, const struct labelled *x, const struct term *t,
                   struct ckpt_err *err) {
    uint32_t order[CKPT_ARRAY_NDIM_MAX], n = 0;
    const uint32_t dots = x->a.ndim > t->n ? x->a.ndim - t->n : 0;
    for (uint32_t k = 0; k <= t->n; k++) {
        for (uint32_t e = 0; t->ellipsis == (int)k && e < dots; e++) {
            const int d = find(x, (uint8_t)(LETTERS + dots - 1 - e));
            if (d >= 0 && n < CKPT_ARRAY_NDIM_MAX)
                order[n++] = (uint32_t)d;
        }
        const int d = k < t->n ? find(x, t->label[k]) : -1;
        if (k < t->n && (d < 0 || n == CKPT_ARRAY_NDIM_MAX))
            return ckpt_fail(err, -EINVAL, "the result has a label that no operand has");
        if (k < t->n)
            order[n++] = (uint32_t)d;
    }
    if (n != x->a.ndim)
        return ckpt_fail(err, -EINVAL, "the result repeats a label");
    *c->out = ckpt_array_permute(&x->a, order);
    return 0;
}

static bool repeats(const struct term *t) {
    bool seen[LETTERS] = {false};
    for (uint32_t k = 0; k < t->n; k++) {
        if (seen[t->label[k]])
            return true;
        seen[t->label[k]] = true;
    }
    return false;
}

static int op_einsum(struct ckpt_call *c, struct ckpt_err *err) {
    const struct ckpt_arg *const equation = ckpt_call_arg(c, "equation");
    const struct ckpt_arg *const tensors = ckpt_call_arg(c, "tensors");
    struct equation e = {0};
    CKPT_AUTO(labelled) struct labelled x = {0};
    bool wanted[LABELS];
    if (!equation || equation->kind != CKPT_ARG_STRING || !tensors ||
        tensors->kind != CKPT_ARG_LIST)
        return ckpt_fail(err, -EINVAL, "takes an equation and a list of tensors");
    int rc = parse_equation(equation->string, &e, err);
    if (rc == 0 && (e.nin != tensors->list.n || repeats(&e.out)))
        rc = ckpt_fail(err, -EINVAL, "the equation \"%s\" does not fit %u tensors",
                       equation->string, tensors->list.n);
    if (rc == 0)
        rc = take_operand(c, &e, 0, &x, err);
    for (uint32_t i = 1; rc == 0 && i < e.nin; i++)
        rc = multiply_next(c, &e, i, &x, err);
    later_labels(&e, e.nin, wanted);
    if (rc == 0)
        rc = sum_out(&x, wanted, c->exec, err);
    return rc < 0 ? rc : arrange(c, &x, &e.out, err);
}

static const struct ckpt_op ops[] = {
    {"einsum", "einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", op_einsum},
};

const struct ckpt_op_family ckpt_family_einsum = CKPT_OP_FAMILY(ops);
