/*
 * Operations: what all operands of are known is computed here where that decides something
 * (script_fold.c); all else becomes a node. A script does not say what a node makes, so a table
 * has those operations that make anything but one tensor.
 */
#include <errno.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/script_machine.h"

enum result {
    RESULT_TENSOR,
    RESULT_TENSORS, /* a list whose length only a run knows */
    RESULT_WHERE,   /* such a list, or where it chooses between two operands a tensor */
    RESULT_INT,
    RESULT_INTS,
    RESULT_FLOAT,
    RESULT_BOOL,
    RESULT_SIZE,    /* an int, or without a dimension all of them */
    RESULT_SCALAR,  /* a number of the tensor's kind */
    RESULT_NUMBER,  /* a tensor if one is among the operands, else a number */
    RESULT_COMPARED /* the same with a truth value */
};

static const struct {
    const char *op;
    enum result result;
} results[] = {
    {"aten.chunk", RESULT_TENSORS},
    {"aten.unsafe_chunk", RESULT_TENSORS},
    {"aten.split", RESULT_TENSORS},
    {"aten.unsafe_split", RESULT_TENSORS},
    {"aten.split_with_sizes", RESULT_TENSORS},
    {"aten.unsafe_split_with_sizes", RESULT_TENSORS},
    {"aten.tensor_split", RESULT_TENSORS},
    {"aten.hsplit", RESULT_TENSORS},
    {"aten.vsplit", RESULT_TENSORS},
    {"aten.dsplit", RESULT_TENSORS},
    {"aten.unbind", RESULT_TENSORS},
    {"aten.meshgrid", RESULT_TENSORS},
    {"aten.broadcast_tensors", RESULT_TENSORS},
    {"aten.nonzero_numpy", RESULT_TENSORS},
    {"aten.where", RESULT_WHERE},
    {"aten.size", RESULT_SIZE},
    {"aten.stride", RESULT_SIZE},
    {"aten.sym_size", RESULT_SIZE},
    {"aten.dim", RESULT_INT},
    {"aten.numel", RESULT_INT},
    {"aten.len", RESULT_INT},
    {"aten.storage_offset", RESULT_INT},
    {"aten.Int", RESULT_INT},
    {"aten.IntImplicit", RESULT_INT},
    {"prim.dtype", RESULT_INT},
    {"prim.layout", RESULT_INT},
    {"aten.Float", RESULT_FLOAT},
    {"aten.FloatImplicit", RESULT_FLOAT},
    {"aten.Bool", RESULT_BOOL},
    {"aten.is_floating_point", RESULT_BOOL},
    {"aten.is_complex", RESULT_BOOL},
    {"aten.is_nonzero", RESULT_BOOL},
    {"aten.is_contiguous", RESULT_BOOL},
    {"aten.is_grad_enabled", RESULT_BOOL},
    {"aten.is_autocast_enabled", RESULT_BOOL},
    {"aten.equal", RESULT_BOOL},
    {"aten.allclose", RESULT_BOOL},
    {"aten.is_same_size", RESULT_BOOL},
    {"prim.requires_grad", RESULT_BOOL},
    {"prim.is_nested", RESULT_BOOL},
    {"aten.__is__", RESULT_BOOL},
    {"aten.__isnot__", RESULT_BOOL},
    {"aten.__not__", RESULT_BOOL},
    {"aten.__contains__", RESULT_BOOL},
    {"aten.item", RESULT_SCALAR},
    {"aten.ScalarImplicit", RESULT_SCALAR},
    {"aten.add", RESULT_NUMBER},
    {"aten.sub", RESULT_NUMBER},
    {"aten.mul", RESULT_NUMBER},
    {"aten.div", RESULT_NUMBER},
    {"aten.floordiv", RESULT_NUMBER},
    {"aten.floor_divide", RESULT_NUMBER},
    {"aten.remainder", RESULT_NUMBER},
    {"aten.neg", RESULT_NUMBER},
    {"aten.pow", RESULT_NUMBER},
    {"aten.abs", RESULT_NUMBER},
    {"aten.sqrt", RESULT_NUMBER},
    {"aten.log", RESULT_NUMBER},
    {"aten.exp", RESULT_NUMBER},
    {"aten.ceil", RESULT_NUMBER},
    {"aten.floor", RESULT_NUMBER},
    {"prim.min", RESULT_NUMBER},
    {"prim.max", RESULT_NUMBER},
    {"prim.abs", RESULT_NUMBER},
    {"aten.eq", RESULT_COMPARED},
    {"aten.ne", RESULT_COMPARED},
    {"aten.lt", RESULT_COMPARED},
    {"aten.le", RESULT_COMPARED},
    {"aten.gt", RESULT_COMPARED},
    {"aten.ge", RESULT_COMPARED},
    {"aten.__and__", RESULT_COMPARED},
    {"aten.__or__", RESULT_COMPARED},
    {"aten.__xor__", RESULT_COMPARED},
};

static enum result result_of(const char *name) {
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++)
        if (strcmp(name, results[i].op) == 0)
            return results[i].result;
    return RESULT_TENSOR;
}

/* --- what is known of the operands ------------------------------------------------------------ */

static bool is_integer(const struct script_value *v) {
    if (script_is_list(v)) {
        for (size_t i = 0; i < v->list->n; i++)
            if (!is_integer(&v->list->item[i]))
                return false;
        return true;
    }
    return v->kind == SCRIPT_VALUE_INT || v->kind == SCRIPT_VALUE_BOOL ||
           (v->kind == SCRIPT_VALUE_GRAPH && v->integral);
}

/* Whether all are integers, and so what adding them makes. */
static bool are_integers(const struct script_actuals *actuals) {
    for (uint32_t i = 0; i < actuals->n; i++)
        if (actuals->item[i].name.n == 0 && !is_integer(&actuals->item[i].value))
            return false;
    return true;
}

static bool has_tensor(const struct script_actuals *actuals) {
    for (uint32_t i = 0; i < actuals->n; i++)
        if (script_is_graph(&actuals->item[i].value, CKPT_GRAPH_TENSOR))
            return true;
    return false;
}

/* Numbers that stay integers, and so whole tensors of them. */
static bool keeps_integers(const char *name) {
    static const char *const names[] = {"aten.add",          "aten.sub",       "aten.mul",
                                        "aten.floordiv",     "aten.remainder", "aten.neg",
                                        "aten.floor_divide", "aten.abs",       "prim.min",
                                        "prim.max",          "prim.abs",       "prim.NumToTensor"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_integral(const char *name, const struct script_actuals *actuals) {
    return keeps_integers(name) && are_integers(actuals);
}

static enum ckpt_graph_type number_type(const char *name, const struct script_actuals *actuals) {
    return is_integral(name, actuals) || strcmp(name, "aten.ceil") == 0 ||
                   strcmp(name, "aten.floor") == 0
               ? CKPT_GRAPH_SYM_INT
               : CKPT_GRAPH_SYM_FLOAT;
}

/* The type of the one value, or of each in a list. */
static enum ckpt_graph_type type_of(enum result result, const char *name,
                                    const struct script_actuals *actuals) {
    switch (result) {
    case RESULT_TENSOR:
    case RESULT_TENSORS:
    case RESULT_WHERE:
        break;
    case RESULT_INT:
    case RESULT_INTS:
    case RESULT_SIZE:
        return CKPT_GRAPH_SYM_INT;
    case RESULT_FLOAT:
        return CKPT_GRAPH_SYM_FLOAT;
    case RESULT_BOOL:
        return CKPT_GRAPH_SYM_BOOL;
    case RESULT_SCALAR:
        return are_integers(actuals) ? CKPT_GRAPH_SYM_INT : CKPT_GRAPH_SYM_FLOAT;
    case RESULT_NUMBER:
        return has_tensor(actuals) ? CKPT_GRAPH_TENSOR : number_type(name, actuals);
    case RESULT_COMPARED:
        return has_tensor(actuals) ? CKPT_GRAPH_TENSOR : CKPT_GRAPH_SYM_BOOL;
    }
    return CKPT_GRAPH_TENSOR;
}

static bool makes_list(enum result result, const struct script_actuals *actuals) {
    return result == RESULT_TENSORS || result == RESULT_INTS ||
           ((result == RESULT_SIZE || result == RESULT_WHERE) && actuals->n == 1);
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* An operation in place ("aten.add_") on what belongs to the model: the graph would change it,
 * which torch.export calls a mutation, too. */
static int note_mutation(struct script_machine *m, const char *name,
                         const struct script_actuals *actuals) {
    const struct ckpt_graph *const g = m->graph.graph;
    const size_t n = strlen(name);
    const struct script_value *const v = actuals->n ? &actuals->item[0].value : NULL;
    struct ckpt_graph_arg arg;
    if (n < 2 || name[n - 1] != '_' || name[n - 2] == '_' || !v ||
        !script_is_graph(v, CKPT_GRAPH_TENSOR) || g->value[v->value].node != CKPT_GRAPH_NONE)
        return 0;
    int rc = script_step(m, g->ninputs / 16);
    for (size_t i = 0; rc == 0 && i < g->ninputs; i++) {
        if (g->input[i].arg.item[0].value != v->value || g->input[i].role == CKPT_GRAPH_USER)
            continue;
        rc = script_arg(m, CKPT_TEXT(""), v, &arg);
        return rc ? rc
                  : script_graph_add_output(&m->graph, CKPT_GRAPH_FOREIGN, "buffer_mutation", arg);
    }
    return rc;
}

static int make_node(struct script_machine *m, const char *name,
                     const struct script_actuals *actuals, uint32_t *node) {
    struct ckpt_graph_arg *const arg =
        ckpt_arena_array(&m->graph.graph->arena, actuals->n, sizeof *arg);
    if (actuals->n > CKPT_LIMIT_GRAPH_ARGS)
        return script_fail(m, -E2BIG, "%s has more than %u arguments (limit of arguments)", name,
                           CKPT_LIMIT_GRAPH_ARGS);
    int rc = arg ? note_mutation(m, name, actuals) : script_graph_fail_memory(&m->graph);
    for (uint32_t i = 0; rc == 0 && i < actuals->n; i++)
        rc = script_arg(m, actuals->item[i].name, &actuals->item[i].value, &arg[i]);
    return rc ? rc
              : script_graph_add_node(&m->graph, ckpt_text_of(name), arg, actuals->n, m->stack,
                                      node);
}

/* What the node's output i is to the script. */
static struct script_value output(const struct script_machine *m, uint32_t node, uint32_t i) {
    const struct ckpt_graph_item *const item = m->graph.graph->node[node].out[i].item;
    return script_graph_value(item->value, (enum ckpt_graph_type)item->type);
}

static int make_open_list(struct script_machine *m, uint32_t node, enum ckpt_graph_type type,
                          struct script_value *out) {
    int rc = script_graph_set_outs(&m->graph, node, type, 0, true);
    if (rc == 0)
        rc = script_list_new(m, SCRIPT_VALUE_LIST, 0, out);
    if (rc)
        return rc;
    out->list->is_open = true;
    out->list->node = node;
    out->list->type = (uint8_t)type;
    return 0;
}

/* As many tensors as the script takes of it. */
static int make_several(struct script_machine *m, uint32_t node, uint32_t n,
                        struct script_value *out) {
    int rc = script_graph_set_outs(&m->graph, node, CKPT_GRAPH_TENSOR, n, false);
    if (rc == 0)
        rc = script_list_new(m, SCRIPT_VALUE_TUPLE, n, out);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        out->list->item[i] = output(m, node, i);
    return rc;
}

int script_op_node(struct script_machine *m, const char *name, const struct script_actuals *actuals,
                   enum ckpt_graph_type type, struct script_value *out) {
    uint32_t node;
    int rc = make_node(m, name, actuals, &node);
    if (rc == 0)
        rc = script_graph_set_outs(&m->graph, node, type, 1, false);
    if (rc)
        return rc;
    *out = output(m, node, 0);
    out->integral = type == CKPT_GRAPH_SYM_INT || is_integral(name, actuals);
    return 0;
}

int script_op(struct script_machine *m, const char *name, const struct script_actuals *actuals,
              uint32_t nouts, struct script_value *out) {
    const enum result result = result_of(name);
    const enum ckpt_graph_type type = type_of(result, name, actuals);
    uint32_t node;
    bool known;
    int rc = script_fold(m, name, actuals, out, &known);
    if (rc || known)
        return rc;
    if (strcmp(name, "prim.RaiseException") == 0)
        return script_fail(m, -EOPNOTSUPP, "it raises an exception");
    if (nouts == 0 && !makes_list(result, actuals))
        return script_op_node(m, name, actuals, type, out);
    rc = make_node(m, name, actuals, &node);
    if (rc)
        return rc;
    return nouts ? make_several(m, node, nouts, out) : make_open_list(m, node, type, out);
}
