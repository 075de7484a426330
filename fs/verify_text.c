/* The text of --verify --verbose. Names come from files: they are shown, not printed. */
#include "fs/verify_text.h"

#include <errno.h>

#include "fs/show.h"
#include "verify/statistics.h"

#define TENSORS_SHOWN 100
#define LAYERS_SHOWN 20

static void put_reason(struct ckpt_str *out, const char *text) {
    if (text[0]) {
        ckpt_str_puts(out, "  ");
        ckpt_show_text(out, ckpt_text_of(text));
    }
    ckpt_str_puts(out, "\n");
}

/* ---- the whole, and its parts ---- */

static void put_part(struct ckpt_str *out, const char *name, enum ckpt_status s,
                     const char *reason) {
    ckpt_str_printf(out, "  %-11s %s", name, ckpt_status_name(s));
    put_reason(out, reason);
}

static void put_parts(struct ckpt_str *out, const struct ckpt_verification *v) {
    ckpt_show_text(out, ckpt_text_of(v->model->checkpoint->name));
    ckpt_str_printf(out, ": %s\n", ckpt_status_name(v->status));
    put_part(out, "bytes", v->bytes.status, v->bytes.reason.text);
    put_part(out, "layers", v->layer.status, "");
    if (v->chain.text)
        put_part(out, "chain", v->chain.status, v->chain.reason.text);
    else
        put_part(out, "graph", v->graph.status, v->graph.reason.text);
    put_part(out, "reference", v->reference.status, v->reference.reason.text);
}

static void put_stages(struct ckpt_str *out, const struct ckpt_verification *v) {
    ckpt_str_puts(out, "\nseconds\n");
    for (uint32_t i = 0; i < v->nstages; i++)
        ckpt_str_printf(out, "  %9.3f  %s\n", v->stage[i].seconds, v->stage[i].name);
}

/* ---- outputs ---- */

/* The index of an element in a tensor of that shape: "[1, 0, 2]". */
static void put_index(struct ckpt_str *out, int64_t flat, const int64_t *shape, uint32_t ndim) {
    int64_t index[CKPT_ARRAY_NDIM_MAX];
    for (uint32_t d = ndim; d-- > 0; flat /= shape[d])
        index[d] = flat % shape[d];
    ckpt_show_shape(out, index, ndim);
}

/* "0: 3  1e-08: 12  1e-07: 40", the errors by their powers of ten. */
static void put_decades(struct ckpt_str *out, const struct ckpt_diff *d) {
    ckpt_str_puts(out, "    errors by power of ten");
    for (int i = 0; i < CKPT_DIFF_DECADES; i++) {
        if (d->decade[i] == 0)
            continue;
        if (i == 0)
            ckpt_str_puts(out, "  0");
        else if (i == 1)
            ckpt_str_puts(out, "  <1e-12");
        else
            ckpt_str_printf(out, "  %s1e%+03d", i == CKPT_DIFF_DECADES - 1 ? ">=" : "", i - 14);
        ckpt_str_printf(out, ": %lld", (long long)d->decade[i]);
    }
    ckpt_str_puts(out, "\n");
}

static void put_run(struct ckpt_str *out, const struct ckpt_run_result *r) {
    const struct ckpt_diff *const d = &r->diff;
    ckpt_str_printf(out, "  %s %s ", r->output, r->name);
    ckpt_show_shape(out, d->out_shape, d->out_ndim);
    if (!d->shape_match) {
        ckpt_str_puts(out, ", expected ");
        ckpt_show_shape(out, d->ref_shape, d->ref_ndim);
    }
    ckpt_str_printf(
        out, ": %s\n    max %.3g  mean %.3g  p50 %.3g  p95 %.3g  p99 %.3g  relative %.3g",
        ckpt_status_name(r->status), d->max_abs, d->mean_abs, d->p50, d->p95, d->p99, d->max_rel);
    ckpt_str_printf(out, "  invalid %lld\n", (long long)d->ninvalid);
    put_decades(out, d);
    if (d->max_abs > 0) {
        ckpt_str_puts(out, "    largest at");
        for (uint32_t i = 0; i < d->ntop && d->top[i].error > 0; i++) {
            ckpt_str_puts(out, "  ");
            put_index(out, d->top[i].index, d->out_shape, d->out_ndim);
            ckpt_str_printf(out, " %.3g", d->top[i].error);
        }
        ckpt_str_puts(out, "\n");
    }
}

static void put_runs(struct ckpt_str *out, const struct ckpt_verification *v) {
    if (v->chain.nruns + v->graph.nruns)
        ckpt_str_puts(out, "\noutputs\n");
    for (uint32_t i = 0; i < v->chain.nruns; i++)
        put_run(out, &v->chain.run[i]);
    for (uint32_t i = 0; i < v->graph.nruns; i++)
        put_run(out, &v->graph.run[i]);
}

static void put_properties(struct ckpt_str *out, const struct ckpt_verification *v) {
    if (v->graph.nproperties)
        ckpt_str_puts(out, "\nproperties\n");
    for (uint32_t i = 0; i < v->graph.nproperties; i++)
        put_part(out, v->graph.property[i].name, v->graph.property[i].status,
                 v->graph.property[i].detail.text);
}

/* ---- layers ---- */

/* The worst statuses first; among PASS the largest difference. */
static bool is_worse(const struct ckpt_layer_result *a, const struct ckpt_layer_result *b) {
    return a->status != b->status ? a->status < b->status : a->max_abs > b->max_abs;
}

/* The layers_shown worst, in their order, into `worst`. */
static uint32_t find_worst(const struct ckpt_layers_result *all,
                           const struct ckpt_layer_result **worst) {
    uint32_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        uint32_t at = n < LAYERS_SHOWN ? n++ : LAYERS_SHOWN;
        for (; at > 0 && is_worse(&all->at[i], worst[at - 1]); at--)
            if (at < LAYERS_SHOWN)
                worst[at] = worst[at - 1];
        if (at < LAYERS_SHOWN)
            worst[at] = &all->at[i];
    }
    return n;
}

static void put_layers(struct ckpt_str *out, const struct ckpt_verification *v) {
    const struct ckpt_layer_result *worst[LAYERS_SHOWN];
    const uint32_t n = find_worst(&v->layer, worst);
    if (n)
        ckpt_str_printf(out, "\nlayers, the worst first: %u of %zu\n", n, v->layer.total);
    for (uint32_t i = 0; i < n; i++) {
        ckpt_str_printf(out, "  %-12s", ckpt_status_name(worst[i]->status));
        if (worst[i]->compared)
            ckpt_str_printf(out, "%9.3g  ", worst[i]->max_abs);
        else
            ckpt_str_puts(out, "        -  ");
        ckpt_show_text(out, worst[i]->layer->path);
        ckpt_str_puts(out, " ");
        ckpt_show_text(out, ckpt_layer_type(worst[i]->layer));
        put_reason(out, worst[i]->reason.text);
    }
}

/* ---- tensors ---- */

static void put_statistics(struct ckpt_str *out, const struct ckpt_adapted *t,
                           const struct ckpt_statistics *s) {
    ckpt_str_printf(out, "  %10llu %10.4g %10.4g %10.4g %10.4g %6llu %6llu  ",
                    (unsigned long long)s->count, s->min, s->max, s->mean, s->std,
                    (unsigned long long)s->nans, (unsigned long long)s->infinities);
    ckpt_show_text(out, t->key);
    ckpt_str_puts(out, "\n");
}

/* The first tensors, and of the others those that are not all finite. */
static int put_tensors(struct ckpt_str *out, const struct ckpt_verification *v,
                       struct ckpt_err *err) {
    const struct ckpt_model *const m = v->model;
    size_t shown = 0, left = 0;
    if (m->ntensors)
        ckpt_str_printf(out, "\ntensors as served\n  %10s %10s %10s %10s %10s %6s %6s\n", "count",
                        "min", "max", "mean", "std", "NaN", "inf");
    for (size_t i = 0; i < m->ntensors; i++) {
        struct ckpt_statistics s;
        struct ckpt_err unread = {0};
        const int rc = ckpt_statistics_of(v->reader, &m->tensor[i], &v->exec, &s, &unread);
        if (rc == -EINTR)
            return ckpt_fail(err, rc, "interrupted");
        const bool show = rc == 0 && shown < (s.nans || s.infinities ? 2 : 1) * TENSORS_SHOWN;
        if (show)
            put_statistics(out, &m->tensor[i], &s);
        shown += show;
        left += !show;
    }
    if (left)
        ckpt_str_printf(out, "  and %zu more\n", left);
    return 0;
}

int ckpt_verify_text(void *arg, const struct ckpt_verification *v, struct ckpt_err *err) {
    struct ckpt_str *const out = arg;
    put_parts(out, v);
    put_stages(out, v);
    put_runs(out, v);
    put_properties(out, v);
    put_layers(out, v);
    const int rc = put_tensors(out, v, err);
    return rc < 0 ? rc : out->failed ? ckpt_fail_memory(err, "writing the report") : 0;
}
