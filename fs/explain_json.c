/* --explain --json. */
#include "base/json.h"
#include "fs/explain_show.h"

static void write_member(struct ckpt_json_out *w, const char *key, const char *value) {
    ckpt_jsonw_key(w, key);
    ckpt_jsonw_string(w, value);
}

static void write_text(struct ckpt_json_out *w, const char *key, struct ckpt_text t) {
    ckpt_jsonw_key(w, key);
    if (t.s)
        ckpt_jsonw_text(w, t);
    else
        ckpt_jsonw_null(w);
}

static void begin_list(struct ckpt_json_out *w, const char *key) {
    ckpt_jsonw_key(w, key);
    ckpt_jsonw_array(w);
}

static void write_tensor(struct ckpt_json_out *w, struct ckpt_text key, enum ckpt_dtype dtype,
                         const int64_t *shape, uint32_t ndim) {
    write_text(w, "key", key);
    write_member(w, "dtype", ckpt_dtype_info(dtype)->name);
    begin_list(w, "shape");
    for (uint32_t d = 0; d < ndim; d++)
        ckpt_jsonw_i64(w, shape[d]);
    ckpt_jsonw_array_end(w);
}

static void write_module(struct ckpt_json_out *w, const struct ckpt_explained *x) {
    ckpt_jsonw_key(w, "module");
    ckpt_jsonw_object(w);
    write_text(w, "path", x->module);
    write_member(w, "kind", x->kind);
    write_member(w, "decided_by", x->decided_by);
    begin_list(w, "evidence");
    for (size_t i = 0; i < x->nrungs; i++) {
        ckpt_jsonw_object(w);
        write_member(w, "by", x->rung[i].name);
        write_member(w, "said", x->rung[i].said);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
    begin_list(w, "inside");
    for (size_t i = 0; i < x->nholders; i++)
        ckpt_jsonw_string(w, x->holder[i]);
    ckpt_jsonw_array_end(w);
    ckpt_jsonw_object_end(w);
}

static void write_steps(struct ckpt_json_out *w, const struct ckpt_explained *x) {
    begin_list(w, "names");
    for (size_t i = 0; i < x->nsteps; i++) {
        ckpt_jsonw_object(w);
        write_text(w, "by", x->step[i].by);
        write_text(w, "key", x->step[i].key);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

static void write_rules(struct ckpt_json_out *w, const struct ckpt_explained *x) {
    begin_list(w, "rules");
    for (size_t i = 0; i < x->nrules; i++) {
        ckpt_jsonw_object(w);
        write_member(w, "rule", x->rule[i].where);
        write_text(w, "about", x->rule[i].about);
        ckpt_jsonw_key(w, "takes");
        ckpt_jsonw_bool(w, x->rule[i].took);
        write_member(w, "why", x->rule[i].why);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
    write_member(w, "joined_by", x->joined_by);
}

static void write_results(struct ckpt_json_out *w, const struct ckpt_explained *x,
                          const struct ckpt_model *model) {
    begin_list(w, "becomes");
    for (size_t i = 0; model && i < model->ntensors; i++) {
        const struct ckpt_adapted *t = &model->tensor[i];
        if (!ckpt_explain_made_of(t, x->source))
            continue;
        ckpt_jsonw_object(w);
        write_tensor(w, t->key, t->dtype, t->shape, t->ndim);
        begin_list(w, "ops");
        for (const char *const *op = t->ops; *op; op++)
            ckpt_jsonw_string(w, *op);
        ckpt_jsonw_array_end(w);
        ckpt_jsonw_object_end(w);
    }
    ckpt_jsonw_array_end(w);
}

static void write_explained(struct ckpt_json_out *w, const struct ckpt_explained *x,
                            const struct ckpt_model *model) {
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "source");
    ckpt_jsonw_object(w);
    write_tensor(w, x->source->key, x->source->dtype, x->source->shape, x->source->ndim);
    ckpt_jsonw_object_end(w);
    ckpt_jsonw_key(w, "in_model");
    ckpt_jsonw_bool(w, x->in_model);
    write_text(w, "torch_key", x->torch_key);
    write_module(w, x);
    write_steps(w, x);
    write_rules(w, x);
    write_results(w, x, model);
    ckpt_jsonw_object_end(w);
}

void ckpt_explain_json(const struct ckpt_explain *e, const struct ckpt_model *model, size_t more,
                       struct ckpt_str *out) {
    struct ckpt_json_out w = {.out = out, .pretty = true};
    ckpt_jsonw_object(&w);
    begin_list(&w, "tensors");
    for (size_t i = 0; i < e->n; i++)
        write_explained(&w, &e->tensor[i], model);
    ckpt_jsonw_array_end(&w);
    ckpt_jsonw_key(&w, "more");
    ckpt_jsonw_u64(&w, more);
    ckpt_jsonw_object_end(&w);
    ckpt_str_puts(out, "\n");
}
