/*
 * Property: whatever a rule file holds, it is refused with a sentence, or it can be applied to a
 * checkpoint; that ends in a sentence, too, or in tensors whose parts add up to their shapes, lie
 * within their storages and can be read.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/reader_compute.h"
#include "adapters/rule.h"
#include "formats/decoded_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 4096u

static void check(bool holds) {
    if (!holds)
        abort();
}

static const int64_t shapes[][3] = {{6, 4, 2}, {6, 4, 2}, {8, 1, 0}, {0, 0, 0}};
static const uint32_t ranks[] = {3, 3, 2, 0};
static const char *const keys[] = {"a.weight", "b.weight", "a.bias", "0"};
enum { TENSORS = 4 };

static void make_source(struct ckpt_arena *a, struct ckpt_tensor *t, struct ckpt_item *item) {
    for (uint32_t i = 0; i < TENSORS; i++) {
        const struct ckpt_text key = ckpt_text_of(keys[i]);
        void *bytes = ckpt_arena_alloc(a, 256);
        t[i] = (struct ckpt_tensor){
            .key = key, .dtype = CKPT_DT_F32, .ndim = ranks[i], .shape = shapes[i], .module = -1};
        check(bytes && ckpt_blob_owned(a, bytes, 256, "", &t[i].blob, NULL) == 0);
        item[i] =
            (struct ckpt_item){.tensor = &t[i], .torch_key = key, .key = key, .in_model = true};
        item[i].decision.rule_kind = i == 2 ? "norm" : "linear";
    }
}

static void read_part(const struct ckpt_part *p) {
    static const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = CKPT_DT_F32};
    uint8_t bytes[256];
    struct ckpt_err err = {0};
    if (p->walk->count > 0 && p->nbytes <= sizeof bytes)
        check(ckpt_part_compute(p, &map, 0, p->walk->count, bytes, NULL, &err) == 0);
}

static void check_shaped(const struct ckpt_shaped *s) {
    uint64_t count = 0, bytes = 0, parts = 0;
    check(s->nparts > 0 && ckpt_shape_count(s->shape, s->ndim, &count));
    check(ckpt_dtype_bytes(CKPT_DT_F32, count, &bytes));
    for (uint32_t i = 0; i < s->nparts; i++) {
        const struct ckpt_part *p = &s->part[i];
        parts += p->nbytes;
        check(s->turns <= 1 || p->nbytes % (4 * s->turns) == 0);
        if (!p->source)
            continue;
        check((uint64_t)p->walk->count * 4 == p->nbytes);
        int64_t lo = 0, hi = 0;
        if (p->walk->count > 0)
            ckpt_walk_bounds(p->walk, 0, p->walk->count, &lo, &hi);
        check(lo >= 0 && (uint64_t)hi <= p->source->blob->size);
        read_part(p);
    }
    check(parts == bytes);
}

static void apply(struct ckpt_rules *rules) {
    static const struct ckpt_adapt_options options = {0};
    struct ckpt_arena arena = {0};
    struct ckpt_tensor tensor[TENSORS];
    struct ckpt_item item[TENSORS];
    struct ckpt_model model = {0};
    struct ckpt_shaped_list list = {0};
    struct ckpt_err err = {0};
    make_source(&arena, tensor, item);
    struct ckpt_checkpoint checkpoint = {.nblobs = TENSORS};
    check(ckpt_decoded_cache_new(CKPT_DECODED_DEFAULT, &checkpoint.decoded, &err) == 0);
    struct ckpt_build b = {.checkpoint = &checkpoint,
                           .options = &options,
                           .model = &model,
                           .item = item,
                           .nitems = TENSORS,
                           .rules = {rules},
                           .nrules = 1,
                           .err = &err};
    int rc = ckpt_merge_items(&b);
    if (rc == 0)
        rc = ckpt_rules_apply(&b, &list);
    check(rc == 0 || (rc < 0 && err.text[0]));
    for (size_t i = 0; i < list.n; i++)
        check_shaped(&list.at[i]);
    free(list.at);
    for (size_t i = 0; i < model.ncomputed; i++)
        model.computed[i]->ops->fini(model.computed[i]);
    ckpt_decoded_cache_free(checkpoint.decoded);
    ckpt_arena_fini(&model.arena);
    ckpt_arena_fini(&b.scratch);
    ckpt_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > INPUT_MAX)
        return 0;
    struct ckpt_rules *rules;
    struct ckpt_err err = {0};
    const int rc = ckpt_rules_parse((const char *)data, size, "FILE", &rules, &err);
    if (rc)
        check(!rules && rc < 0 && err.text[0]);
    else
        apply(rules);
    ckpt_rules_free(rules);
    return 0;
}
