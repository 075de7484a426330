/* --explain for people. */
#include <string.h>

#include "fs/explain_show.h"
#include "fs/show.h"

#define LABEL 14 /* columns of what stands before the words */

/* "    label       words" with the label filled up to `width`, and a blank. */
static void put_line(struct ckpt_str *out, unsigned indent, const char *label, unsigned width,
                     const char *words) {
    ckpt_str_printf(out, "%*s", (int)indent, "");
    ckpt_show_cell(out, ckpt_text_of(label), width, false);
    ckpt_str_puts(out, " ");
    ckpt_show_text(out, ckpt_text_of(words));
    ckpt_str_puts(out, "\n");
}

static void put_tensor(struct ckpt_str *out, struct ckpt_text key, enum ckpt_dtype dtype,
                       const int64_t *shape, uint32_t ndim) {
    ckpt_show_text(out, key);
    ckpt_str_printf(out, "  %s ", ckpt_dtype_info(dtype)->name);
    ckpt_show_shape(out, shape, ndim);
}

static void put_module(struct ckpt_str *out, const struct ckpt_explained *x) {
    if (!x->module.s)
        return;
    ckpt_str_printf(out, "  %-*s ", LABEL, "module");
    if (x->module.n)
        ckpt_show_text(out, x->module);
    else
        ckpt_str_puts(out, "the model itself");
    ckpt_str_printf(out, ": %s", x->kind ? x->kind : "of no known kind");
    if (x->decided_by)
        ckpt_str_printf(out, ", by %s", x->decided_by);
    ckpt_str_puts(out, "\n");
    for (size_t i = 0; i < x->nrungs; i++)
        put_line(out, 4, x->rung[i].name, LABEL - 2, x->rung[i].said);
    for (size_t i = 0; i < x->nholders; i++)
        put_line(out, 2, i ? "" : "inside", LABEL, x->holder[i]);
}

static void put_steps(struct ckpt_str *out, const struct ckpt_explained *x) {
    if (x->nsteps)
        ckpt_str_puts(out, "  names\n");
    for (size_t i = 0; i < x->nsteps; i++) {
        ckpt_str_puts(out, "    ");
        ckpt_show_text(out, x->step[i].by);
        ckpt_str_puts(out, " -> ");
        ckpt_show_text(out, x->step[i].key);
        ckpt_str_puts(out, "\n");
    }
}

static void put_rules(struct ckpt_str *out, const struct ckpt_explained *x) {
    unsigned width = 0;
    for (size_t i = 0; i < x->nrules; i++) {
        const unsigned w = ckpt_show_width(ckpt_text_of(x->rule[i].where));
        width = w > width && !x->rule[i].unlike ? w : width;
    }
    ckpt_str_puts(out, x->nrules ? "  rules\n" : "  no rule is asked\n");
    size_t unlike = 0;
    for (size_t i = 0; i < x->nrules; i++) {
        unlike += x->rule[i].unlike;
        if (!x->rule[i].unlike)
            put_line(out, 4, x->rule[i].where, width + 1, x->rule[i].why);
    }
    if (unlike)
        ckpt_str_printf(out, "    and %zu of ours for tensors of other names (--json has them)\n",
                        unlike);
    if (x->joined_by)
        put_line(out, 2, "joined by", LABEL, x->joined_by);
}

static void put_result(struct ckpt_str *out, const struct ckpt_adapted *t) {
    ckpt_str_puts(out, "    ");
    put_tensor(out, t->key, t->dtype, t->shape, t->ndim);
    for (const char *const *op = t->ops; *op; op++)
        ckpt_str_printf(out, "%s%s", op == t->ops ? ": " : ", ", *op);
    ckpt_str_puts(out, t->ops[0] ? "\n" : ": as it is\n");
}

static void put_results(struct ckpt_str *out, const struct ckpt_explained *x,
                        const struct ckpt_model *model) {
    size_t n = 0;
    ckpt_str_puts(out, "  becomes\n");
    for (size_t i = 0; model && i < model->ntensors; i++) {
        if (!ckpt_explain_made_of(&model->tensor[i], x->source))
            continue;
        put_result(out, &model->tensor[i]);
        n++;
    }
    if (!model)
        ckpt_str_puts(out, "    the model cannot be built: see the error\n");
    else if (n == 0)
        ckpt_str_puts(out, "    nothing: include= or exclude= leaves it out\n");
}

static void put_explained(struct ckpt_str *out, const struct ckpt_explained *x,
                          const struct ckpt_model *model) {
    put_tensor(out, x->source->key, x->source->dtype, x->source->shape, x->source->ndim);
    ckpt_str_puts(out, "\n");
    if (x->torch_key.s && x->in_model && !ckpt_text_eq(x->torch_key, x->source->key)) {
        ckpt_str_printf(out, "  %-*s ", LABEL, "in the model");
        ckpt_show_text(out, x->torch_key);
        ckpt_str_puts(out, "\n");
    }
    if (x->torch_key.s && !x->in_model)
        put_line(out, 2, "outside", LABEL, "it is not in the part that is the model (-o root=)");
    if (x->in_model || x->nrules) {
        put_module(out, x);
        put_steps(out, x);
        put_rules(out, x);
    }
    put_results(out, x, model);
}

void ckpt_explain_text(const struct ckpt_explain *e, const struct ckpt_model *model, size_t more,
                       struct ckpt_str *out) {
    for (size_t i = 0; i < e->n; i++) {
        ckpt_str_puts(out, i ? "\n" : "");
        put_explained(out, &e->tensor[i], model);
    }
    if (more)
        ckpt_str_printf(out, "\n... and %zu more tensors\n", more);
}
