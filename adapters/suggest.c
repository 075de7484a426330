/*
 * Pairing two lists of names. All candidate pairs are scored once and taken greedily, best first.
 *
 * Ten thousand names each way would be 10^8 comparisons. Beyond the limit only neighbours are
 * compared (the sorted-neighbourhood method of record linkage): a renamed key keeps most of its
 * beginning, most of its end or its numbers, so sorted by one of them it lies near its partner.
 */
#include "adapters/suggest.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct pair {
    double score;
    size_t here, there;
};

struct pairs {
    struct pair *at;
    size_t n, cap;
};

static void pairs_fini(struct pairs *p) {
    free(p->at);
}
#define ckpt_auto_pairs pairs_fini

enum ckpt_suggest_shape ckpt_suggest_shape_of(const struct ckpt_suggest_item *a,
                                              const struct ckpt_suggest_item *b) {
    if (!a->shape || !b->shape)
        return CKPT_SUGGEST_UNKNOWN;
    if (a->ndim != b->ndim)
        return CKPT_SUGGEST_OTHER;
    bool same = true, reversed = true;
    for (uint32_t d = 0; d < a->ndim; d++) {
        same &= a->shape[d] == b->shape[d];
        reversed &= a->shape[d] == b->shape[a->ndim - 1 - d];
    }
    return same ? CKPT_SUGGEST_SAME : reversed ? CKPT_SUGGEST_TRANSPOSED : CKPT_SUGGEST_OTHER;
}

/* The digits of two names, as memcmp: layers.1 and layers.11 look alike and never are the same. */
static int compare_numbers(struct ckpt_text a, struct ckpt_text b) {
    size_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a.n && !isdigit((unsigned char)a.s[i]))
            i++;
        while (j < b.n && !isdigit((unsigned char)b.s[j]))
            j++;
        if (i == a.n || j == b.n)
            return (i < a.n) - (j < b.n);
        if (a.s[i] != b.s[j])
            return a.s[i] < b.s[j] ? -1 : 1;
    }
}

static struct ckpt_text last_name(struct ckpt_text key, struct ckpt_text *rest) {
    const char *dot = memrchr(key.s, '.', key.n);
    const size_t n = dot ? (size_t)(dot - key.s) : 0;
    *rest = (struct ckpt_text){key.s, n};
    return (struct ckpt_text){key.s + n + (dot != NULL), key.n - n - (dot != NULL)};
}

static size_t count_dots(struct ckpt_text t) {
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++)
        n += t.s[i] == '.';
    return n;
}

/* Without its first n segments. */
static struct ckpt_text without_first(struct ckpt_text t, size_t n) {
    for (; n > 0; n--) {
        const char *dot = memchr(t.s, '.', t.n);
        const size_t skip = (size_t)(dot - t.s) + 1;
        t = (struct ckpt_text){t.s + skip, t.n - skip};
    }
    return t;
}

/* A prefix in front of all keys is the commonest difference: then what stands behind counts. */
static double path_similarity(struct ckpt_text a, struct ckpt_text b) {
    const double whole = ckpt_text_similarity(a, b);
    const size_t dots_a = count_dots(a), dots_b = count_dots(b);
    if (dots_a == dots_b)
        return whole;
    const double tails = dots_a > dots_b
                             ? ckpt_text_similarity(without_first(a, dots_a - dots_b), b)
                             : ckpt_text_similarity(a, without_first(b, dots_b - dots_a));
    return whole > 0.95 * tails ? whole : 0.95 * tails;
}

/* Most keys end in "weight" or "bias": that they do says little, what stands before says more. */
static double similarity_of(struct ckpt_text a, struct ckpt_text b) {
    struct ckpt_text rest_a, rest_b;
    const struct ckpt_text last_a = last_name(a, &rest_a), last_b = last_name(b, &rest_b);
    if (rest_a.n == 0 || rest_b.n == 0)
        return ckpt_text_similarity(a, b);
    return 0.7 * path_similarity(rest_a, rest_b) + 0.3 * ckpt_text_similarity(last_a, last_b);
}

/* Similarity less what speaks against the pair. */
static double score_of(const struct ckpt_suggest_item *a, const struct ckpt_suggest_item *b) {
    static const double against[] = {[CKPT_SUGGEST_SAME] = 0,
                                     [CKPT_SUGGEST_TRANSPOSED] = 0.03,
                                     [CKPT_SUGGEST_UNKNOWN] = 0.03,
                                     [CKPT_SUGGEST_OTHER] = 0.15};
    const double score = similarity_of(a->name, b->name) - against[ckpt_suggest_shape_of(a, b)];
    return compare_numbers(a->name, b->name) == 0 ? score : score - 0.05;
}

static int add(struct pairs *p, struct pair pair) {
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 256;
        struct pair *bigger = realloc(p->at, cap * sizeof *bigger);
        if (!bigger)
            return -ENOMEM;
        p->at = bigger;
        p->cap = cap;
    }
    p->at[p->n++] = pair;
    return 0;
}

struct lists {
    const struct ckpt_suggest_item *here, *there;
    size_t nhere, nthere;
};

static int consider(struct pairs *p, const struct lists *l, size_t here, size_t there) {
    const double score = score_of(&l->here[here], &l->there[there]);
    return score < CKPT_SUGGEST_LEAST ? 0 : add(p, (struct pair){score, here, there});
}

static int consider_all(struct pairs *p, const struct lists *l) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->nhere; i++)
        for (size_t j = 0; rc == 0 && j < l->nthere; j++)
            rc = consider(p, l, i, j);
    return rc;
}

/* --- neighbours --- */

struct word {
    struct ckpt_text name;
    size_t index;
};

static int compare_backwards(struct ckpt_text a, struct ckpt_text b) {
    size_t i = 1;
    while (i <= a.n && i <= b.n && a.s[a.n - i] == b.s[b.n - i])
        i++;
    if (i > a.n || i > b.n)
        return (a.n > b.n) - (a.n < b.n);
    return (unsigned char)a.s[a.n - i] < (unsigned char)b.s[b.n - i] ? -1 : 1;
}

static int compare_numbers_first(struct ckpt_text a, struct ckpt_text b) {
    const int order = compare_numbers(a, b);
    return order ? order : ckpt_text_cmp(a, b);
}

typedef int comparison(struct ckpt_text a, struct ckpt_text b);

static int by_name(const void *x, const void *y, void *compare) {
    const struct word *a = x, *b = y;
    const int order = (*(comparison **)compare)(a->name, b->name);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static size_t lower_bound(const struct word *sorted, size_t n, struct ckpt_text name,
                          comparison *compare) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (compare(sorted[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Each name here with the `reach` names there before and behind its place. */
static int consider_neighbours(struct pairs *p, const struct lists *l, size_t reach,
                               comparison *compare) {
    CKPT_AUTO(free) struct word *sorted = calloc(l->nthere, sizeof *sorted);
    if (!sorted)
        return -ENOMEM;
    for (size_t j = 0; j < l->nthere; j++)
        sorted[j] = (struct word){l->there[j].name, j};
    qsort_r(sorted, l->nthere, sizeof *sorted, by_name, &compare);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->nhere; i++) {
        const size_t at = lower_bound(sorted, l->nthere, l->here[i].name, compare);
        const size_t end = l->nthere - at < reach ? l->nthere : at + reach;
        for (size_t j = at < reach ? 0 : at - reach; rc == 0 && j < end; j++)
            rc = consider(p, l, i, sorted[j].index);
    }
    return rc;
}

static int consider_near(struct pairs *p, const struct lists *l) {
    static comparison *const orders[] = {ckpt_text_cmp, compare_backwards, compare_numbers_first};
    enum { ORDERS = sizeof orders / sizeof orders[0] };
    const size_t reach = CKPT_SUGGEST_COMPARISONS / l->nhere / (2 * ORDERS) + 1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ORDERS; i++)
        rc = consider_neighbours(p, l, reach, orders[i]);
    return rc;
}

/* --- the pairs --- */

static int by_score(const void *x, const void *y) {
    const struct pair *a = x, *b = y;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->here != b->here)
        return a->here < b->here ? -1 : 1;
    return (a->there > b->there) - (a->there < b->there);
}

static int take_best(struct pairs *p, const struct lists *l, size_t *partner) {
    CKPT_AUTO(free) bool *taken = calloc(l->nthere, sizeof *taken);
    if (!taken)
        return -ENOMEM;
    qsort(p->at, p->n, sizeof *p->at, by_score);
    for (size_t i = 0; i < p->n; i++) {
        const struct pair *pair = &p->at[i];
        if (partner[pair->here] != CKPT_SUGGEST_NONE || taken[pair->there])
            continue;
        partner[pair->here] = pair->there;
        taken[pair->there] = true;
    }
    return 0;
}

int ckpt_suggest_pairs(const struct ckpt_suggest_item *here, size_t nhere,
                       const struct ckpt_suggest_item *there, size_t nthere, size_t *partner,
                       struct ckpt_err *err) {
    const struct lists lists = {here, there, nhere, nthere};
    CKPT_AUTO(pairs) struct pairs pairs = {0};
    for (size_t i = 0; i < nhere; i++)
        partner[i] = CKPT_SUGGEST_NONE;
    if (nhere == 0 || nthere == 0)
        return 0;
    int rc = nthere <= CKPT_SUGGEST_COMPARISONS / nhere ? consider_all(&pairs, &lists)
                                                        : consider_near(&pairs, &lists);
    if (rc == 0 && pairs.n)
        rc = take_best(&pairs, &lists, partner);
    return rc ? ckpt_fail_memory(err, "looking for similar names") : 0;
}
