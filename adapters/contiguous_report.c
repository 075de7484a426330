/*
 * What renumbering did, for people, and where it may have been wrong.
 *
 *     net (Sequential)      0, 2, 4    the holes are activations': burn's Vec has none
 *     flows (blocks alike)  0, 2, 4    the holes may be modules without parameters that burn's
 * model has, too (a flow's flips) experts               3, 7       the numbers may be names (a
 * ModuleDict), or a part of a model
 *
 * burn-store closes all of them, and so do we, lest a file load otherwise than in burn; but of the
 * lists whose numbers may mean something there is a warning, with the option that keeps them.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "adapters/build.h"
#include "adapters/contiguous.h"

#define NUMBERS_SHOWN 6u
#define LISTS_SHOWN 4u

/* "0, 2, 4, ... 22" */
static void put_numbers(struct ckpt_str *s, const struct ckpt_renumbered_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        const bool shown = list->n <= NUMBERS_SHOWN || i + 1 < NUMBERS_SHOWN || i + 1 == list->n;
        if (shown)
            ckpt_str_printf(s, "%s%" PRIu64, i ? ", " : "", list->number[i]);
        else if (i + 1 == NUMBERS_SHOWN)
            ckpt_str_puts(s, ", ...");
    }
}

/* "flows: 0, 2, 4 are 0 to 2" */
static void put_list(struct ckpt_str *s, const struct ckpt_renumbered_list *list) {
    if (list->name.n)
        ckpt_str_add(s, list->name.s, list->name.n);
    else
        ckpt_str_puts(s, "the model itself");
    ckpt_str_puts(s, ": ");
    put_numbers(s, list);
    if (list->n == 1)
        ckpt_str_puts(s, " is now 0");
    else
        ckpt_str_printf(s, " are now 0 to %zu", list->n - 1);
}

static int note_all(struct ckpt_build *b, const struct ckpt_renumbered *done) {
    struct ckpt_model *m = b->model;
    m->list = ckpt_arena_array(&m->arena, done->nlists, sizeof *m->list);
    if (!m->list)
        return ckpt_fail_memory(b->err, "renumbering");
    for (size_t i = 0; i < done->nlists; i++) {
        CKPT_AUTO(str) struct ckpt_str s = {0};
        put_list(&s, &done->list[i]);
        m->list[m->nlists] = ckpt_text_copy(&m->arena, s.s, s.n);
        if (s.failed || !m->list[m->nlists++].s)
            return ckpt_fail_memory(b->err, "renumbering");
    }
    return 0;
}

/* --- doubts --- */

/* The class of the module whose children a list is, where the file knows it; else "". */
static struct ckpt_text class_of(const struct ckpt_build *b,
                                 const struct ckpt_renumbered_list *list,
                                 const struct ckpt_item *item) {
    const struct ckpt_checkpoint *c = b->checkpoint;
    int32_t module = item->renamed ? -1 : item->tensor->module; /* map= made it another list */
    for (size_t up = 0; up < list->segments && module >= 0; up++)
        module = c->modules[module].parent;
    return module < 0 ? CKPT_TEXT("") : c->modules[module].cls;
}

static bool is_doubtful(const struct ckpt_build *b, const struct ckpt_renumbered_list *list,
                        const struct ckpt_item *item) {
    const struct ckpt_text cls = class_of(b, list, item);
    if (ckpt_text_is(cls, "torch.nn.modules.container.Sequential"))
        return false;
    if (ckpt_text_is(cls, "torch.nn.modules.container.ModuleDict") ||
        ckpt_text_is(cls, "torch.nn.modules.container.ParameterDict"))
        return true;
    return list->number[0] > 0 || (list->deep && list->alike);
}

/* The name as a regex, with \d+ for each number in it: lists of the same make have the same. */
static void put_pattern(struct ckpt_str *s, struct ckpt_text name) {
    for (size_t i = 0; i < name.n;) {
        const char *dot = memchr(name.s + i, '.', name.n - i);
        const size_t n = dot ? (size_t)(dot - name.s) - i : name.n - i;
        const bool number = n > 0 && strspn(name.s + i, "0123456789") >= n;
        if (number)
            ckpt_str_puts(s, "\\d+");
        for (size_t k = 0; k < n && !number; k++) {
            if (strchr("\\^$()[]{}*+?|", name.s[i + k]) && name.s[i + k])
                ckpt_str_puts(s, "\\");
            ckpt_str_add(s, name.s + i + k, 1);
        }
        if (dot)
            ckpt_str_puts(s, "\\.");
        i += n + 1;
    }
}

/* The doubtful lists, one of each make in words and all as alternatives of a regex. */
struct doubts {
    struct ckpt_strmap makes; /* patterns */
    struct ckpt_str words, regex;
    size_t lists;
};

static void doubts_fini(struct doubts *d) {
    ckpt_strmap_fini(&d->makes);
    ckpt_str_fini(&d->words);
    ckpt_str_fini(&d->regex);
}
#define ckpt_auto_doubts doubts_fini

static int doubt(struct ckpt_build *b, struct doubts *d, const struct ckpt_renumbered_list *list) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    put_pattern(&s, list->name);
    const struct ckpt_text pattern =
        ckpt_text_copy(&b->model->arena, ckpt_str_text(&s).s, ckpt_str_text(&s).n);
    const int rc =
        s.failed || !pattern.s ? -ENOMEM : ckpt_strmap_add(&d->makes, pattern, d->lists, NULL);
    if (rc == -ENOMEM)
        return ckpt_fail_memory(b->err, "renumbering");
    d->lists++;
    if (rc || d->makes.count > LISTS_SHOWN)
        return 0;
    ckpt_str_puts(&d->words, d->makes.count > 1 ? "; " : "");
    put_list(&d->words, list);
    ckpt_str_puts(&d->regex, d->makes.count > 1 ? "|" : "");
    ckpt_str_add(&d->regex, pattern.s, pattern.n);
    return 0;
}

static int warn(struct ckpt_build *b, struct doubts *d) {
    const size_t more = d->lists - (d->makes.count < LISTS_SHOWN ? d->makes.count : LISTS_SHOWN);
    if (more)
        ckpt_str_printf(&d->words, "; and %zu more", more);
    if (d->words.failed || d->regex.failed)
        return ckpt_fail_memory(b->err, "renumbering");
    return ckpt_build_warn(b,
                           "numbers of lists were closed up, as burn-store does, but the gaps may "
                           "be meant (modules without parameters, names that are numbers, a part "
                           "of a model): %s; -o 'contiguous_except=^(%s)$' keeps them, "
                           "contiguous=off keeps all",
                           d->words.s, ckpt_str_text(&d->regex).s);
}

int ckpt_report_renumbered(struct ckpt_build *b, const struct ckpt_renumbered *done,
                           const size_t *item) {
    CKPT_AUTO(doubts) struct doubts d = {0};
    int rc = note_all(b, done);
    for (size_t i = 0; rc == 0 && i < done->nlists; i++) {
        const struct ckpt_renumbered_list *list = &done->list[i];
        if (is_doubtful(b, list, &b->item[item[list->key]]))
            rc = doubt(b, &d, list);
    }
    return rc == 0 && d.lists ? warn(b, &d) : rc;
}
