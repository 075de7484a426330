#include "fs/inspect_table.h"

#include <string.h>

#include "base/cleanup.h"
#include "fs/inspect_order.h"
#include "fs/show.h"

/*
 *     NAME            DTYPE  SHAPE       SIZE  FROM
 *     encoder                                             a folder, once for all that follows in it
 *       layers.0
 *         weight      F32    [16, 8]  512 bytes  enc.0.w: transpose
 *
 * Two passes: one measures the columns, one writes. Names get what they need up to half of the
 * line, what is left after the numbers is for FROM, which is dropped where that is too narrow to
 * read.
 */

#define NBYTES_WIDTH 10
#define SHAPE_MAX 24
#define NAME_MIN 16
#define FROM_MIN 12
#define GLOBALS_MAX 200
#define CALLS_WIDTH 6
#define DANGER_WIDTH 31 /* "runs commands and changes files" */

struct table {
    const struct ckpt_session *s;
    struct ckpt_str *out;
    struct ckpt_terminal terminal;
    unsigned name, dtype, shape, from; /* widths; from 0: no such column */
    struct ckpt_str cell;              /* scratch */
};

static void begin(struct table *t, const char *code) {
    if (t->terminal.colour)
        ckpt_str_printf(t->out, "\033[%sm", code);
}

static void end(struct table *t) {
    if (t->terminal.colour)
        ckpt_str_puts(t->out, "\033[0m");
}

/* The scratch cell, written and emptied. */
static void flush(struct table *t, unsigned width, bool right) {
    ckpt_show_cell(t->out, ckpt_str_text(&t->cell), width, right);
    ckpt_str_cut(&t->cell, 0);
}

/* --- what stands in a row -----------------------------------------------------------------------
 */

static void name_cell(struct table *t, uint32_t depth, struct ckpt_text segment) {
    for (uint32_t i = 0; i < depth; i++)
        ckpt_str_puts(&t->cell, "  ");
    ckpt_show_text(&t->cell, segment.n ? segment : CKPT_TEXT("\"\""));
}

static bool has_new_name(const struct ckpt_adapted *a) {
    for (const char *const *op = a->ops; op && *op; op++)
        if (strcmp(*op, "rename") == 0 || strcmp(*op, "renumber") == 0)
            return true;
    return false;
}

/* "old.name: transpose, cast:f32 (shard)": nothing for a tensor that is as it was. */
static void from_cell(struct table *t, const struct ckpt_adapted *a) {
    const bool renamed = has_new_name(a);
    const char *between = "";
    if (renamed) {
        ckpt_show_text(&t->cell, a->source->key);
        between = ": ";
    }
    for (const char *const *op = a->ops; op && *op; op++) {
        if (strcmp(*op, "rename") == 0 || strcmp(*op, "renumber") == 0)
            continue;
        ckpt_str_puts(&t->cell, between);
        ckpt_str_puts(&t->cell, *op);
        between = ", ";
    }
    if (t->s->checkpoint->nfiles > 1 && a->source->blob->file) {
        ckpt_str_puts(&t->cell, t->cell.n ? " (" : "(");
        ckpt_show_text(&t->cell, ckpt_text_of(a->source->blob->file->name));
        ckpt_str_puts(&t->cell, ")");
    }
}

/* --- widths
 * --------------------------------------------------------------------------------------- */

static unsigned at_most(unsigned v, unsigned most) {
    return v < most ? v : most;
}

static void measure(struct table *t) {
    unsigned from = 0;
    t->name = NAME_MIN;
    t->dtype = t->shape = (unsigned)strlen("DTYPE");
    for (size_t i = 0; i < t->s->model->ntensors; i++) {
        const struct ckpt_adapted *a = &t->s->model->tensor[i];
        for (uint32_t d = 0; d < a->path.n; d++) {
            const unsigned w = 2 * d + ckpt_show_width(a->path.segment[d]);
            t->name = w > t->name ? w : t->name;
        }
        const unsigned dtype = (unsigned)strlen(ckpt_dtype_info(a->dtype)->name);
        t->dtype = dtype > t->dtype ? dtype : t->dtype;
        ckpt_show_shape(&t->cell, a->shape, a->ndim);
        t->shape = t->cell.n > t->shape ? (unsigned)t->cell.n : t->shape;
        ckpt_str_cut(&t->cell, 0);
        from_cell(t, a);
        from |= t->cell.n > 0;
        ckpt_str_cut(&t->cell, 0);
    }
    t->shape = at_most(t->shape, at_most(SHAPE_MAX, t->terminal.width / 4));
    const unsigned numbers = 2 + t->dtype + 2 + t->shape + 2 + NBYTES_WIDTH;
    const unsigned left = t->terminal.width > numbers ? t->terminal.width - numbers : NAME_MIN / 2;
    t->name = at_most(t->name, from ? at_most(left, t->terminal.width / 2) : left);
    t->from = left > t->name + 2 ? left - t->name - 2 : 0;
    if (!from || t->from < FROM_MIN)
        t->from = 0;
}

/* --- rows
 * ----------------------------------------------------------------------------------------- */

static void end_row(struct table *t) {
    while (t->out->n && t->out->s[t->out->n - 1] == ' ')
        ckpt_str_cut(t->out, t->out->n - 1);
    ckpt_str_puts(t->out, "\n");
}

static void header_row(struct table *t) {
    begin(t, "1");
    ckpt_str_puts(&t->cell, "NAME");
    flush(t, t->name, false);
    ckpt_str_puts(t->out, "  ");
    ckpt_str_puts(&t->cell, "DTYPE");
    flush(t, t->dtype, false);
    ckpt_str_puts(t->out, "  ");
    ckpt_str_puts(&t->cell, "SHAPE");
    flush(t, t->shape, false);
    ckpt_str_puts(t->out, "  ");
    ckpt_str_puts(&t->cell, "SIZE");
    flush(t, NBYTES_WIDTH, true);
    if (t->from)
        ckpt_str_puts(t->out, "  FROM");
    end(t);
    end_row(t);
}

static void tensor_row(struct table *t, const struct ckpt_adapted *a) {
    const uint32_t depth = a->path.n ? a->path.n - 1 : 0;
    name_cell(t, depth, a->path.n ? a->path.segment[depth] : CKPT_TEXT("tensor"));
    flush(t, t->name, false);
    ckpt_str_puts(t->out, "  ");
    begin(t, "36");
    ckpt_str_puts(&t->cell, ckpt_dtype_info(a->dtype)->name);
    flush(t, t->dtype, false);
    end(t);
    ckpt_str_puts(t->out, "  ");
    ckpt_show_shape(&t->cell, a->shape, a->ndim);
    flush(t, t->shape, false);
    ckpt_str_puts(t->out, "  ");
    ckpt_show_size(&t->cell, a->nbytes);
    flush(t, NBYTES_WIDTH, true);
    if (t->from) {
        ckpt_str_puts(t->out, "  ");
        from_cell(t, a);
        flush(t, t->from, false);
    }
    end_row(t);
}

static void folder_rows(struct table *t, const struct ckpt_path *before, struct ckpt_path path) {
    uint32_t same = 0;
    while (same + 1 < path.n && same + 1 < before->n &&
           ckpt_text_eq(path.segment[same], before->segment[same]))
        same++;
    for (uint32_t d = same; d + 1 < path.n; d++) {
        name_cell(t, d, path.segment[d]);
        begin(t, "1;34");
        flush(t, t->name, false);
        while (t->out->n && t->out->s[t->out->n - 1] == ' ')
            ckpt_str_cut(t->out, t->out->n - 1);
        end(t);
        ckpt_str_puts(t->out, "\n");
    }
}

static void tensor_rows(struct table *t) {
    const struct ckpt_model *m = t->s->model;
    CKPT_AUTO(free) size_t *order = ckpt_inspect_order(m);
    struct ckpt_path before = {0};
    header_row(t);
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *const a = &m->tensor[order ? order[i] : i];
        folder_rows(t, &before, a->path);
        tensor_row(t, a);
        before = a->path;
    }
}

/* --- totals
 * --------------------------------------------------------------------------------------- */

static void total_row(struct table *t, const char *what, size_t count, uint64_t bytes) {
    ckpt_str_puts(&t->cell, what);
    flush(t, t->dtype, false);
    ckpt_str_u64(&t->cell, count);
    flush(t, 9, true);
    ckpt_str_puts(t->out, count == 1 ? " tensor   " : " tensors  ");
    ckpt_show_size(&t->cell, bytes);
    flush(t, NBYTES_WIDTH, true);
    end_row(t);
}

static void totals(struct table *t) {
    const struct ckpt_model *m = t->s->model;
    size_t count[CKPT_DT_COUNT] = {0};
    uint64_t bytes[CKPT_DT_COUNT] = {0}, all = 0;
    unsigned kinds = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        kinds += count[m->tensor[i].dtype]++ == 0;
        bytes[m->tensor[i].dtype] += m->tensor[i].nbytes;
        all += m->tensor[i].nbytes;
    }
    ckpt_str_puts(t->out, "\n");
    for (unsigned d = 0; d < CKPT_DT_COUNT; d++)
        if (count[d])
            total_row(t, ckpt_dtype_info((enum ckpt_dtype)d)->name, count[d], bytes[d]);
    if (kinds != 1)
        total_row(t, "all", m->ntensors, all);
}

/* --- names in the pickle
 * -------------------------------------------------------------------------- */

/* "  dangerous  os.system  1 call   runs commands" */
static void global_row(struct table *t, const struct ckpt_global *g, unsigned width) {
    begin(t, g->danger ? "1;31" : "0");
    ckpt_str_printf(t->out, "  %-9s  ", ckpt_global_status(g));
    ckpt_show_text(&t->cell, g->name);
    flush(t, width, false);
    ckpt_str_printf(&t->cell, "%llu", (unsigned long long)g->calls);
    flush(t, CALLS_WIDTH, true);
    ckpt_str_puts(t->out, g->calls == 1 ? " call   " : " calls  ");
    ckpt_str_puts(t->out, g->danger ? g->danger : "");
    while (t->out->s && t->out->s[t->out->n - 1] == ' ')
        ckpt_str_cut(t->out, t->out->n - 1);
    end(t);
    ckpt_str_puts(t->out, "\n");
}

/* Neither known nor harmless, in the order in which they are listed. */
static bool is_row(const struct ckpt_global *g, bool danger) {
    return (g->danger != NULL) == danger && (danger || !g->known);
}

static unsigned global_width(struct table *t, const struct ckpt_globals *g) {
    const unsigned around = 2 + 9 + 2 + CALLS_WIDTH + 8 + DANGER_WIDTH;
    const unsigned room = t->terminal.width > around + NAME_MIN ? t->terminal.width - around : 0;
    unsigned width = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (!is_row(&g->global[i], true) && !is_row(&g->global[i], false))
            continue;
        ckpt_show_text(&t->cell, g->global[i].name);
        const unsigned w = ckpt_show_width(ckpt_str_text(&t->cell));
        width = w > width ? w : width;
        ckpt_str_cut(&t->cell, 0);
    }
    return at_most(width, room ? room : NAME_MIN / 2);
}

/* The dangerous ones come first. */
static void globals(struct table *t) {
    const struct ckpt_globals *g = &t->s->checkpoint->globals;
    size_t rows = 0, plain = 0;
    if (!ckpt_globals_are_notable(g))
        return;
    const unsigned width = global_width(t, g);
    ckpt_str_puts(t->out, "\nWhat the pickle names, none of it ever called:\n");
    for (int danger = 1; danger >= 0; danger--)
        for (size_t i = 0; i < g->n && rows < GLOBALS_MAX; i++)
            if (is_row(&g->global[i], danger)) {
                global_row(t, &g->global[i], width);
                rows++;
            }
    for (size_t i = 0; i < g->n; i++)
        plain += g->global[i].known && !g->global[i].danger;
    if (plain)
        ckpt_str_printf(t->out, "  and %zu for tensors and plain data\n", plain);
    if (rows == GLOBALS_MAX)
        ckpt_str_puts(t->out, "  index.json has all of them\n");
}

static void table_fini(struct table *t) {
    ckpt_str_fini(&t->cell);
}
CKPT_DEFINE_AUTO(table, struct table, table_fini)

void ckpt_inspect_table(const struct ckpt_session *s, struct ckpt_terminal terminal,
                        struct ckpt_str *out) {
    CKPT_AUTO(table) struct table t = {.s = s, .out = out, .terminal = terminal};
    if (s->model->ntensors) {
        measure(&t);
        tensor_rows(&t);
        totals(&t);
    }
    globals(&t);
    ckpt_str_puts(out, "\n");
    out->failed |= t.cell.failed;
}
