/*
 * Operations on what is known without a run: numbers, texts, lists. Conditions of scripted modules
 * mostly hang on these (self.training, a stride that is None, the length of a list). Python's rules
 * hold; what overflows is left to the run.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "formats/script_machine.h"

struct fold {
    struct script_machine *m;
    const struct script_actuals *actuals;
    struct script_value *out;
    bool known;
};

static const struct script_value *operand(const struct fold *f, uint32_t i) {
    return &f->actuals->item[i].value;
}

static int give(struct fold *f, struct script_value v) {
    *f->out = v;
    f->known = true;
    return 0;
}

static struct script_value from_double(double v) {
    return (struct script_value){.kind = SCRIPT_VALUE_FLOAT, .f = v};
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool is_whole(const struct script_value *v) {
    return v->kind == SCRIPT_VALUE_INT || v->kind == SCRIPT_VALUE_BOOL;
}

static bool is_number(const struct script_value *v) {
    return is_whole(v) || v->kind == SCRIPT_VALUE_FLOAT;
}

static int64_t whole(const struct script_value *v) {
    return v->kind == SCRIPT_VALUE_BOOL ? v->b : v->i;
}

static double number(const struct script_value *v) {
    return v->kind == SCRIPT_VALUE_FLOAT ? v->f : (double)whole(v);
}

/* Two numbers; whole says that both are integers. */
struct pair {
    bool whole;
    int64_t i, j;
    double a, b;
};

static bool take_pair(const struct fold *f, struct pair *p) {
    const struct script_value *const a = operand(f, 0), *const b = operand(f, 1);
    if (!is_number(a) || !is_number(b))
        return false;
    *p = (struct pair){.whole = is_whole(a) && is_whole(b), .a = number(a), .b = number(b)};
    if (p->whole) {
        p->i = whole(a);
        p->j = whole(b);
    }
    return true;
}

static int add_lists(struct fold *f) {
    const struct script_value *const a = operand(f, 0), *const b = operand(f, 1);
    int rc = script_list_close(f->m, a);
    if (rc == 0)
        rc = script_list_close(f->m, b);
    const size_t n = a->list->n + b->list->n;
    if (rc == 0)
        rc = script_step(f->m, n);
    if (rc == 0)
        rc = script_list_new(f->m, SCRIPT_VALUE_LIST, n, f->out);
    for (size_t i = 0; rc == 0 && i < n; i++)
        f->out->list->item[i] = i < a->list->n ? a->list->item[i] : b->list->item[i - a->list->n];
    f->known = true;
    return rc;
}

static int add_texts(struct fold *f) {
    const struct ckpt_text a = operand(f, 0)->text, b = operand(f, 1)->text;
    const size_t n = a.n + b.n;
    char *const s = ckpt_arena_alloc(&f->m->arena, n + 1);
    if (!s)
        return script_fail_memory(f->m);
    memcpy(s, a.s, a.n);
    memcpy(s + a.n, b.s, b.n);
    return give(f, (struct script_value){.kind = SCRIPT_VALUE_TEXT, .text = {s, n}});
}

static int fold_add(struct fold *f) {
    struct pair p;
    int64_t sum;
    if (operand(f, 0)->kind == SCRIPT_VALUE_TEXT && operand(f, 1)->kind == SCRIPT_VALUE_TEXT)
        return add_texts(f);
    if (script_is_list(operand(f, 0)) && script_is_list(operand(f, 1)))
        return add_lists(f);
    if (!take_pair(f, &p) || (p.whole && !ckpt_add_i64(p.i, p.j, &sum)))
        return 0;
    return give(f, p.whole ? script_int(sum) : from_double(p.a + p.b));
}

static int fold_sub(struct fold *f) {
    struct pair p;
    int64_t difference;
    if (!take_pair(f, &p) || (p.whole && __builtin_sub_overflow(p.i, p.j, &difference)))
        return 0;
    return give(f, p.whole ? script_int(difference) : from_double(p.a - p.b));
}

/* [0] * 3 */
static int repeat_list(struct fold *f, int64_t times) {
    const struct script_list *const list = operand(f, 0)->list;
    int64_t n;
    int rc = script_list_close(f->m, operand(f, 0));
    times = times > 0 ? times : 0;
    if (rc == 0 && !ckpt_mul_i64((int64_t)list->n, times, &n))
        n = INT64_MAX;
    if (rc == 0)
        rc = script_step(f->m, (uint64_t)n);
    if (rc == 0)
        rc = script_list_new(f->m, SCRIPT_VALUE_LIST, (size_t)n, f->out);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        f->out->list->item[i] = list->item[(size_t)i % list->n];
    f->known = true;
    return rc;
}

static int fold_mul(struct fold *f) {
    struct pair p;
    int64_t product;
    if (script_is_list(operand(f, 0)) && is_whole(operand(f, 1)))
        return repeat_list(f, whole(operand(f, 1)));
    if (!take_pair(f, &p) || (p.whole && !ckpt_mul_i64(p.i, p.j, &product)))
        return 0;
    return give(f, p.whole ? script_int(product) : from_double(p.a * p.b));
}

static int fold_div(struct fold *f) {
    struct pair p;
    if (!take_pair(f, &p) || !(p.b < 0 || p.b > 0))
        return 0;
    return give(f, from_double(p.a / p.b));
}

/* The quotient rounded down, and what is then left. */
static bool divide_down(const struct fold *f, int64_t *quotient, int64_t *rest) {
    struct pair p;
    if (!take_pair(f, &p) || !p.whole || p.j == 0 || (p.i == INT64_MIN && p.j == -1))
        return false;
    *quotient = p.i / p.j;
    *rest = p.i % p.j;
    if (*rest != 0 && (*rest < 0) != (p.j < 0)) {
        *quotient -= 1;
        *rest += p.j;
    }
    return true;
}

static int fold_floordiv(struct fold *f) {
    int64_t quotient, rest;
    return divide_down(f, &quotient, &rest) ? give(f, script_int(quotient)) : 0;
}

static int fold_remainder(struct fold *f) {
    int64_t quotient, rest;
    return divide_down(f, &quotient, &rest) ? give(f, script_int(rest)) : 0;
}

static int fold_min(struct fold *f) {
    struct pair p;
    return take_pair(f, &p) && p.whole ? give(f, script_int(p.i < p.j ? p.i : p.j)) : 0;
}

static int fold_max(struct fold *f) {
    struct pair p;
    return take_pair(f, &p) && p.whole ? give(f, script_int(p.i > p.j ? p.i : p.j)) : 0;
}

static int fold_neg(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    if (!is_number(v) || (is_whole(v) && whole(v) == INT64_MIN))
        return 0;
    return give(f, is_whole(v) ? script_int(-whole(v)) : from_double(-v->f));
}

static int fold_sqrt(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    return is_number(v) && number(v) >= 0 ? give(f, from_double(sqrt(number(v)))) : 0;
}

/* --- comparisons ------------------------------------------------------------------------------ */

/* -1, 0, 1; false: they can't be compared here. NaN is left to the run. */
static bool compare(const struct fold *f, int *order) {
    const struct script_value *const a = operand(f, 0), *const b = operand(f, 1);
    struct pair p;
    if (a->kind == SCRIPT_VALUE_TEXT && b->kind == SCRIPT_VALUE_TEXT) {
        *order = ckpt_text_cmp(a->text, b->text);
        return true;
    }
    if (!take_pair(f, &p) || (!p.whole && (isnan(p.a) || isnan(p.b))))
        return false;
    *order = p.whole ? (p.i > p.j) - (p.i < p.j) : (p.a > p.b) - (p.a < p.b);
    return true;
}

static int fold_eq(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order == 0)) : 0;
}

static int fold_ne(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order != 0)) : 0;
}

static int fold_lt(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order < 0)) : 0;
}

static int fold_le(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order <= 0)) : 0;
}

static int fold_gt(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order > 0)) : 0;
}

static int fold_ge(struct fold *f) {
    int order;
    return compare(f, &order) ? give(f, script_bool(order >= 0)) : 0;
}

static int fold_not(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    return v->kind == SCRIPT_VALUE_BOOL ? give(f, script_bool(!v->b)) : 0;
}

static bool are_bools(const struct fold *f) {
    return operand(f, 0)->kind == SCRIPT_VALUE_BOOL && operand(f, 1)->kind == SCRIPT_VALUE_BOOL;
}

static int fold_and(struct fold *f) {
    return are_bools(f) ? give(f, script_bool(operand(f, 0)->b && operand(f, 1)->b)) : 0;
}

static int fold_or(struct fold *f) {
    return are_bools(f) ? give(f, script_bool(operand(f, 0)->b || operand(f, 1)->b)) : 0;
}

/* "is" is asked of None only, and what is None is always known. */
static int fold_is(struct fold *f) {
    const bool a = operand(f, 0)->kind == SCRIPT_VALUE_NONE,
               b = operand(f, 1)->kind == SCRIPT_VALUE_NONE;
    return a || b ? give(f, script_bool(a && b)) : 0;
}

static int fold_isnot(struct fold *f) {
    const int rc = fold_is(f);
    if (f->known)
        f->out->b = !f->out->b;
    return rc;
}

/* --- lists ------------------------------------------------------------------------------------ */

/* How many sizes a tensor has: its dimensions, which a run knows. */
static int count_sizes(struct fold *f, const struct script_list *list) {
    const struct ckpt_graph_node *const node = &f->m->graph.graph->node[list->node];
    const struct ckpt_graph_item item = node->arg[0].item[0];
    struct script_actual tensor = {
        .name = CKPT_TEXT(""),
        .value = script_graph_value(item.value, (enum ckpt_graph_type)item.type)};
    const struct script_actuals actuals = {.item = &tensor, .n = 1};
    f->known = true;
    return script_op_node(f->m, "aten.dim", &actuals, CKPT_GRAPH_SYM_INT, f->out);
}

static bool are_sizes(const struct script_machine *m, const struct script_value *v) {
    if (!script_is_list(v) || !v->list->is_open)
        return false;
    const struct ckpt_graph_node *const node = &m->graph.graph->node[v->list->node];
    return ckpt_text_is(node->op, "aten.size") && node->nargs == 1 &&
           ckpt_graph_arg_value(&node->arg[0]) != CKPT_GRAPH_NONE;
}

static int fold_len(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    const bool is_dict = v->kind == SCRIPT_VALUE_DICT;
    if (v->kind == SCRIPT_VALUE_TEXT)
        return give(f, script_int((int64_t)v->text.n)); /* asked only whether it is empty */
    if (are_sizes(f->m, v))
        return count_sizes(f, v->list);
    if (!script_is_list(v) && !is_dict)
        return 0;
    const int rc = script_list_close(f->m, v);
    return rc ? rc : give(f, script_int((int64_t)(is_dict ? v->list->n / 2 : v->list->n)));
}

static int fold_append(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    if (v->kind != SCRIPT_VALUE_LIST)
        return 0;
    int rc = script_list_close(f->m, v);
    if (rc == 0)
        rc = script_list_append(f->m, v->list, *operand(f, 1));
    return rc ? rc : give(f, *v);
}

static int fold_getitem(struct fold *f) {
    if (!script_is_list(operand(f, 0)) || operand(f, 1)->kind != SCRIPT_VALUE_INT)
        return 0;
    f->known = true;
    return script_list_get(f->m, operand(f, 0), operand(f, 1)->i, f->out);
}

static int fold_copy(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    if (!script_is_list(v))
        return 0;
    int rc = script_list_close(f->m, v);
    if (rc == 0)
        rc = script_step(f->m, v->list->n);
    if (rc == 0)
        rc = script_list_new(f->m, SCRIPT_VALUE_LIST, v->list->n, f->out);
    if (rc == 0 && v->list->n)
        memcpy(f->out->list->item, v->list->item, v->list->n * sizeof *v->list->item);
    f->known = true;
    return rc;
}

/* An end of a slice of n items: Python's rule. None is the end itself. */
static size_t clamp(const struct fold *f, uint32_t i, size_t n, size_t standard) {
    if (f->actuals->n <= i || operand(f, i)->kind != SCRIPT_VALUE_INT)
        return standard;
    int64_t at = operand(f, i)->i;
    if (at < 0)
        at += (int64_t)n;
    return at < 0 ? 0 : (uint64_t)at > n ? n : (size_t)at;
}

/* list[from:to:step] */
static int fold_slice(struct fold *f) {
    const struct script_value *const v = operand(f, 0);
    if (!script_is_list(v))
        return 0;
    int rc = script_list_close(f->m, v);
    if (rc)
        return rc;
    const size_t n = v->list->n, from = clamp(f, 1, n, 0), to = clamp(f, 2, n, n);
    const int64_t step = f->actuals->n > 3 ? operand(f, 3)->i : 1;
    if (step < 1 || (f->actuals->n > 3 && operand(f, 3)->kind != SCRIPT_VALUE_INT))
        return script_fail(f->m, -EOPNOTSUPP, "a slice of a list that does not go forwards");
    const size_t left = to > from ? to - from : 0, count = (left + (size_t)step - 1) / (size_t)step;
    rc = script_step(f->m, count);
    if (rc == 0)
        rc = script_list_new(f->m, SCRIPT_VALUE_LIST, count, f->out);
    for (size_t i = 0; rc == 0 && i < count; i++)
        f->out->list->item[i] = v->list->item[from + i * (size_t)step];
    f->known = true;
    return rc;
}

/* --- other ------------------------------------------------------------------------------------ */

static int fold_same(struct fold *f) {
    return give(f, *operand(f, 0));
}

/* Where a tensor lies: here all are in memory. */
static int fold_device(struct fold *f) {
    return give(f, (struct script_value){.kind = SCRIPT_VALUE_DEVICE, .text = CKPT_TEXT("cpu")});
}

static int fold_is_cuda(struct fold *f) {
    return give(f, script_bool(false));
}

/* ---------------------------------------------------------------------------------------------- */

#define ANY UINT32_MAX

static const struct row {
    const char *op;
    uint32_t min, max; /* operands */
    int (*run)(struct fold *f);
} rows[] = {
    {"aten.add", 2, 2, fold_add},
    {"aten.sub", 2, 2, fold_sub},
    {"aten.mul", 2, 2, fold_mul},
    {"aten.div", 2, 2, fold_div},
    {"aten.floordiv", 2, 2, fold_floordiv},
    {"aten.remainder", 2, 2, fold_remainder},
    {"prim.min", 2, 2, fold_min},
    {"prim.max", 2, 2, fold_max},
    {"aten.neg", 1, 1, fold_neg},
    {"aten.sqrt", 1, 1, fold_sqrt},
    {"aten.eq", 2, 2, fold_eq},
    {"aten.ne", 2, 2, fold_ne},
    {"aten.lt", 2, 2, fold_lt},
    {"aten.le", 2, 2, fold_le},
    {"aten.gt", 2, 2, fold_gt},
    {"aten.ge", 2, 2, fold_ge},
    {"aten.__not__", 1, 1, fold_not},
    {"aten.__and__", 2, 2, fold_and},
    {"aten.__or__", 2, 2, fold_or},
    {"aten.__is__", 2, 2, fold_is},
    {"aten.__isnot__", 2, 2, fold_isnot},
    {"aten.len", 1, 1, fold_len},
    {"aten.append", 2, 2, fold_append},
    {"aten.__getitem__", 2, 2, fold_getitem},
    {"aten.list", 1, 1, fold_copy},
    {"aten.slice", 1, 4, fold_slice},
    {"aten.format", 1, ANY, fold_same}, /* for messages only: the pattern stands for the text */
    {"prim.unchecked_unwrap_optional", 1, 1, fold_same},
    {"prim.unchecked_cast", 1, 1, fold_same},
    {"prim.device", 1, 1, fold_device},
    {"prim.is_cuda", 1, 1, fold_is_cuda},
};

static bool has_names(const struct script_actuals *actuals) {
    for (uint32_t i = 0; i < actuals->n; i++)
        if (actuals->item[i].name.n)
            return true;
    return false;
}

int script_fold(struct script_machine *m, const char *name, const struct script_actuals *actuals,
                struct script_value *out, bool *known) {
    struct fold f = {.m = m, .actuals = actuals, .out = out};
    const struct row *row = NULL;
    for (size_t i = 0; !row && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(name, rows[i].op) == 0)
            row = &rows[i];
    *known = false;
    if (!row || actuals->n < row->min || actuals->n > row->max || has_names(actuals))
        return 0;
    const int rc = row->run(&f);
    *known = f.known;
    return rc;
}
