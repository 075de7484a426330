/* summary.txt, which --inspect prints below its table: what a person wants to know first. */
#include "fs/files.h"

#include <inttypes.h>
#include <string.h>

#include "adapters/evidence.h"
#include "base/cleanup.h"
#include "fs/file_expect.h"
#include "fs/layout_name.h"
#include "fs/show.h"

#define LIST_MAX 200 /* entries of one list; index.json has all */

static void put_path(struct ckpt_str *out, struct ckpt_path path) {
    for (uint32_t i = 0; i < path.n; i++) {
        if (i)
            ckpt_str_puts(out, "/");
        ckpt_show_text(out, path.segment[i]);
    }
    if (path.n == 0)
        ckpt_str_puts(out, "(the root)");
}

static bool has_op(const struct ckpt_adapted *t, const char *name) {
    for (const char *const *op = t->ops; op && *op; op++)
        if (strncmp(*op, name, strlen(name)) == 0)
            return true;
    return false;
}

static void put_head(struct ckpt_str *out, const struct ckpt_session *s) {
    const struct ckpt_model *m = s->model;
    size_t inside = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        if (s->model_offset[i] == CKPT_NO_OFFSET)
            continue;
        inside++;
        bytes += m->tensor[i].nbytes;
    }
    ckpt_show_text(out, ckpt_text_of(s->checkpoint->name));
    ckpt_str_printf(out, ": %s, ", s->checkpoint->format);
    ckpt_show_count(out, m->ntensors, "tensor");
    ckpt_str_puts(out, ", ");
    ckpt_show_count(out, s->checkpoint->nvalues, "value");
    ckpt_str_puts(out, "\n\n");
    ckpt_str_printf(out, "layout             %s\ndialect            %s\n",
                    ckpt_layout_name(m->layout), m->dialect);
    ckpt_str_puts(out, "the model is       ");
    if (m->root.n)
        ckpt_show_text(out, m->root);
    else
        ckpt_str_puts(out, "the whole");
    ckpt_str_puts(out, "\nmodel.safetensors  ");
    ckpt_show_count(out, inside, "tensor");
    ckpt_str_puts(out, ", ");
    ckpt_show_size(out, bytes);
    ckpt_str_printf(out, "\nrenamed            %zu\nrenumbered         %zu\n", m->nrenamed,
                    m->nrenumbered);
    ckpt_str_printf(out, "transposed         %zu\ncast               %zu\n", m->ntransposed,
                    m->ncast);
    if (m->prefix.n) {
        ckpt_str_puts(out, "prefix stripped    ");
        ckpt_show_text(out, m->prefix);
        ckpt_str_puts(out, " (-o prefix=keep keeps it)\n");
    }
    if (m->suggested_prefix.n) {
        ckpt_str_puts(out, "every key begins   ");
        ckpt_show_text(out, m->suggested_prefix);
        ckpt_str_puts(out, " (kept; -o map= can take it off)\n");
    }
}

/* The lists below share a shape: a title with the count, at most LIST_MAX lines, "and N more". */
static void title(struct ckpt_str *out, const char *what, size_t n) {
    if (n)
        ckpt_str_printf(out, "\n%s (%zu):\n", what, n);
}

static void more(struct ckpt_str *out, size_t n) {
    if (n > LIST_MAX)
        ckpt_str_printf(out, "  ... and %zu more, see index.json\n", n - LIST_MAX);
}

static void put_texts(struct ckpt_str *out, const char *what, const struct ckpt_text *text,
                      size_t n) {
    title(out, what, n);
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        ckpt_str_puts(out, "  ");
        ckpt_show_text(out, text[i]);
        ckpt_str_puts(out, "\n");
    }
    more(out, n);
}

static void put_notes(struct ckpt_str *out, const char *what, const struct ckpt_note *note,
                      size_t n) {
    title(out, what, n);
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        ckpt_str_puts(out, "  ");
        put_path(out, note[i].path);
        ckpt_str_puts(out, ": ");
        ckpt_show_text(out, note[i].text);
        ckpt_str_puts(out, "\n");
    }
    more(out, n);
}

typedef bool chosen(const struct ckpt_adapted *t);
typedef void line(struct ckpt_str *out, const struct ckpt_adapted *t);

static void put_tensors(struct ckpt_str *out, const struct ckpt_model *m, const char *what,
                        chosen *is, line *write) {
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        n += is(&m->tensor[i]);
    title(out, what, n);
    for (size_t i = 0, done = 0; i < m->ntensors && done < LIST_MAX; i++) {
        if (!is(&m->tensor[i]))
            continue;
        ckpt_str_puts(out, "  ");
        ckpt_show_text(out, m->tensor[i].key);
        write(out, &m->tensor[i]);
        ckpt_str_puts(out, "\n");
        done++;
    }
    more(out, n);
}

static bool is_changed(const struct ckpt_adapted *t) {
    return t->ops && t->ops[0];
}

static void write_change(struct ckpt_str *out, const struct ckpt_adapted *t) {
    ckpt_str_puts(out, " ");
    ckpt_show_shape(out, t->shape, t->ndim);
    ckpt_str_puts(out, " is ");
    ckpt_show_text(out, t->source->key);
    ckpt_str_puts(out, " ");
    ckpt_show_shape(out, t->source->shape, t->source->ndim);
    for (const char *const *op = t->ops; *op; op++)
        ckpt_str_printf(out, "%s%s", op == t->ops ? ": " : ", ", *op);
}

static bool is_renamed(const struct ckpt_adapted *t) {
    return t->in_model && t->torch_key.s && !ckpt_text_eq(t->key, t->torch_key);
}

static void write_old_name(struct ckpt_str *out, const struct ckpt_adapted *t) {
    const struct ckpt_decision *d = t->module.within;
    ckpt_str_puts(out, " was ");
    ckpt_show_text(out, t->torch_key);
    while (d && !ckpt_is_layer(d->kind)) /* it numbers the norms */
        d = d->within;
    if (!d)
        return;
    ckpt_str_puts(out, " (");
    ckpt_show_text(out, d->path);
    ckpt_str_printf(out, ": %s by its %s)", d->kind, d->decided_by);
}

static bool is_square(const struct ckpt_adapted *t) {
    return t->ndim == 2 && t->shape[0] == t->shape[1] && t->shape[0] > 1 && has_op(t, "transpose");
}

static void write_square(struct ckpt_str *out, const struct ckpt_adapted *t) {
    ckpt_str_puts(out, " ");
    ckpt_show_shape(out, t->shape, t->ndim);
    const char *by = t->module.decided_by ? t->module.decided_by : "name";
    ckpt_str_printf(out, " is %s by %s%s", t->module.kind ? t->module.kind : "unknown",
                    strcmp(by, "default") == 0 ? "" : "its ", by);
}

static bool is_tied(const struct ckpt_adapted *t) {
    return t->ntied > 0;
}

static void write_ties(struct ckpt_str *out, const struct ckpt_adapted *t) {
    for (size_t i = 0; i < t->ntied; i++) {
        ckpt_str_puts(out, i ? ", " : " = ");
        ckpt_show_text(out, t->tied[i]);
    }
}

static const char *who_loads(enum ckpt_layout layout) {
    switch (layout) {
    case CKPT_LAYOUT_BURN:
        return "loads in burn without an adapter";
    case CKPT_LAYOUT_TORCH:
        return "safetensors.torch.load_file() makes a state dict of it";
    default:
        return "the source's tensors as they are";
    }
}

static void put_advice(struct ckpt_str *out, const struct ckpt_session *s) {
    ckpt_str_puts(out, "\nThere when named, though not listed (-o list=all lists them):\n"
                       "  NAME.npy           a tensor for numpy.load(..., mmap_mode=\"r\")\n"
                       "  model.bpk          the model as burn's burnpack\n"
                       "  .source/           the same tree unadapted, in the source's own names\n"
                       "\nHow to go on:\n");
    ckpt_str_printf(out, "  cp model.safetensors   %s\n", who_loads(s->model->layout));
    ckpt_str_puts(out, "  jq .status verify.json does the adapted model compute the same?\n"
                       "  index.json             one record a tensor\n");
    if (s->model->ncandidates)
        ckpt_str_puts(out, "  -o root=KEY            chooses another part as the model\n");
}

int ckpt_files_write_summary(const void *session, struct ckpt_str *out, struct ckpt_err *err) {
    const struct ckpt_session *s = session;
    const struct ckpt_checkpoint *c = s->checkpoint;
    const struct ckpt_model *m = s->model;
    put_head(out, s);
    ckpt_expect_write_summary(out, m);
    put_texts(out, "Warnings about the file", c->warnings, c->nwarnings);
    put_texts(out, "Warnings", m->warnings, m->nwarnings);
    put_texts(out, "Other parts that could be the model", m->candidates, m->ncandidates);
    put_texts(out, "Renumbered lists", m->list, m->nlists);
    put_tensors(out, m, "Changed tensors", is_changed, write_change);
    put_tensors(out, m, "Renamed", is_renamed, write_old_name);
    put_tensors(out, m, "Square weights, whose shape could not have told", is_square, write_square);
    put_tensors(out, m, "Tied, two names of the same storage", is_tied, write_ties);
    put_notes(out, "Not served", c->unsupported, c->nunsupported);
    put_notes(out, "Objects left alone, never executed", c->opaque, c->nopaque);
    put_texts(out, "Left out of the tree", s->notes, s->nnotes);
    put_advice(out, s);
    return out->failed ? ckpt_fail_memory(err, "writing summary.txt") : 0;
}

int ckpt_files_add_summary(struct ckpt_session *s, struct ckpt_err *err) {
    uint32_t node;
    return ckpt_session_add_made(s, CKPT_TREE_ROOT, CKPT_TEXT("summary.txt"),
                                 ckpt_files_write_summary, s, &node, err);
}
