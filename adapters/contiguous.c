/*
 * Parameter-free layers leave holes in a Sequential's numbers (net.0, net.2); burn's Vec has none.
 *
 *     a *list* is what stands before a number:   net | 0 | weight,  net | 2 | weight    list "net"
 *     its numbers, sorted, become 0, 1, 2, ...   net.0.weight       net.1.weight
 *
 * As in burn-store: a segment is a number if Rust's usize parses it (a leading '+' and zeros are
 * allowed), wherever it stands; lists are told apart by their original names, so all places of a
 * key are rewritten at once.
 */
#include "adapters/contiguous.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/build.h"

#define EXEMPT (SIZE_MAX - 1)

/* One number in one key: of which list, and where. */
struct place {
    size_t list, key;
    uint64_t number;
    size_t begin, end; /* bytes of the key */
    uint64_t inside;   /* hash of what stands behind the number */
};

struct places {
    struct place *at;
    size_t n, cap;
};

static bool parse_number(struct ckpt_text s, uint64_t *out) {
    size_t i = s.n > 0 && s.s[0] == '+';
    uint64_t v = 0;
    if (i == s.n)
        return false;
    for (; i < s.n; i++) {
        if (s.s[i] < '0' || s.s[i] > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.s[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

static int add_place(struct places *p, struct place place) {
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        struct place *bigger = realloc(p->at, cap * sizeof *bigger);
        if (!bigger)
            return -ENOMEM;
        p->at = bigger;
        p->cap = cap;
    }
    p->at[p->n++] = place;
    return 0;
}

/* The index of the list with this name, made if it is new; EXEMPT if its numbers stay. */
static int list_of(struct ckpt_strmap *lists, struct ckpt_text name, struct ckpt_regex *except,
                   size_t *list, struct ckpt_err *err) {
    *list = ckpt_strmap_get(lists, name);
    if (*list != CKPT_STRMAP_ABSENT)
        return 0;
    const int exempt = except ? ckpt_regex_match(except, name, err) : 0;
    if (exempt < 0)
        return exempt;
    *list = exempt ? EXEMPT : lists->count;
    return ckpt_strmap_add(lists, name, *list, NULL) ? ckpt_fail_memory(err, "renumbering") : 0;
}

static int find_places(struct places *p, struct ckpt_strmap *lists, struct ckpt_text key,
                       size_t index, struct ckpt_regex *except, struct ckpt_err *err) {
    for (size_t begin = 0, end; begin <= key.n; begin = end + 1) {
        const char *dot = memchr(key.s + begin, '.', key.n - begin);
        end = dot ? (size_t)(dot - key.s) : key.n;
        struct place place = {.key = index,
                              .begin = begin,
                              .end = end,
                              .inside = ckpt_text_hash(key.s + end, key.n - end)};
        if (!parse_number((struct ckpt_text){key.s + begin, end - begin}, &place.number))
            continue;
        const struct ckpt_text name = {key.s, begin ? begin - 1 : 0};
        const int rc = list_of(lists, name, except, &place.list, err);
        if (rc)
            return rc;
        if (place.list != EXEMPT && add_place(p, place))
            return ckpt_fail_memory(err, "renumbering");
    }
    return 0;
}

static int by_list_then_number(const void *x, const void *y) {
    const struct place *a = x, *b = y;
    if (a->list != b->list)
        return a->list < b->list ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int by_key_then_place(const void *x, const void *y) {
    const struct place *a = x, *b = y;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* --- what becomes of a list --- */

static size_t count_dots(const char *s, size_t n) {
    size_t dots = 0;
    for (size_t i = 0; i < n; i++)
        dots += s[i] == '.';
    return dots;
}

/* Looks at one list's places [at, end), sorted by number. numbers: room for as many. */
static struct ckpt_renumbered_list look_at_list(const struct place *at, const struct place *end,
                                                const struct ckpt_text *key, uint64_t *numbers) {
    const struct ckpt_text own = key[at->key];
    struct ckpt_renumbered_list list = {.name = {own.s, at->begin ? at->begin - 1 : 0},
                                        .number = numbers,
                                        .key = at->key,
                                        .segments = count_dots(own.s + at->end, own.n - at->end),
                                        .alike = true};
    uint64_t first = 0, inside = 0; /* sums of hashes: whatever the keys' order */
    for (const struct place *p = at; p < end; p++) {
        if (p == at || p->number != p[-1].number) {
            list.alike &= list.n < 2 || inside == first;
            first = list.n == 1 ? inside : first;
            inside = 0;
            numbers[list.n++] = p->number;
        }
        inside += p->inside;
        list.deep |= count_dots(key[p->key].s + p->end, key[p->key].n - p->end) > 1;
    }
    list.alike &= list.n > 1 && inside == first;
    return list;
}

static bool has_holes(const struct ckpt_renumbered_list *list) {
    return list->number[list->n - 1] != list->n - 1;
}

/* Each list in its turn: [from, to) of the places. */
static int note_lists(const struct places *p, const struct ckpt_text *key, size_t nlists,
                      struct ckpt_arena *a, struct ckpt_renumbered *done) {
    uint64_t *numbers = ckpt_arena_array(a, p->n, sizeof *numbers);
    done->list = ckpt_arena_array(a, nlists, sizeof *done->list);
    if (!numbers || !done->list)
        return -ENOMEM;
    for (size_t i = 0, j; i < p->n; i = j) {
        for (j = i + 1; j < p->n && p->at[j].list == p->at[i].list;)
            j++;
        const struct ckpt_renumbered_list list = look_at_list(&p->at[i], &p->at[j], key, numbers);
        if (!has_holes(&list))
            continue;
        done->list[done->nlists++] = list;
        numbers += list.n;
    }
    return 0;
}

/* Each number becomes its rank among the distinct ones of its list. */
static void rank_numbers(struct places *p) {
    uint64_t rank = 0, last = 0;
    for (size_t i = 0; i < p->n; i++) {
        const bool new_list = i == 0 || p->at[i].list != p->at[i - 1].list;
        const bool new_number = new_list || p->at[i].number != last;
        last = p->at[i].number;
        rank = new_list ? 0 : rank + new_number;
        p->at[i].number = rank;
    }
}

/* The key with its places [from, to) rewritten. */
static int rewrite(struct ckpt_text *key, const struct place *from, const struct place *to,
                   struct ckpt_arena *a, size_t *changed, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    size_t done = 0;
    for (const struct place *p = from; p < to; p++) {
        ckpt_str_add(&s, key->s + done, p->begin - done);
        ckpt_str_printf(&s, "%" PRIu64, p->number);
        done = p->end;
    }
    ckpt_str_add(&s, key->s + done, key->n - done);
    if (s.failed)
        return ckpt_fail_memory(err, "renumbering");
    if (ckpt_text_eq(ckpt_str_text(&s), *key))
        return 0;
    ++*changed;
    *key = ckpt_text_copy(a, s.s, s.n);
    return key->s ? 0 : ckpt_fail_memory(err, "renumbering");
}

int ckpt_contiguous_keys(struct ckpt_text *key, size_t nkeys, struct ckpt_regex *except,
                         struct ckpt_arena *a, struct ckpt_renumbered *done, struct ckpt_err *err) {
    CKPT_AUTO(strmap) struct ckpt_strmap lists = {0};
    struct places places = {0};
    int rc = 0;
    *done = (struct ckpt_renumbered){0};
    for (size_t i = 0; rc == 0 && i < nkeys; i++)
        rc = find_places(&places, &lists, key[i], i, except, err);
    for (size_t i = 0; i < lists.cap; i++)
        done->exempt += lists.slots[i].key.s && lists.slots[i].value == EXEMPT;
    CKPT_AUTO(free) struct place *owned = places.at;
    if (rc || places.n == 0)
        return rc;
    qsort(owned, places.n, sizeof *owned, by_list_then_number);
    if (note_lists(&places, key, lists.count, a, done))
        return ckpt_fail_memory(err, "renumbering");
    rank_numbers(&places);
    qsort(owned, places.n, sizeof *owned, by_key_then_place);
    for (size_t i = 0, j; rc == 0 && i < places.n; i = j) {
        for (j = i + 1; j < places.n && owned[j].key == owned[i].key;)
            j++;
        rc = rewrite(&key[owned[i].key], &owned[i], &owned[j], a, &done->changed, err);
    }
    return rc;
}

static bool wanted(const struct ckpt_build *b) {
    const struct ckpt_adapt_options *o = b->options;
    if (o->contiguous != CKPT_AUTO_)
        return o->contiguous == CKPT_ON;
    return b->checkpoint->is_torch && o->layout == CKPT_LAYOUT_BURN &&
           !ckpt_model_is_burn(b->model);
}

static int open_except(struct ckpt_build *b, struct ckpt_regex **except) {
    const char *pattern = b->options->contiguous_except;
    if (!pattern)
        return 0;
    return ckpt_regex_new(ckpt_text_of(pattern), false, "contiguous_except=", except, b->err);
}

/* The keys of the model, and of each its item. */
static int gather_keys(struct ckpt_build *b, struct ckpt_text **key, size_t **item, size_t *n) {
    struct ckpt_arena *a = &b->model->arena;
    *key = ckpt_arena_array(a, b->nitems, sizeof **key);
    *item = ckpt_arena_array(a, b->nitems, sizeof **item);
    if (!*key || !*item)
        return ckpt_fail_memory(b->err, "renumbering");
    *n = 0;
    for (size_t i = 0; i < b->nitems; i++) {
        if (!b->item[i].in_model)
            continue;
        (*key)[*n] = b->item[i].key;
        (*item)[(*n)++] = i;
    }
    return 0;
}

static int warn_no_list(struct ckpt_build *b, const struct ckpt_renumbered *done) {
    struct ckpt_arena *a = &b->model->arena;
    const struct ckpt_text pattern = ckpt_text_of(b->options->contiguous_except);
    struct ckpt_text *names = ckpt_arena_array(a, done->nlists, sizeof *names);
    for (size_t i = 0; names && i < done->nlists; i++)
        names[i] = done->list[i].name;
    return ckpt_build_warn(b, "contiguous_except='%.*s' matches no list%s", CKPT_TEXT_ARGS(pattern),
                           ckpt_build_did_you_mean(b, ckpt_regex_literal(pattern, a), names,
                                                   names ? done->nlists : 0));
}

static int renumber(struct ckpt_build *b, struct ckpt_regex *except) {
    struct ckpt_text *key = NULL;
    size_t *item = NULL, n = 0;
    struct ckpt_renumbered done;
    int rc = gather_keys(b, &key, &item, &n);
    if (rc == 0)
        rc = ckpt_contiguous_keys(key, n, except, &b->model->arena, &done, b->err);
    if (rc == 0)
        rc = ckpt_report_renumbered(b, &done, item);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        b->item[item[i]].renumbered = !ckpt_text_eq(b->item[item[i]].key, key[i]);
        b->item[item[i]].key = key[i];
    }
    return except && done.exempt == 0 ? warn_no_list(b, &done) : 0;
}

int ckpt_renumber_items(struct ckpt_build *b) {
    CKPT_AUTO(regex) struct ckpt_regex *except = NULL;
    const int rc = open_except(b, &except);
    if (rc)
        return rc;
    if (wanted(b))
        return renumber(b, except);
    return except ? ckpt_build_warn(b, "contiguous_except= has no effect: indices are not "
                                       "renumbered here without contiguous=on")
                  : 0;
}
