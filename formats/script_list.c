/* Lists, tuples and dicts of a script. One that a node made grows as its items are asked for, since
 * how long it is only a run knows. */
#include <errno.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/script_machine.h"

bool script_is_list(const struct script_value *v) {
    return v->kind == SCRIPT_VALUE_LIST || v->kind == SCRIPT_VALUE_TUPLE;
}

int script_list_new(struct script_machine *m, enum script_value_kind kind, size_t n,
                    struct script_value *out) {
    struct script_list *const list = ckpt_arena_alloc(&m->arena, sizeof *list);
    struct script_value *const item = ckpt_arena_array(&m->arena, n, sizeof *item);
    if (!list || !item)
        return script_fail_memory(m);
    *list = (struct script_list){.item = item, .n = n, .cap = n, .node = CKPT_GRAPH_NONE};
    *out = (struct script_value){.kind = (uint8_t)kind, .list = list};
    return 0;
}

int script_list_append(struct script_machine *m, struct script_list *list,
                       struct script_value item) {
    if (list->n == CKPT_LIMIT_GRAPH_ITEMS)
        return script_fail(m, -E2BIG, "a list of more than %u (limit of items)",
                           CKPT_LIMIT_GRAPH_ITEMS);
    if (list->n == list->cap) {
        const size_t bigger = list->cap ? 2 * list->cap : 8;
        struct script_value *const place = ckpt_arena_array(&m->arena, bigger, sizeof *place);
        if (!place)
            return script_fail_memory(m);
        if (list->n)
            memcpy(place, list->item, list->n * sizeof *place);
        list->item = place;
        list->cap = bigger;
    }
    list->item[list->n++] = item;
    return 0;
}

/* Makes an open list n items long. */
static int extend(struct script_machine *m, struct script_list *list, size_t n) {
    if (n > CKPT_LIMIT_GRAPH_ITEMS)
        return script_fail(m, -E2BIG, "item %zu of a list (limit of items: %u)", n - 1,
                           CKPT_LIMIT_GRAPH_ITEMS);
    int rc = script_step(m, n);
    if (rc == 0)
        rc = script_graph_set_outs(&m->graph, list->node, list->type, (uint32_t)n, true);
    for (size_t i = list->n; rc == 0 && i < n; i++) {
        const struct ckpt_graph_node *const node = &m->graph.graph->node[list->node];
        struct script_value item =
            script_graph_value(node->out[0].item[i].value, (enum ckpt_graph_type)list->type);
        item.integral = list->type == CKPT_GRAPH_SYM_INT;
        rc = script_list_append(m, list, item);
    }
    return rc;
}

int script_list_close(const struct script_machine *m, const struct script_value *v) {
    if (v->list->is_open)
        return script_fail(
            m, -EOPNOTSUPP,
            "only a run of the model knows how long this list is (it comes from %.*s)",
            CKPT_TEXT_ARGS(m->graph.graph->node[v->list->node].op));
    return 0;
}

int script_list_get(struct script_machine *m, const struct script_value *v, int64_t index,
                    struct script_value *out) {
    struct script_list *const list = v->list;
    int rc = 0;
    if (index < 0)
        rc = script_list_close(m, v);
    if (rc == 0 && index < 0)
        index += (int64_t)list->n;
    if (rc == 0 && list->is_open && (uint64_t)index >= list->n)
        rc = extend(m, list, (size_t)index + 1);
    if (rc)
        return rc;
    if ((uint64_t)index >= list->n)
        return script_fail(m, -EINVAL, "item %lld of a list of %zu", (long long)index, list->n);
    *out = list->item[index];
    return 0;
}

int script_list_expect(struct script_machine *m, const struct script_value *v, size_t n) {
    if (!script_is_list(v))
        return script_fail(m, -EINVAL, "%zu values are taken from what is no list", n);
    if (v->list->is_open && n >= v->list->n) {
        const int rc = extend(m, v->list, n);
        if (rc)
            return rc;
        v->list->is_open = false;
    }
    if (v->list->n != n)
        return script_fail(m, -EINVAL, "%zu values are taken from a list of %zu", n, v->list->n);
    return 0;
}
