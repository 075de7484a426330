/*
 * The input is a whole safetensors file. Property: if its header is accepted, every tensor lies
 * inside the data, needs just its range, and the ranges are disjoint and cover the data; written
 * again by our writer, the header parses to the same table. With keep_going, the sound tensors lie
 * inside the data and are disjoint, and whatever was accepted without it gives the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/safetensors_header.h"
#include "formats/safetensors_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds)
        abort();
}

static void check_entry(const struct ckpt_header_entry *e, uint64_t data_size) {
    uint64_t count, bytes;
    check(e->dtype != CKPT_DT_NONE && ckpt_st_can_hold(e->dtype));
    check(e->begin <= e->end && e->end <= data_size);
    check(ckpt_shape_count(e->shape, e->ndim, &count));
    check(ckpt_dtype_bytes(e->dtype, count, &bytes) && bytes == e->end - e->begin);
}

/* By counting: every byte of the data has at most one owner. How many have none. */
static uint64_t check_ranges(const struct ckpt_st_table *t, uint64_t data_size) {
    uint8_t *owners = calloc(data_size + 1, 1);
    uint64_t unclaimed = 0;
    check(owners);
    for (size_t i = 0; i < t->n; i++) {
        if (t->entries[i].fault)
            continue;
        check_entry(&t->entries[i], data_size);
        for (uint64_t k = t->entries[i].begin; k < t->entries[i].end; k++)
            check(owners[k]++ == 0);
    }
    for (uint64_t k = 0; k < data_size; k++)
        unclaimed += owners[k] == 0;
    free(owners);
    return unclaimed;
}

static bool same_entry(const struct ckpt_header_entry *a, const struct ckpt_header_entry *b) {
    return ckpt_text_eq(a->key, b->key) && a->dtype == b->dtype && a->ndim == b->ndim &&
           (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0) &&
           a->end - a->begin == b->end - b->begin && !a->fault == !b->fault;
}

static void check_same(const struct ckpt_st_table *a, const struct ckpt_st_table *b) {
    check(a->n == b->n && a->nmetadata == b->nmetadata);
    for (size_t i = 0; i < a->n; i++)
        check(same_entry(&a->entries[i], &b->entries[i]));
    for (size_t i = 0; i < a->nmetadata; i++)
        check(ckpt_text_eq(a->metadata[i].key, b->metadata[i].key) &&
              ckpt_text_eq(a->metadata[i].value, b->metadata[i].value));
}

static void check_written_again(const struct ckpt_st_table *t, struct ckpt_arena *a,
                                uint64_t data_size) {
    struct ckpt_header_item *items = calloc(t->n + 1, sizeof *items);
    struct ckpt_str out = {0};
    struct ckpt_st_table again;
    check(items);
    for (size_t i = 0; i < t->n; i++) {
        const struct ckpt_header_entry *e = &t->entries[i];
        items[i] =
            (struct ckpt_header_item){e->key, e->dtype, e->ndim, e->shape, e->end - e->begin, 0};
    }
    check(ckpt_st_write_header(&out, items, t->n, t->metadata, t->nmetadata, NULL) == 0);
    check(out.n % 8 == 0);
    check(ckpt_st_parse(&again, a, out.s + 8, out.n - 8, data_size, false, NULL) == 0);
    check_same(t, &again);
    for (size_t i = 0; i < t->n; i++)
        check(items[i].offset == again.data_start + again.entries[i].begin);
    ckpt_st_table_fini(&again);
    ckpt_str_fini(&out);
    free(items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ckpt_buf b = {.p = data, .n = size};
    const uint64_t n = ckpt_buf_u64(&b);
    const uint8_t *json = ckpt_buf_take(&b, n);
    if (!json)
        return 0;
    const uint64_t data_size = ckpt_buf_left(&b);
    struct ckpt_arena a = {0};
    struct ckpt_st_table strict, lenient;
    struct ckpt_err err = {0};
    const int rc = ckpt_st_parse(&strict, &a, json, n, data_size, false, &err);
    const int rc_lenient = ckpt_st_parse(&lenient, &a, json, n, data_size, true, NULL);
    check(rc == 0 || (rc == err.code && err.text[0]));
    if (rc_lenient == 0)
        check(check_ranges(&lenient, data_size) == lenient.unclaimed);
    if (rc == 0) {
        check(rc_lenient == 0);
        check_same(&strict, &lenient);
        check(check_ranges(&strict, data_size) == 0);
        check_written_again(&strict, &a, data_size);
    }
    ckpt_st_table_fini(&strict);
    ckpt_st_table_fini(&lenient);
    ckpt_arena_fini(&a);
    return 0;
}
