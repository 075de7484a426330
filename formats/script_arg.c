/*
 * Values of a script as arguments of the graph. Scripts write the numbers of c10's enums where the
 * schema of an operation has a type of its own. By name an argument tells which it is, by position
 * only the schema does: there the number stays.
 */
#include <errno.h>

#include "formats/dtype.h"
#include "formats/limits.h"
#include "formats/script_machine.h"

enum ckpt_dtype ckpt_graph_script_dtype(int64_t number) {
    static const enum ckpt_dtype dtypes[] = {
        CKPT_DT_U8,          CKPT_DT_I8,          CKPT_DT_I16,    CKPT_DT_I32,     CKPT_DT_I64,
        CKPT_DT_F16,         CKPT_DT_F32,         CKPT_DT_F64,    CKPT_DT_C32,     CKPT_DT_C64,
        CKPT_DT_C128,        CKPT_DT_BOOL,        CKPT_DT_NONE,   CKPT_DT_NONE,    CKPT_DT_NONE,
        CKPT_DT_BF16,        CKPT_DT_NONE,        CKPT_DT_NONE,   CKPT_DT_BITS1X8, CKPT_DT_BITS2X4,
        CKPT_DT_BITS4X2,     CKPT_DT_BITS8,       CKPT_DT_BITS16, CKPT_DT_F8_E5M2, CKPT_DT_F8_E4M3,
        CKPT_DT_F8_E5M2FNUZ, CKPT_DT_F8_E4M3FNUZ, CKPT_DT_U16,    CKPT_DT_U32,     CKPT_DT_U64};
    const bool known = number >= 0 && (size_t)number < sizeof dtypes / sizeof dtypes[0];
    return known ? dtypes[number] : CKPT_DT_NONE;
}

int64_t ckpt_graph_script_memory_format(int64_t number) {
    static const int64_t formats[] = {1, 4, 2, 3}; /* contiguous, preserve, channels last, 3d */
    return number >= 0 && number < 4 ? formats[number] : 0;
}

#define LAYOUT_STRIDED 7 /* the schema's number; c10's is 0 */

/* A number whose argument has a name that says which enum it is of. */
static void retype(struct ckpt_text name, struct ckpt_graph_item *item) {
    if (item->kind != CKPT_GRAPH_ITEM_INT)
        return;
    if (ckpt_text_is(name, "dtype")) {
        item->kind = CKPT_GRAPH_ITEM_DTYPE;
        item->i = ckpt_graph_script_dtype(item->i);
    } else if (ckpt_text_is(name, "memory_format")) {
        item->kind = CKPT_GRAPH_ITEM_MEMORY_FORMAT;
        item->i = ckpt_graph_script_memory_format(item->i);
    } else if (ckpt_text_is(name, "layout")) {
        item->kind = CKPT_GRAPH_ITEM_LAYOUT;
        item->i = item->i == 0 ? LAYOUT_STRIDED : 0;
    }
}

static int take_text(struct script_machine *m, struct ckpt_text text, uint8_t kind,
                     struct ckpt_graph_item *out) {
    out->kind = kind;
    out->text = script_graph_text(&m->graph, text);
    return out->text.s ? 0 : script_fail_memory(m);
}

static int take_item(struct script_machine *m, const struct script_value *v,
                     struct ckpt_graph_item *out) {
    *out = (struct ckpt_graph_item){.kind = CKPT_GRAPH_ITEM_NONE};
    switch ((enum script_value_kind)v->kind) {
    case SCRIPT_VALUE_UNSET:
    case SCRIPT_VALUE_NONE:
        return 0;
    case SCRIPT_VALUE_BOOL:
        out->kind = CKPT_GRAPH_ITEM_BOOL;
        out->b = v->b;
        return 0;
    case SCRIPT_VALUE_INT:
        out->kind = CKPT_GRAPH_ITEM_INT;
        out->i = v->i;
        return 0;
    case SCRIPT_VALUE_FLOAT:
        out->kind = CKPT_GRAPH_ITEM_FLOAT;
        out->f = v->f;
        return 0;
    case SCRIPT_VALUE_TEXT:
        return take_text(m, v->text, CKPT_GRAPH_ITEM_TEXT, out);
    case SCRIPT_VALUE_DEVICE:
        return take_text(m, v->text, CKPT_GRAPH_ITEM_DEVICE, out);
    case SCRIPT_VALUE_GRAPH:
        *out = (struct ckpt_graph_item){
            .kind = CKPT_GRAPH_ITEM_VALUE, .type = v->type, .value = v->value};
        return 0;
    case SCRIPT_VALUE_LIST:
    case SCRIPT_VALUE_TUPLE:
    case SCRIPT_VALUE_DICT:
        return take_text(m, CKPT_TEXT("a list in a list"), CKPT_GRAPH_ITEM_OTHER, out);
    case SCRIPT_VALUE_OBJECT:
    case SCRIPT_VALUE_GLOBAL:
        break;
    }
    return take_text(m, CKPT_TEXT("an object"), CKPT_GRAPH_ITEM_OTHER, out);
}

static int take_items(struct script_machine *m, const struct script_value *v, size_t n,
                      struct ckpt_graph_item *item) {
    int rc = script_step(m, n / 8);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_item(m, &v[i], &item[i]);
    return rc;
}

int script_arg(struct script_machine *m, struct ckpt_text name, const struct script_value *v,
               struct ckpt_graph_arg *out) {
    const bool is_list = script_is_list(v);
    int rc = is_list ? script_list_close(m, v) : 0;
    if (rc)
        return rc;
    const size_t n = is_list ? v->list->n : 1;
    if (n > CKPT_LIMIT_GRAPH_ITEMS)
        return script_fail(m, -E2BIG, "a list of more than %u (limit of items)",
                           CKPT_LIMIT_GRAPH_ITEMS);
    struct ckpt_graph_item *const item = ckpt_arena_array(&m->graph.graph->arena, n, sizeof *item);
    *out =
        (struct ckpt_graph_arg){.name = name.n ? script_graph_text(&m->graph, name) : CKPT_TEXT(""),
                                .is_list = is_list,
                                .n = (uint32_t)n,
                                .item = item};
    if (!item || !out->name.s)
        return script_graph_fail_memory(&m->graph);
    rc = take_items(m, is_list ? v->list->item : v, n, item);
    if (rc == 0 && !is_list)
        retype(out->name, item);
    return rc;
}
