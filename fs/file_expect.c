/*
 * -o expect= in summary.txt and index.json.
 *
 *     ┌─ model.json: 40 parameters of a burn model
 *     │ ✓ applied             37
 *     │ ✗ missing              2
 *     ├─ missing
 *     │   encoder.norm.gamma [8], did you mean encoder.norm1.gamma [8]?
 *     └─
 */
#include "fs/file_expect.h"

#include <inttypes.h>

#include "adapters/expect.h"
#include "fs/show.h"

#define LIST_MAX 20 /* of one list in summary.txt; index.json has all */

static const struct outcome {
    enum ckpt_expect_outcome outcome;
    const char *name; /* of the list in index.json; NULL: only counted */
    const char *line; /* in the summary's count */
    const char *title;
} outcomes[] = {
    {CKPT_EXPECT_MISSING, "missing", "✗ missing      ", "missing: no tensor of that name"},
    {CKPT_EXPECT_SHAPE, "shape", "! other shape  ", "another shape: burn refuses the tensor"},
    {CKPT_EXPECT_DTYPE, "dtype", "! other kind   ", "another kind of numbers: burn refuses it"},
    {CKPT_EXPECT_WIDTH, "width", "~ other width  ", "another width: burn takes the file's"},
};
enum { NOUTCOMES = sizeof outcomes / sizeof *outcomes };

static size_t applied(const struct ckpt_expect *e) {
    return e->count[CKPT_EXPECT_APPLIED] + e->count[CKPT_EXPECT_WIDTH];
}

/* --- for people ------------------------------------------------------------------------------ */

static void put_dtype_and_shape(struct ckpt_str *out, enum ckpt_dtype t, const int64_t *shape,
                                uint32_t ndim) {
    if (t != CKPT_DT_NONE)
        ckpt_str_printf(out, " %s", ckpt_dtype_info(t)->name);
    if (!shape)
        return;
    ckpt_str_puts(out, " ");
    ckpt_show_shape(out, shape, ndim);
}

static void put_parameter(struct ckpt_str *out, const struct ckpt_parameter *p) {
    ckpt_show_text(out, p->name);
    put_dtype_and_shape(out, p->dtype, p->has_shape ? p->shape : NULL, p->ndim);
}

static void put_record(struct ckpt_str *out, const struct ckpt_model *m,
                       const struct ckpt_expect_record *r) {
    put_parameter(out, r->parameter);
    if (r->tensor == CKPT_EXPECT_NONE)
        return;
    const struct ckpt_adapted *t = &m->tensor[r->tensor];
    const bool is_guess = r->outcome == CKPT_EXPECT_MISSING;
    ckpt_str_puts(out, is_guess ? "; did you mean " : "; the tensor is");
    if (is_guess)
        ckpt_show_text(out, t->key);
    put_dtype_and_shape(out, t->dtype, t->shape, t->ndim);
    ckpt_str_puts(out, is_guess ? "?" : r->is_transposed ? ", turned around" : "");
}

static void put_more(struct ckpt_str *out, size_t n) {
    if (n > LIST_MAX)
        ckpt_str_printf(out, "│   ... and %zu more, see index.json\n", n - LIST_MAX);
}

static void put_outcome(struct ckpt_str *out, const struct ckpt_model *m, const struct outcome *o) {
    const struct ckpt_expect *e = m->expect;
    if (e->count[o->outcome] == 0)
        return;
    ckpt_str_printf(out, "├─ %s\n", o->title);
    for (size_t i = 0, done = 0; i < e->nrecords && done < LIST_MAX; i++) {
        if (e->record[i].outcome != o->outcome)
            continue;
        ckpt_str_puts(out, "│   ");
        put_record(out, m, &e->record[i]);
        ckpt_str_puts(out, "\n");
        done++;
    }
    put_more(out, e->count[o->outcome]);
}

/* Those that are always there last. */
static void put_unused(struct ckpt_str *out, const struct ckpt_model *m) {
    const struct ckpt_expect *e = m->expect;
    size_t done = 0;
    if (e->nunused == e->nusual)
        return;
    ckpt_str_puts(out, "├─ unused: no parameter of that name\n");
    for (size_t i = 0; i < e->nunused && done < LIST_MAX; i++) {
        const struct ckpt_adapted *t = &m->tensor[e->unused[i]];
        if (ckpt_expect_is_usual(t->key))
            continue;
        ckpt_str_puts(out, "│   ");
        ckpt_show_text(out, t->key);
        put_dtype_and_shape(out, t->dtype, t->shape, t->ndim);
        ckpt_str_puts(out, "\n");
        done++;
    }
    put_more(out, e->nunused - e->nusual);
}

void ckpt_expect_write_summary(struct ckpt_str *out, const struct ckpt_model *m) {
    const struct ckpt_expect *e = m->expect;
    if (!e)
        return;
    ckpt_str_puts(out, "\n┌─ ");
    ckpt_show_text(out, ckpt_text_of(e->file));
    ckpt_str_printf(out, ": %zu parameters of a burn model\n│ ✓ applied        %zu\n", e->nrecords,
                    applied(e));
    for (size_t i = 0; i < NOUTCOMES; i++)
        ckpt_str_printf(out, "│ %s  %zu\n", outcomes[i].line, e->count[outcomes[i].outcome]);
    ckpt_str_printf(out, "│ ? unused         %zu", e->nunused);
    if (e->nusual)
        ckpt_str_printf(out, ", of which num_batches_tracked %zu: burn has none", e->nusual);
    ckpt_str_puts(out, "\n");
    for (size_t i = 0; i < NOUTCOMES; i++)
        put_outcome(out, m, &outcomes[i]);
    put_unused(out, m);
    ckpt_str_puts(out, "└─\n");
}

/* --- for programs ---------------------------------------------------------------------------- */

/* "KEY": {"dtype": ..., "shape": [...]}; null where it is not told. */
static void write_kind(struct ckpt_json_out *w, enum ckpt_dtype t, const int64_t *shape,
                       uint32_t ndim) {
    ckpt_jsonw_key(w, "dtype");
    ckpt_jsonw_string(w, t == CKPT_DT_NONE ? NULL : ckpt_dtype_info(t)->name);
    ckpt_jsonw_key(w, "shape");
    if (!shape) {
        ckpt_jsonw_null(w);
        return;
    }
    ckpt_jsonw_array(w);
    for (uint32_t i = 0; i < ndim; i++)
        ckpt_jsonw_i64(w, shape[i]);
    ckpt_jsonw_array_end(w);
}

static void write_tensor(struct ckpt_json_out *w, const struct ckpt_adapted *t) {
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "key");
    ckpt_jsonw_text(w, t->key);
    write_kind(w, t->dtype, t->shape, t->ndim);
    ckpt_jsonw_object_end(w);
}

static void write_record(struct ckpt_json_out *w, const struct ckpt_model *m,
                         const struct ckpt_expect_record *r) {
    const struct ckpt_parameter *p = r->parameter;
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "name");
    ckpt_jsonw_text(w, p->name);
    write_kind(w, p->dtype, p->has_shape ? p->shape : NULL, p->ndim);
    ckpt_jsonw_key(w, r->outcome == CKPT_EXPECT_MISSING ? "did_you_mean" : "found");
    if (r->tensor == CKPT_EXPECT_NONE)
        ckpt_jsonw_null(w);
    else
        write_tensor(w, &m->tensor[r->tensor]);
    ckpt_jsonw_object_end(w);
}

static void write_outcome(struct ckpt_json_out *w, const struct ckpt_model *m,
                          const struct outcome *o) {
    ckpt_jsonw_key(w, o->name);
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < m->expect->nrecords; i++)
        if (m->expect->record[i].outcome == o->outcome)
            write_record(w, m, &m->expect->record[i]);
    ckpt_jsonw_array_end(w);
}

void ckpt_expect_write_index(struct ckpt_json_out *w, const struct ckpt_model *m) {
    const struct ckpt_expect *e = m->expect;
    if (!e)
        return;
    ckpt_jsonw_key(w, "expect");
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "file");
    ckpt_jsonw_string(w, e->file);
    ckpt_jsonw_key(w, "parameters");
    ckpt_jsonw_u64(w, e->nrecords);
    ckpt_jsonw_key(w, "applied");
    ckpt_jsonw_u64(w, applied(e));
    for (size_t i = 0; i < NOUTCOMES; i++)
        write_outcome(w, m, &outcomes[i]);
    ckpt_jsonw_key(w, "unused");
    ckpt_jsonw_array(w);
    for (size_t i = 0; i < e->nunused; i++)
        write_tensor(w, &m->tensor[e->unused[i]]);
    ckpt_jsonw_array_end(w);
    ckpt_jsonw_object_end(w);
}
