#ifndef CKPT_FUZZ_GRAPH_SAME_H
#define CKPT_FUZZ_GRAPH_SAME_H
/* Two readings of one graph give the same. */
#include <string.h>

#include "formats/graph.h"

static inline bool same_item(const struct ckpt_graph_item *a, const struct ckpt_graph_item *b) {
    if (a->kind != b->kind || a->type != b->type)
        return false;
    switch ((enum ckpt_graph_item_kind)a->kind) {
    case CKPT_GRAPH_ITEM_NONE:
        return true;
    case CKPT_GRAPH_ITEM_VALUE:
        return a->value == b->value;
    case CKPT_GRAPH_ITEM_BOOL:
        return a->b == b->b;
    case CKPT_GRAPH_ITEM_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case CKPT_GRAPH_ITEM_INT:
    case CKPT_GRAPH_ITEM_DTYPE:
    case CKPT_GRAPH_ITEM_LAYOUT:
    case CKPT_GRAPH_ITEM_MEMORY_FORMAT:
        return a->i == b->i;
    case CKPT_GRAPH_ITEM_TEXT:
    case CKPT_GRAPH_ITEM_DEVICE:
    case CKPT_GRAPH_ITEM_OTHER:
        return ckpt_text_eq(a->text, b->text);
    case CKPT_GRAPH_ITEM_NAME:
        break;
    }
    return false; /* a name that nobody looked up */
}

#endif
