/*
 * Ties. Where the graph's own file has one tensor under two names, the checkpoint must not have two
 * different ones: whichever the graph reads, some module has lost its weights.
 *
 *     graph's file     embed.weight ─┬─ storage 3       checkpoint   embed.weight ── a
 *                      head.weight ──┘                               head.weight ─── b, not a
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/graph_params.h"

/* Where a tensor lies, as a key. */
struct place {
    const struct ckpt_blob *blob;
    uint64_t offset;
};

/* Whether the one found first at the same place is another tensor in the checkpoint. */
static int check_tie(struct ckpt_graph_params *all, size_t first, size_t at, struct ckpt_err *err) {
    const struct ckpt_graph_param *const p = &all->at[first], *const q = &all->at[at];
    const struct ckpt_tensor *const a = ckpt_graph_param_source(p);
    const struct ckpt_tensor *const b = ckpt_graph_param_source(q);
    bool differs = false;
    if (a == b || !ckpt_graph_param_tied(p->own, q->own))
        return 0;
    const int rc = ckpt_source_differs(a, b, &differs, err);
    if (rc == 0 && differs && all->broken_ties++ == 0) {
        all->broken[0] = p->input->name;
        all->broken[1] = q->input->name;
    }
    return rc;
}

int ckpt_graph_params_check_ties(struct ckpt_graph_params *all, struct ckpt_err *err) {
    CKPT_AUTO(strmap) struct ckpt_strmap seen = {0};
    struct place *const place = ckpt_arena_array(&all->arena, all->n, sizeof(*place));
    int rc = place ? 0 : ckpt_fail_memory(err, "reading the graph");
    for (size_t i = 0; rc == 0 && i < all->n; i++) {
        size_t first;
        if (!all->at[i].own || !ckpt_graph_param_source(&all->at[i]))
            continue;
        memset(&place[i], 0, sizeof(place[i]));
        place[i].blob = all->at[i].own->blob;
        place[i].offset = all->at[i].own->offset;
        const struct ckpt_text key = {(const char *)&place[i], sizeof(place[i])};
        rc = ckpt_strmap_add(&seen, key, i, &first);
        if (rc == -EEXIST)
            rc = check_tie(all, first, i, err);
        else if (rc == -ENOMEM)
            rc = ckpt_fail_memory(err, "reading the graph");
    }
    return rc;
}
