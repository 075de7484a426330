/*
 * Tensors come in the source's order, and what a stack of layers was cut from lies apart:
 *
 *     layers.0.fc  layers.1.fc  layers.0.norm  layers.1.norm
 *
 * So folders are numbered as they are first seen, and paths are sorted by these numbers; names that
 * are numbers themselves by their value.
 */
#include "fs/inspect_order.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/strmap.h"

struct places {
    const struct ckpt_model *m;
    struct ckpt_strmap seen;  /* number of what holds it, then its name -> its number */
    struct ckpt_arena arena;  /* of those keys, and the lists below */
    const size_t **of_tensor; /* for each segment of its path, its number */
    size_t next;
};

static void places_fini(struct places *p) {
    ckpt_strmap_fini(&p->seen);
    ckpt_arena_fini(&p->arena);
}
CKPT_DEFINE_AUTO(places, struct places, places_fini)

/* The number of a name in the folder of that number. */
static int number_of(struct places *p, size_t folder, struct ckpt_text name, size_t *out) {
    char *const key = ckpt_arena_alloc(&p->arena, sizeof folder + name.n);
    if (!key)
        return -1;
    memcpy(key, &folder, sizeof folder);
    memcpy(key + sizeof folder, name.s, name.n);
    *out = ++p->next;
    const struct ckpt_text text = {key, sizeof folder + name.n};
    return ckpt_strmap_add(&p->seen, text, p->next, out) == -ENOMEM ? -1 : 0;
}

static int place(struct places *p, size_t i) {
    const struct ckpt_path path = p->m->tensor[i].path;
    size_t *const number = ckpt_arena_array(&p->arena, path.n, sizeof *number);
    if (!number)
        return -1;
    for (uint32_t d = 0; d < path.n; d++)
        if (number_of(p, d ? number[d - 1] : 0, path.segment[d], &number[d]))
            return -1;
    p->of_tensor[i] = number;
    return 0;
}

/* A name of digits only, that fits. */
static bool read_number(struct ckpt_text t, uint64_t *out) {
    *out = 0;
    for (size_t i = 0; i < t.n; i++) {
        if (t.s[i] < '0' || t.s[i] > '9')
            return false;
        *out = 10 * *out + (uint64_t)(t.s[i] - '0');
    }
    return t.n > 0 && t.n < 19;
}

static int compare(const void *a, const void *b, void *to) {
    const struct places *const p = to;
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const struct ckpt_path x = p->m->tensor[i].path, y = p->m->tensor[j].path;
    for (uint32_t d = 0; d < x.n && d < y.n; d++) {
        const size_t nx = p->of_tensor[i][d], ny = p->of_tensor[j][d];
        uint64_t vx, vy;
        if (nx == ny)
            continue;
        if (read_number(x.segment[d], &vx) && read_number(y.segment[d], &vy) && vx != vy)
            return vx < vy ? -1 : 1;
        return nx < ny ? -1 : 1;
    }
    return i < j ? -1 : i > j;
}

size_t *ckpt_inspect_order(const struct ckpt_model *m) {
    CKPT_AUTO(places) struct places p = {.m = m};
    CKPT_AUTO(free) size_t *order = calloc(m->ntensors + 1, sizeof *order);
    p.of_tensor = ckpt_arena_array(&p.arena, m->ntensors, sizeof *p.of_tensor);
    if (!order || !p.of_tensor)
        return NULL;
    for (size_t i = 0; i < m->ntensors; i++) {
        order[i] = i;
        if (place(&p, i))
            return NULL;
    }
    qsort_r(order, m->ntensors, sizeof *order, compare, &p);
    return CKPT_STEAL(order);
}
