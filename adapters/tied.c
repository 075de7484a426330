/*
 * Tied tensors: several names for one range of a storage (an embedding and the head that shares
 * it). Found by the source's canonical walk, which is unique for a sequence of bytes; each may show
 * it in its own layout.
 */
#include <errno.h>
#include <string.h>

#include "adapters/build.h"

/* What identifies the bytes a source shows, as a text to look up. */
static int signature(const struct ckpt_tensor *t, struct ckpt_arena *a, struct ckpt_text *out,
                     struct ckpt_err *err) {
    struct ckpt_view v;
    const int rc = ckpt_view_init(&v, t, err);
    if (rc)
        return rc;
    if (ckpt_view_count(&v) == 0) {
        *out = CKPT_TEXT(""); /* no bytes are shared */
        return 0;
    }
    const int64_t head[] = {t->blob->id, v.offset, v.esize};
    const size_t pairs = v.npairs * sizeof v.pair[0];
    char *s = ckpt_arena_alloc(a, sizeof head + pairs);
    if (!s)
        return ckpt_fail_memory(err, "looking for tied tensors");
    memcpy(s, head, sizeof head);
    memcpy(s + sizeof head, v.pair, pairs);
    *out = (struct ckpt_text){s, sizeof head + pairs};
    return 0;
}

/* next[i]: the next tensor with the same bytes, round in a circle. */
static int link_equals(struct ckpt_build *b, struct ckpt_arena *scratch, size_t *next) {
    const struct ckpt_model *m = b->model;
    CKPT_AUTO(strmap) struct ckpt_strmap first = {0};
    for (size_t i = 0; i < m->ntensors; i++) {
        struct ckpt_text bytes;
        next[i] = i;
        const int rc = signature(m->tensor[i].source, scratch, &bytes, b->err);
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

static bool is_tied(const struct ckpt_model *m, size_t i, size_t j) {
    /* Targets made of one source are its pieces, not ties. */
    return m->tensor[i].source != m->tensor[j].source;
}

/* The first names in the circle that starts behind i; all of them would take room quadratic in
 * their number, which a file chooses. *ncut counts the tensors whose list was cut. */
static int list_ties(struct ckpt_model *m, const size_t *next, size_t i, size_t *ncut) {
    struct ckpt_text found[CKPT_LIMIT_TIES_LISTED];
    struct ckpt_adapted *t = &m->tensor[i];
    size_t n = 0, walked = 0;
    size_t j = next[i];
    for (; j != i && n < CKPT_LIMIT_TIES_LISTED && walked < CKPT_LIMIT_TIES_LISTED * 16;
         j = next[j], walked++)
        if (is_tied(m, i, j))
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
    return 0;
}

int ckpt_find_ties(struct ckpt_build *b) {
    struct ckpt_model *m = b->model;
    size_t *next = ckpt_arena_array(&m->arena, m->ntensors, sizeof *next);
    if (!next)
        return ckpt_fail_memory(b->err, "looking for tied tensors");
    struct ckpt_arena scratch = {0};
    const int rc = link_equals(b, &scratch, next);
    ckpt_arena_fini(&scratch);
    if (rc)
        return rc;
    size_t ncut = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        const int listed = list_ties(m, next, i, &ncut);
        if (listed)
            return ckpt_fail_memory(b->err, "looking for tied tensors");
    }
    return ncut == 0 ? 0
                     : ckpt_build_warn(b,
                                       "%zu tensors are tied to more than %u others, of which %u "
                                       "are listed (limit of listed ties)",
                                       ncut, CKPT_LIMIT_TIES_LISTED, CKPT_LIMIT_TIES_LISTED);
}
