/*
 * Sorting and choosing. The unstable algorithms are the textbook ones in the variant of the C++
 * library that PyTorch is built with: the median of three elements is the pivot, ranges of up to 3
 * (choosing) or 16 (sorting) are left to insertion, and a heap takes over if pivots are bad.
 */
#include "verify/rank.h"

#include <math.h>
#include <string.h>

bool ckpt_rank_before(struct ckpt_rank_order o, const struct ckpt_ranked *a,
                      const struct ckpt_ranked *b) {
    if (o.whole)
        return o.descending ? a->i > b->i : a->i < b->i;
    if (o.descending)
        return (isnan(a->f) && !isnan(b->f)) || a->f > b->f;
    return (!isnan(a->f) && isnan(b->f)) || a->f < b->f;
}

static void swap(struct ckpt_ranked *a, struct ckpt_ranked *b) {
    const struct ckpt_ranked t = *a;
    *a = *b;
    *b = t;
}

/* ---- stable: merging runs of 1, 2, 4, ... ---- */

static void merge(struct ckpt_rank_order o, const struct ckpt_ranked *from, struct ckpt_ranked *to,
                  int64_t left, int64_t middle, int64_t right) {
    int64_t a = left, b = middle;
    for (int64_t k = left; k < right; k++) {
        const bool second = a >= middle || (b < right && ckpt_rank_before(o, &from[b], &from[a]));
        to[k] = second ? from[b++] : from[a++];
    }
}

void ckpt_rank_sort(struct ckpt_rank_order o, struct ckpt_ranked *v, struct ckpt_ranked *spare,
                    int64_t n) {
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t left = 0; left < n; left += 2 * run) {
            const int64_t middle = left + run < n ? left + run : n;
            const int64_t right = left + 2 * run < n ? left + 2 * run : n;
            merge(o, v, spare, left, middle, right);
        }
        memcpy(v, spare, (size_t)n * sizeof(*v));
    }
}

/* ---- a heap whose first element stands last in the order ---- */

/* Puts value where it belongs below hole: first down along the later children, then up again. */
static void sift(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n, int64_t hole,
                 struct ckpt_ranked value) {
    const int64_t top = hole;
    int64_t child = hole;
    while (child < (n - 1) / 2) {
        child = 2 * (child + 1);
        if (ckpt_rank_before(o, &v[child], &v[child - 1]))
            child--;
        v[hole] = v[child];
        hole = child;
    }
    if (n % 2 == 0 && n >= 2 && child == (n - 2) / 2) {
        child = 2 * child + 1;
        v[hole] = v[child];
        hole = child;
    }
    for (int64_t up; hole > top && (up = (hole - 1) / 2, ckpt_rank_before(o, &v[up], &value));
         hole = up)
        v[hole] = v[up];
    v[hole] = value;
}

static void make_heap(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n) {
    for (int64_t at = n < 2 ? -1 : (n - 2) / 2; at >= 0; at--)
        sift(o, v, n, at, v[at]);
}

/* The first k of n into v[0..k), as a heap. */
static void heap_select(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t k, int64_t n) {
    make_heap(o, v, k);
    for (int64_t i = k; i < n; i++) {
        if (!ckpt_rank_before(o, &v[i], &v[0]))
            continue;
        const struct ckpt_ranked value = v[i];
        v[i] = v[0];
        sift(o, v, k, 0, value);
    }
}

static void sort_heap(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n) {
    while (n > 1) {
        n--;
        const struct ckpt_ranked value = v[n];
        v[n] = v[0];
        sift(o, v, n, 0, value);
    }
}

/* ---- pivots ---- */

static void insertion_sort(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const struct ckpt_ranked value = v[i];
        int64_t at = i;
        for (; at > 0 && ckpt_rank_before(o, &value, &v[at - 1]); at--)
            v[at] = v[at - 1];
        v[at] = value;
    }
}

/* The middle one of a, b and c changes places with *to. */
static void median_to(struct ckpt_rank_order o, struct ckpt_ranked *to, struct ckpt_ranked *a,
                      struct ckpt_ranked *b, struct ckpt_ranked *c) {
    if (ckpt_rank_before(o, a, b))
        swap(to, ckpt_rank_before(o, b, c) ? b : ckpt_rank_before(o, a, c) ? c : a);
    else
        swap(to, ckpt_rank_before(o, a, c) ? a : ckpt_rank_before(o, b, c) ? c : b);
}

/* Splits v[0..n) by a pivot; where the second part begins. */
static int64_t split(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n) {
    median_to(o, v, v + 1, v + n / 2, v + n - 1);
    int64_t left = 1, right = n;
    for (;;) {
        while (ckpt_rank_before(o, &v[left], v))
            left++;
        right--;
        while (ckpt_rank_before(o, v, &v[right]))
            right--;
        if (left >= right)
            return left;
        swap(&v[left], &v[right]);
        left++;
    }
}

/* How many bad pivots are borne. */
static int patience(int64_t n) {
    int depth = 0;
    for (; n > 1; n /= 2)
        depth += 2;
    return depth;
}

/* v[nth] becomes what it is in the whole order; nothing before it belongs behind it. */
static void choose(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t nth, int64_t n) {
    int64_t first = 0, last = n;
    for (int depth = patience(n); last - first > 3; depth--) {
        if (depth == 0) {
            heap_select(o, v + first, nth + 1 - first, last - first);
            swap(&v[first], &v[nth]);
            return;
        }
        const int64_t cut = first + split(o, v + first, last - first);
        *(cut <= nth ? &first : &last) = cut;
    }
    insertion_sort(o, v + first, last - first);
}

static void sort_parts(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n, int depth) {
    for (; n > 16; depth--) {
        if (depth == 0) {
            make_heap(o, v, n);
            sort_heap(o, v, n);
            return;
        }
        const int64_t cut = split(o, v, n);
        sort_parts(o, v + cut, n - cut, depth - 1);
        n = cut;
    }
}

void ckpt_rank_top(struct ckpt_rank_order o, struct ckpt_ranked *v, int64_t n, int64_t k,
                   bool sorted) {
    if (k == 0)
        return;
    if (k <= n / 64) {
        heap_select(o, v, k, n);
        sort_heap(o, v, k);
        return;
    }
    choose(o, v, k - 1, n);
    if (!sorted)
        return;
    sort_parts(o, v, k - 1, patience(k - 1));
    insertion_sort(o, v, k - 1);
}
