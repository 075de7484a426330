/*
 * Property: whatever operations the bytes ask for, an accepted one gives a walk with exactly the
 * offsets of a naive model (an array of them, moved about by index arithmetic) and no pair more
 * than the fitted walk; a refused one leaves the view unchanged; and gathering any range of the
 * walk, with any element map, portable or AVX2, gives what reading the elements one by one gives.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/gather_kernels.h"
#include "base/cleanup.h"
#include "base/cpu.h"
#include "mount-tests/unit/naive_view.h"

#define BLOB_BYTES (1 << 16)

struct input {
    const uint8_t *p;
    size_t n;
};

static int64_t next(struct input *in) {
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->p++;
}

static void require(int holds) {
    if (!holds)
        abort();
}

static struct naive model;

static int64_t walk_offset(const struct ckpt_view *v, int64_t i) {
    int64_t offset = v->offset;
    for (uint32_t p = v->npairs; p-- > 0; i /= v->pair[p].size)
        offset += i % v->pair[p].size * v->pair[p].stride;
    return offset;
}

static void check_view(const struct ckpt_view *v) {
    static int64_t offsets[NAIVE_MOST];
    int64_t pair[64][2];
    uint32_t n;
    const int64_t count = naive_count(&model);
    require(v->ndim == model.ndim && ckpt_view_count(v) == count);
    require(memcmp(v->shape, model.shape, model.ndim * sizeof *v->shape) == 0);
    for (int64_t i = 0; i < count; i++)
        require(walk_offset(v, i) == model.offset[i]);
    memcpy(offsets, model.offset, sizeof offsets);
    require(naive_fit(offsets, count, pair, &n) && v->npairs == n);
}

/* A tensor in the blob, with any strides; false if the blob is too small for it. */
static bool make_view(struct input *in, struct ckpt_view *v, enum ckpt_dtype dtype) {
    int64_t shape[NAIVE_DIMS] = {0}, stride[NAIVE_DIMS] = {0}, count = 1;
    struct ckpt_blob blob = {.size = BLOB_BYTES, .name = ""};
    struct ckpt_tensor t = {.key = CKPT_TEXT("t"),
                            .dtype = dtype,
                            .ndim = (uint32_t)(next(in) % 5),
                            .shape = shape,
                            .stride = stride,
                            .offset = (uint64_t)next(in) * 64,
                            .blob = &blob};
    for (uint32_t d = 0; d < t.ndim; d++) {
        shape[d] = next(in) % 12;
        stride[d] = next(in) - 64;
        count *= shape[d] ? shape[d] : 1;
    }
    if (count > NAIVE_MOST || ckpt_view_init(v, &t, NULL) != 0)
        return false;
    model.ndim = t.ndim;
    memcpy(model.shape, shape, sizeof shape);
    naive_from_strides(&model, (int64_t)t.offset, stride, ckpt_dtype_info(dtype)->unit_bytes);
    return true;
}

static int do_permute(struct input *in, struct ckpt_view *v) {
    uint32_t order[NAIVE_DIMS], seen = 0;
    for (uint32_t i = 0; i < model.ndim; i++) {
        order[i] = (uint32_t)(next(in) % model.ndim);
        seen |= 1u << order[i];
    }
    const int rc = ckpt_view_permute(v, order, model.ndim, NULL);
    require(rc != 0 || seen == (1u << model.ndim) - 1);
    if (rc == 0)
        naive_permute(&model, order);
    return rc;
}

static int do_reshape(struct input *in, struct ckpt_view *v) {
    int64_t shape[NAIVE_DIMS];
    const uint32_t n = (uint32_t)(next(in) % NAIVE_DIMS);
    for (uint32_t d = 0; d < n; d++)
        shape[d] = next(in) % 32 - 1;
    const int rc = ckpt_view_reshape(v, shape, n, NULL);
    if (rc == 0) {
        model.ndim = n;
        memcpy(model.shape, v->shape, n * sizeof *shape);
    }
    return rc;
}

static int do_slice(struct input *in, struct ckpt_view *v, uint32_t d) {
    const int64_t start = next(in) % 16, len = next(in) % 16, step = next(in) % 4;
    const int rc = ckpt_view_slice(v, d, start, len, step, NULL);
    if (rc == 0)
        naive_take(&model, d, start, len, step);
    return rc;
}

static int do_expand(struct input *in, struct ckpt_view *v, uint32_t d) {
    const int64_t size = next(in) % 16;
    if (naive_count(&model) * size > NAIVE_MOST)
        return 0;
    const int rc = ckpt_view_expand(v, d, size, NULL);
    if (rc == 0 && model.shape[d] == 1)
        naive_take(&model, d, 0, size, 0);
    return rc;
}

static int do_next(struct input *in, struct ckpt_view *v) {
    const int64_t op = next(in) % 8;
    const uint32_t d = (uint32_t)next(in) % (model.ndim + 1); /* may be one too many */
    int rc;
    switch (op) {
    case 0:
    case 1:
        return model.ndim ? do_permute(in, v) : 0;
    case 2:
        return do_reshape(in, v);
    case 3:
        return do_slice(in, v, d);
    case 4:
        rc = ckpt_view_flip(v, d, NULL);
        if (rc == 0)
            naive_take(&model, d, model.shape[d] - 1, model.shape[d], -1);
        return rc;
    case 5:
        rc = ckpt_view_squeeze(v, d, NULL);
        if (rc == 0)
            naive_drop_dim(&model, d);
        return rc;
    case 6:
        if (model.ndim == NAIVE_DIMS)
            return 0;
        naive_add_dim(&model, d);
        return ckpt_view_unsqueeze(v, d, NULL);
    default:
        return do_expand(in, v, d);
    }
}

static void check_gather(struct input *in, const struct ckpt_view *v,
                         const struct ckpt_element_map *map) {
    CKPT_AUTO(arena) struct ckpt_arena a = {0};
    static uint8_t source[BLOB_BYTES], expected[NAIVE_MOST * 16], got[NAIVE_MOST * 16];
    const struct ckpt_walk *const w = ckpt_walk_pack(&a, v);
    if (w->count == 0)
        return;
    for (uint32_t i = 0; i < BLOB_BYTES; i++)
        source[i] = (uint8_t)((i * 2654435761u) >> 21);
    const int64_t first = next(in) * 37 % w->count, n = 1 + next(in) * 53 % (w->count - first);
    const uint32_t size = ckpt_map_out_bytes(map, w->esize);
    for (int64_t i = 0; i < n; i++)
        ckpt_element_convert(map, source + model.offset[first + i], expected + i * size);
    for (int avx2 = 0; avx2 <= ckpt_cpu()->avx2; avx2++) {
        memset(got, 0, (size_t)(n * size));
        require(ckpt_gather_with(avx2, w, map, source, first, n, got, NULL));
        require(memcmp(got, expected, (size_t)(n * size)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum ckpt_dtype types[] = {CKPT_DT_F16, CKPT_DT_BF16, CKPT_DT_F32, CKPT_DT_F64,
                                            CKPT_DT_U8,  CKPT_DT_C64,  CKPT_DT_C128};
    struct input in = {data, size};
    const int64_t kind = next(&in), flags = next(&in);
    struct ckpt_element_map map = {.from = types[kind % 7], .to = types[kind % 7]};
    if (kind % 7 < 4)
        map.to = types[kind / 7 % 4];
    map.swap = flags % 5 == 0;
    map.neg = flags % 7 == 0 && map.from != CKPT_DT_U8;
    map.conj = flags % 11 == 0 && kind % 7 > 4;
    struct ckpt_view v;
    if (!make_view(&in, &v, map.from))
        return 0;
    for (int i = 0; i < 16 && in.n > 0; i++) {
        const struct ckpt_view before = v;
        if (do_next(&in, &v) != 0)
            require(memcmp(&v, &before, sizeof v) == 0);
        check_view(&v);
    }
    check_gather(&in, &v, &map);
    return 0;
}
