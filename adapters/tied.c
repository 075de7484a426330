/*
 * Tied tensors: several names for one range of a storage (an embedding and the head that shares
 * it). Each may show it in its own layout, so what is compared is the walk of what is shown,
 * brought into the order in which the bytes lie:
 *
 *     embedding   offset 0   (15, 4)                      (15, 4)
 *     head        offset 0   (3, 4)(5, 12)   transposed   (5, 12)(3, 4), which is (15, 4)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/build.h"

/* The walk's pairs from the largest stride to the smallest, those that adjoin made one. */
static uint32_t lie(const struct ckpt_walk *w, struct ckpt_dim *pair, int64_t *offset) {
    uint32_t n = 0, kept = 0;
    *offset = w->offset;
    for (uint32_t i = 0; i < w->npairs; i++) {
        struct ckpt_dim d = w->pair[i];
        if (d.stride < 0) {
            *offset += d.stride * (d.size - 1);
            d.stride = -d.stride;
        }
        uint32_t at = n++;
        for (; at > 0 && pair[at - 1].stride < d.stride; at--)
            pair[at] = pair[at - 1];
        pair[at] = d;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (kept && pair[kept - 1].stride == pair[i].stride * pair[i].size)
            pair[kept - 1] = (struct ckpt_dim){pair[kept - 1].size * pair[i].size, pair[i].stride};
        else
            pair[kept++] = pair[i];
    }
    return kept;
}

/* What identifies the bytes that a tensor shows, as a text to look up; empty: it shares none. */
static int signature(const struct ckpt_adapted *t, struct ckpt_arena *a, struct ckpt_text *out,
                     struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    for (uint32_t i = 0; i < t->nparts; i++) {
        const struct ckpt_part *p = &t->part[i];
        struct ckpt_dim pair[CKPT_WALK_MAX];
        if (!p->source || p->walk->count == 0)
            continue;
        int64_t head[] = {p->source->blob->id, 0, p->walk->esize, 0};
        head[3] = lie(p->walk, pair, &head[1]);
        ckpt_str_add(&s, head, sizeof head);
        ckpt_str_add(&s, pair, (size_t)head[3] * sizeof *pair);
    }
    *out = s.failed ? (struct ckpt_text){0} : ckpt_text_copy(a, s.n ? s.s : "", s.n);
    return out->s ? 0 : ckpt_fail_memory(err, "looking for tied tensors");
}

/* next[i]: the next tensor with the same bytes, round in a circle. */
static int link_equals(struct ckpt_build *b, struct ckpt_arena *scratch, size_t *next) {
    const struct ckpt_model *m = b->model;
    CKPT_AUTO(strmap) struct ckpt_strmap first = {0};
    for (size_t i = 0; i < m->ntensors; i++) {
        struct ckpt_text bytes;
        next[i] = i;
        const int rc = signature(&m->tensor[i], scratch, &bytes, b->err);
        if (rc)
            return rc;
        if (bytes.n == 0)
            continue;
        size_t other = i;
        if (ckpt_strmap_add(&first, bytes, i, &other) == -ENOMEM)
            return ckpt_fail_memory(b->err, "looking for tied tensors");
        if (other == i)
            continue;
        next[i] = next[other];
        next[other] = i;
    }
    return 0;
}

/* The first names in the circle that starts behind i; all of them would take room quadratic in
 * their number, which a file chooses. *listed counts those of all tensors, *ncut the tensors whose
 * list was cut. */
static int list_ties(struct ckpt_model *m, const size_t *next, size_t i, size_t *listed,
                     size_t *ncut) {
    const size_t left = CKPT_LIMIT_TIES - *listed;
    const size_t most = left < CKPT_LIMIT_TIES_LISTED ? left : CKPT_LIMIT_TIES_LISTED;
    struct ckpt_text found[CKPT_LIMIT_TIES_LISTED];
    struct ckpt_adapted *t = &m->tensor[i];
    size_t n = 0;
    size_t j = next[i];
    for (; j != i && n < most; j = next[j])
        found[n++] = m->tensor[j].key;
    *ncut += j != i;
    if (n == 0)
        return 0;
    struct ckpt_text *tied = ckpt_arena_array(&m->arena, n, sizeof *tied);
    if (!tied)
        return -ENOMEM;
    memcpy(tied, found, n * sizeof *tied);
    t->tied = tied;
    t->ntied = n;
    *listed += n;
    return 0;
}

int ckpt_find_ties(struct ckpt_build *b) {
    struct ckpt_model *m = b->model;
    CKPT_AUTO(free) size_t *next = calloc(m->ntensors + 1, sizeof *next);
    if (!next)
        return ckpt_fail_memory(b->err, "looking for tied tensors");
    struct ckpt_arena scratch = {0};
    const int rc = link_equals(b, &scratch, next);
    ckpt_arena_fini(&scratch);
    if (rc)
        return rc;
    size_t total = 0, ncut = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        const int listed = list_ties(m, next, i, &total, &ncut);
        if (listed)
            return ckpt_fail_memory(b->err, "looking for tied tensors");
    }
    return ncut == 0
               ? 0
               : ckpt_build_warn(b,
                                 "%zu tensors are tied to more others than are listed: %u for "
                                 "one tensor, %u in all (limit of listed ties)",
                                 ncut, CKPT_LIMIT_TIES_LISTED, CKPT_LIMIT_TIES);
}
