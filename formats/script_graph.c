#include "formats/script_graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/limits.h"

void script_graph_fini(struct script_graph *b) {
    ckpt_strmap_fini(&b->by_input);
    ckpt_strmap_fini(&b->by_stack);
    ckpt_strmap_fini(&b->by_text);
    free(b->text);
}

int script_graph_fail_memory(const struct script_graph *b) {
    return ckpt_fail(b->err, -E2BIG,
                     "it needs more memory than there is, or than the %u bytes that the graph of a "
                     "script may take (limit of a script's memory)",
                     CKPT_LIMIT_SCRIPT_ARENA);
}

static int fail_items(const struct script_graph *b, const char *what) {
    return ckpt_fail(b->err, -E2BIG, "more than %u %s (limit of items)", CKPT_LIMIT_GRAPH_ITEMS,
                     what);
}

struct ckpt_text script_graph_text(struct script_graph *b, struct ckpt_text text) {
    static const struct ckpt_text none = {NULL, 0};
    const size_t known = ckpt_strmap_get(&b->by_text, text);
    if (known != CKPT_STRMAP_ABSENT)
        return b->text[known];
    const struct ckpt_text copy = ckpt_text_copy(&b->graph->arena, text.s, text.n);
    if (!copy.s || !ckpt_array_grow(&b->text, b->ntexts, &b->texts_cap, sizeof *b->text) ||
        ckpt_strmap_add(&b->by_text, copy, b->ntexts, NULL))
        return none;
    b->text[b->ntexts++] = copy;
    return copy;
}

/* --- values and inputs ------------------------------------------------------------------------ */

static int add_value(struct script_graph *b, struct ckpt_text name, enum ckpt_graph_type type,
                     uint32_t node, uint32_t *value) {
    struct ckpt_graph *const g = b->graph;
    if (g->nvalues == CKPT_GRAPH_NONE ||
        !ckpt_array_grow(&g->value, g->nvalues, &b->values_cap, sizeof *g->value))
        return script_graph_fail_memory(b);
    g->value[g->nvalues] = (struct ckpt_graph_value){.name = name, .type = type, .node = node};
    *value = (uint32_t)g->nvalues++;
    return 0;
}

/* One value as an argument, in the arena. */
static struct ckpt_graph_item *new_items(struct script_graph *b, uint32_t n) {
    return ckpt_arena_array(&b->graph->arena, n, sizeof(struct ckpt_graph_item));
}

static struct ckpt_graph_item value_item(enum ckpt_graph_type type, uint32_t value) {
    return (struct ckpt_graph_item){
        .kind = CKPT_GRAPH_ITEM_VALUE, .type = (uint8_t)type, .value = value};
}

int script_graph_add_input(struct script_graph *b, enum ckpt_graph_role role, const char *kind,
                           struct ckpt_text name, enum ckpt_graph_type type, uint32_t *value) {
    struct ckpt_graph *const g = b->graph;
    struct ckpt_graph_item *const item = new_items(b, 1);
    name = ckpt_text_copy(&g->arena, name.s, name.n);
    if (g->ninputs == CKPT_LIMIT_GRAPH_ITEMS)
        return fail_items(b, "inputs");
    if (!item || !name.s ||
        !ckpt_array_grow(&g->input, g->ninputs, &b->inputs_cap, sizeof *g->input))
        return script_graph_fail_memory(b);
    const int rc = add_value(b, name, type, CKPT_GRAPH_NONE, value);
    if (rc)
        return rc;
    *item = value_item(type, *value);
    g->input[g->ninputs++] = (struct ckpt_graph_input){
        .role = role,
        .kind = ckpt_text_of(kind),
        .name = role == CKPT_GRAPH_USER ? CKPT_TEXT("") : name,
        .persistent = role == CKPT_GRAPH_BUFFER,
        .arg = {.name = CKPT_TEXT(""), .n = 1, .item = item},
    };
    return 0;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* "aten.linear" is all of the name that a script gives: which overload, its arguments tell. */
int script_graph_add_node(struct script_graph *b, struct ckpt_text op,
                          const struct ckpt_graph_arg *arg, uint32_t nargs,
                          const struct ckpt_graph_stack *stack, uint32_t *node) {
    static const struct ckpt_graph_stack nothing_known;
    struct ckpt_graph *const g = b->graph;
    op = script_graph_text(b, op);
    if (g->nnodes == CKPT_LIMIT_GRAPH_NODES)
        return ckpt_fail(b->err, -E2BIG, "more than %u nodes (limit of nodes)",
                         CKPT_LIMIT_GRAPH_NODES);
    if (!op.s || !ckpt_array_grow(&g->node, g->nnodes, &b->nodes_cap, sizeof *g->node))
        return script_graph_fail_memory(b);
    g->node[g->nnodes] = (struct ckpt_graph_node){
        .op = op, .base = op, .nargs = nargs, .arg = arg, .stack = stack ? stack : &nothing_known};
    *node = (uint32_t)g->nnodes++;
    return 0;
}

/* The items of outputs old and new: the first nold are kept. */
static int fill_outs(struct script_graph *b, uint32_t node, enum ckpt_graph_type type,
                     struct ckpt_graph_item *item, uint32_t nold, uint32_t n) {
    for (uint32_t i = nold; i < n; i++) {
        char name[32];
        uint32_t value = CKPT_GRAPH_NONE;
        snprintf(name, sizeof name, "v%zu", b->graph->nvalues);
        const struct ckpt_text copy = ckpt_text_copy(&b->graph->arena, name, strlen(name));
        const int rc =
            copy.s ? add_value(b, copy, type, node, &value) : script_graph_fail_memory(b);
        if (rc)
            return rc;
        item[i] = value_item(type, value);
    }
    return 0;
}

int script_graph_set_outs(struct script_graph *b, uint32_t node, enum ckpt_graph_type type,
                          uint32_t n, bool is_list) {
    struct ckpt_graph_node *const made = &b->graph->node[node];
    const uint32_t nargs = is_list ? 1 : n, nold = is_list && made->nouts ? made->out[0].n : 0;
    struct ckpt_graph_arg *const out = ckpt_arena_array(&b->graph->arena, nargs, sizeof *out);
    struct ckpt_graph_item *const item = new_items(b, n);
    if (n > (is_list ? CKPT_LIMIT_GRAPH_ITEMS : CKPT_LIMIT_GRAPH_ARGS))
        return fail_items(b, "outputs of a node");
    if (!out || !item)
        return script_graph_fail_memory(b);
    if (nold)
        memcpy(item, made->out[0].item, nold * sizeof *item);
    const int rc = fill_outs(b, node, type, item, nold, n);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < nargs; i++)
        out[i] = (struct ckpt_graph_arg){
            .name = CKPT_TEXT(""), .is_list = is_list, .n = is_list ? n : 1, .item = &item[i]};
    made->out = out;
    made->nouts = nargs;
    return 0;
}

int script_graph_add_output(struct script_graph *b, enum ckpt_graph_role role, const char *kind,
                            struct ckpt_graph_arg arg) {
    struct ckpt_graph *const g = b->graph;
    if (g->noutputs == CKPT_LIMIT_GRAPH_ITEMS)
        return fail_items(b, "outputs");
    if (!ckpt_array_grow(&g->output, g->noutputs, &b->outputs_cap, sizeof *g->output))
        return script_graph_fail_memory(b);
    g->output[g->noutputs++] =
        (struct ckpt_graph_output){.role = role, .kind = ckpt_text_of(kind), .arg = arg};
    return 0;
}

/* --- module stacks ---------------------------------------------------------------------------- */

static struct ckpt_graph_stack *new_stack(struct script_graph *b,
                                          const struct ckpt_graph_stack *below,
                                          struct ckpt_text path, struct ckpt_text cls) {
    struct ckpt_arena *const a = &b->graph->arena;
    const uint32_t n = below ? below->n : 0;
    struct ckpt_graph_stack *const stack = ckpt_arena_alloc(a, sizeof *stack);
    struct ckpt_graph_frame *const frame = ckpt_arena_array(a, n + 1, sizeof *frame);
    if (!stack || !frame)
        return NULL;
    if (n)
        memcpy(frame, below->frame, n * sizeof *frame);
    frame[n] = (struct ckpt_graph_frame){script_graph_text(b, path), script_graph_text(b, cls)};
    *stack = (struct ckpt_graph_stack){n + 1, frame};
    return frame[n].path.s && frame[n].cls.s ? stack : NULL;
}

int script_graph_push_stack(struct script_graph *b, const struct ckpt_graph_stack *below,
                            struct ckpt_text path, struct ckpt_text cls,
                            const struct ckpt_graph_stack **out) {
    struct ckpt_graph *const g = b->graph;
    CKPT_AUTO(str) struct ckpt_str key = {0}; /* the place of the one below is its name */
    ckpt_str_printf(&key, "%p ", (const void *)below);
    ckpt_str_add(&key, path.s, path.n);
    if (key.failed)
        return script_graph_fail_memory(b);
    const size_t known = ckpt_strmap_get(&b->by_stack, ckpt_str_text(&key));
    if (known != CKPT_STRMAP_ABSENT) {
        *out = g->stack[known];
        return 0;
    }
    const struct ckpt_text copy = ckpt_text_copy(&g->arena, key.s, key.n);
    struct ckpt_graph_stack *const stack = copy.s ? new_stack(b, below, path, cls) : NULL;
    if (!stack || !ckpt_array_grow(&g->stack, g->nstacks, &b->stacks_cap, sizeof(g->stack[0])) ||
        ckpt_strmap_add(&b->by_stack, copy, g->nstacks, NULL))
        return script_graph_fail_memory(b);
    g->stack[g->nstacks++] = *out = stack;
    return 0;
}
