/*
 * Arguments: objects of one member, whose key says what the value is. One row a key; a list is read
 * with the row of its elements.
 */
#include "formats/graph_read.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/json_walk.h"
#include "formats/limits.h"

typedef int read_item(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out);

/* --- items ------------------------------------------------------------------------------------ */

static int take_text(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    if (token != CKPT_JSON_STRING)
        return ckpt_json_unexpected(&r->json, token, "an argument", "a string");
    out->text = ckpt_text_copy(&r->graph->arena, r->json.text.s, r->json.text.n);
    return out->text.s ? 0 : ckpt_graph_fail_memory(r);
}

/* A member's reader wants one argument; this is it. */
struct target {
    struct ckpt_graph_reader *r;
    struct ckpt_graph_item *out;
    bool has_name;
};

/* {"name": "x"}, beside which a custom object has its class. */
static int name_member(void *user, struct ckpt_text key) {
    struct target *t = user;
    if (!ckpt_text_is(key, "name"))
        return ckpt_json_read_nothing(&t->r->json);
    t->has_name = true;
    t->out->kind = CKPT_GRAPH_ITEM_NAME;
    return take_text(t->r, ckpt_json_next(&t->r->json), t->out);
}

static int read_named(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    struct target t = {.r = r, .out = out};
    const int rc = ckpt_json_take_object(&r->json, token, "a reference", name_member, &t);
    if (rc == 0 && !t.has_name)
        return ckpt_fail(r->err, -EINVAL, "a reference without a name before byte %zu", r->json.at);
    return rc;
}

static int read_none(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    out->kind = CKPT_GRAPH_ITEM_NONE;
    return ckpt_json_skip(&r->json, token);
}

/* {"as_tensor": {"name": ...}} or {"as_none": ...} */
static int optional_member(void *user, struct ckpt_text key) {
    struct target *t = user;
    const int token = ckpt_json_next(&t->r->json);
    t->has_name = true;
    return (ckpt_text_is(key, "as_tensor") ? read_named : read_none)(t->r, token, t->out);
}

static int read_optional(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    struct target t = {.r = r, .out = out};
    out->kind = CKPT_GRAPH_ITEM_NONE;
    return ckpt_json_take_object(&r->json, token, "an optional tensor", optional_member, &t);
}

static int read_int(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    return ckpt_json_take_int(&r->json, token, "an argument", &out->i);
}

static int read_dtype(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    const int rc = read_int(r, token, out);
    if (rc == 0)
        out->i = ckpt_export_dtype(out->i);
    return rc;
}

static int read_bool(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    if (token != CKPT_JSON_TRUE && token != CKPT_JSON_FALSE)
        return ckpt_json_unexpected(&r->json, token, "an argument", "true or false");
    out->b = token == CKPT_JSON_TRUE;
    return 0;
}

/* A number, or one of the three that JSON has no number for, as a string. */
static int read_float(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    const struct ckpt_json *j = &r->json;
    if (token == CKPT_JSON_INT)
        out->f = j->negative ? (double)j->i : (double)j->u;
    else if (token == CKPT_JSON_NUMBER)
        out->f = j->number;
    else if (token == CKPT_JSON_STRING && ckpt_text_is(j->text, "Infinity"))
        out->f = (double)INFINITY;
    else if (token == CKPT_JSON_STRING && ckpt_text_is(j->text, "-Infinity"))
        out->f = -(double)INFINITY;
    else if (token == CKPT_JSON_STRING && ckpt_text_is(j->text, "NaN"))
        out->f = (double)NAN;
    else
        return ckpt_json_unexpected(&r->json, token, "an argument", "a number");
    return 0;
}

/* {"type": "cuda", "index": 0}: which one does not matter to us. */
static int device_member(void *user, struct ckpt_text key) {
    struct target *t = user;
    if (!ckpt_text_is(key, "type"))
        return ckpt_json_read_nothing(&t->r->json);
    return take_text(t->r, ckpt_json_next(&t->r->json), t->out);
}

static int read_device(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    struct target t = {.r = r, .out = out};
    out->text = CKPT_TEXT("");
    return ckpt_json_take_object(&r->json, token, "a device", device_member, &t);
}

/* {"as_name": "s0"}, or the number or bool itself. */
static int symbol_member(void *user, struct ckpt_text key) {
    struct target *t = user;
    struct ckpt_graph_reader *r = t->r;
    const int token = ckpt_json_next(&r->json);
    t->has_name = true;
    if (ckpt_text_is(key, "as_name")) {
        t->out->kind = CKPT_GRAPH_ITEM_NAME;
        return take_text(r, token, t->out);
    }
    if (ckpt_text_is(key, "as_int")) {
        t->out->kind = CKPT_GRAPH_ITEM_INT;
        return read_int(r, token, t->out);
    }
    if (ckpt_text_is(key, "as_float")) {
        t->out->kind = CKPT_GRAPH_ITEM_FLOAT;
        return read_float(r, token, t->out);
    }
    if (ckpt_text_is(key, "as_bool")) {
        t->out->kind = CKPT_GRAPH_ITEM_BOOL;
        return read_bool(r, token, t->out);
    }
    return ckpt_fail(r->err, -EINVAL, "an unknown kind of symbol, \"%.*s\"", CKPT_TEXT_ARGS(key));
}

static int read_symbol(struct ckpt_graph_reader *r, int token, struct ckpt_graph_item *out) {
    struct target t = {.r = r, .out = out};
    const int rc = ckpt_json_take_object(&r->json, token, "a symbol", symbol_member, &t);
    if (rc == 0 && !t.has_name)
        return ckpt_fail(r->err, -EINVAL, "a symbol without a value before byte %zu", r->json.at);
    return rc;
}

/* --- arguments -------------------------------------------------------------------------------- */

static const struct arg_row {
    const char *key, *list_key; /* of one item; of a list of them; NULL: there is none */
    read_item *read;
    uint8_t kind, type;
} rows[] = {
    {"as_tensor", "as_tensors", read_named, CKPT_GRAPH_ITEM_NAME, CKPT_GRAPH_TENSOR},
    {"as_optional_tensor", "as_optional_tensors", read_optional, CKPT_GRAPH_ITEM_NAME,
     CKPT_GRAPH_TENSOR},
    {"as_none", NULL, read_none, CKPT_GRAPH_ITEM_NONE, 0},
    {"as_int", "as_ints", read_int, CKPT_GRAPH_ITEM_INT, 0},
    {"as_float", "as_floats", read_float, CKPT_GRAPH_ITEM_FLOAT, 0},
    {"as_bool", "as_bools", read_bool, CKPT_GRAPH_ITEM_BOOL, 0},
    {"as_string", "as_strings", take_text, CKPT_GRAPH_ITEM_TEXT, 0},
    {"as_sym_int", "as_sym_ints", read_symbol, CKPT_GRAPH_ITEM_NAME, CKPT_GRAPH_SYM_INT},
    {"as_sym_float", "as_sym_floats", read_symbol, CKPT_GRAPH_ITEM_NAME, CKPT_GRAPH_SYM_FLOAT},
    {"as_sym_bool", "as_sym_bools", read_symbol, CKPT_GRAPH_ITEM_NAME, CKPT_GRAPH_SYM_BOOL},
    {"as_scalar_type", NULL, read_dtype, CKPT_GRAPH_ITEM_DTYPE, 0},
    {"as_memory_format", NULL, read_int, CKPT_GRAPH_ITEM_MEMORY_FORMAT, 0},
    {"as_layout", NULL, read_int, CKPT_GRAPH_ITEM_LAYOUT, 0},
    {"as_device", NULL, read_device, CKPT_GRAPH_ITEM_DEVICE, 0},
    {"as_custom_obj", NULL, read_named, CKPT_GRAPH_ITEM_NAME, CKPT_GRAPH_OBJECT},
};

static const struct arg_row *find_row(struct ckpt_text key, bool *is_list) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        *is_list = rows[i].list_key && ckpt_text_is(key, rows[i].list_key);
        if (*is_list || ckpt_text_is(key, rows[i].key))
            return &rows[i];
    }
    return NULL;
}

static int add_item(struct ckpt_graph_reader *r, const struct arg_row *row, int token) {
    if (r->nitems == CKPT_LIMIT_GRAPH_ITEMS)
        return ckpt_graph_fail_items(r);
    if (!ckpt_array_grow(&r->item, r->nitems, &r->items_cap, sizeof *r->item))
        return ckpt_graph_fail_memory(r);
    struct ckpt_graph_item *item = &r->item[r->nitems++];
    *item = (struct ckpt_graph_item){.kind = row->kind, .type = row->type};
    return row->read(r, token, item);
}

/* The argument whose object is being read. */
struct open_arg {
    struct ckpt_graph_reader *r;
    const struct arg_row *row;
    struct ckpt_graph_arg *out;
    unsigned members;
};

static int list_element(void *user, int token) {
    const struct open_arg *open = user;
    return add_item(open->r, open->row, token);
}

/* A kind of argument that we do not read: remembered by its name. */
static int take_other(struct ckpt_graph_reader *r, struct ckpt_text key) {
    const struct arg_row other = {.read = read_none};
    const struct ckpt_text copy = ckpt_text_copy(&r->graph->arena, key.s, key.n);
    const int rc =
        copy.s ? add_item(r, &other, ckpt_json_next(&r->json)) : ckpt_graph_fail_memory(r);
    if (rc)
        return rc;
    r->item[0].kind = CKPT_GRAPH_ITEM_OTHER;
    r->item[0].text = copy;
    return 0;
}

static int arg_member(void *user, struct ckpt_text key) {
    struct open_arg *open = user;
    struct ckpt_graph_reader *r = open->r;
    if (open->members++ > 0)
        return ckpt_fail(r->err, -EINVAL, "an argument of two kinds at byte %zu", r->json.at);
    open->row = find_row(key, &open->out->is_list);
    if (!open->row)
        return take_other(r, key);
    if (open->out->is_list)
        return ckpt_json_read_array(&r->json, "an argument", list_element, open);
    return add_item(r, open->row, ckpt_json_next(&r->json));
}

int ckpt_graph_take_arg(struct ckpt_graph_reader *r, int token, struct ckpt_graph_arg *out) {
    struct open_arg open = {.r = r, .out = out};
    *out = (struct ckpt_graph_arg){.name = CKPT_TEXT("")};
    r->nitems = 0;
    const int rc = ckpt_json_take_object(&r->json, token, "an argument", arg_member, &open);
    if (rc)
        return rc;
    if (open.members == 0)
        return ckpt_fail(r->err, -EINVAL, "an argument without a kind before byte %zu", r->json.at);
    struct ckpt_graph_item *items = ckpt_arena_array(&r->graph->arena, r->nitems, sizeof *items);
    if (!items)
        return ckpt_graph_fail_memory(r);
    if (r->nitems)
        memcpy(items, r->item, r->nitems * sizeof *items);
    out->item = items;
    out->n = (uint32_t)r->nitems;
    return 0;
}

int ckpt_graph_read_arg(struct ckpt_graph_reader *r, struct ckpt_graph_arg *out) {
    return ckpt_graph_take_arg(r, ckpt_json_next(&r->json), out);
}
