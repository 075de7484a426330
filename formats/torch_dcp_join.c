#include "formats/torch_dcp_join.h"

#include <errno.h>
#include <stdlib.h>

#include "base/size.h"
#include "formats/chunk_decode.h"
#include "formats/pickle_make.h"

#define ELEMENT_MAX 16 /* bytes: of a complex128 */

struct join {
    struct ckpt_checkpoint *c;
    const struct torch_chunk *chunk; /* as they came */
    size_t n;
    const struct ckpt_tensor *corner; /* the one at the origin, of which no other is larger */
    uint32_t ndim;
    int64_t *shape, *count, *stride; /* of the whole, of the grid, of a chunk in bytes */
    struct ckpt_err *err;
};

static int fail_memory(const struct join *j) {
    return ckpt_fail_memory(j->err, "joining the chunks of a tensor");
}

/* The numbers of a sequence of j->ndim of them. */
static bool take_numbers(const struct join *j, const struct ckpt_value *v, int64_t *out) {
    if (!pickle_is_seq(v) || v->seq.n != j->ndim)
        return false;
    for (uint32_t d = 0; d < j->ndim; d++) {
        const struct ckpt_value *const item = v->seq.item[d];
        if (!pickle_is(item, CKPT_VALUE_INT) || item->i < 0)
            return false;
        out[d] = item->i;
    }
    return true;
}

static int fail_chunk(const struct join *j, const char *what) {
    return ckpt_fail(j->err, -EINVAL, "its chunks are not those of one tensor: %s", what);
}

static int fail_grid(const struct join *j, const char *what) {
    return ckpt_fail(j->err, -ENOTSUP,
                     "lies in %zu chunks %s; torch.distributed.checkpoint.format_utils."
                     "dcp_to_torch_save joins them",
                     j->n, what);
}

/* --- the grid --------------------------------------------------------------------------------- */

static int find_corner(struct join *j) {
    int64_t at[CKPT_NDIM_MAX];
    for (size_t i = 0; i < j->n; i++) {
        bool is_origin = take_numbers(j, j->chunk[i].at, at);
        for (uint32_t d = 0; is_origin && d < j->ndim; d++)
            is_origin = at[d] == 0;
        if (is_origin && j->corner)
            return fail_chunk(j, "two are at its origin");
        if (is_origin)
            j->corner = &j->chunk[i].tensor;
    }
    return j->corner && j->corner->ndim == j->ndim ? 0 : fail_chunk(j, "none is at its origin");
}

/* How many there must be, and where their elements lie. */
static int lay_grid(struct join *j) {
    uint64_t chunks = 1;
    int64_t stride = ckpt_dtype_info(j->corner->dtype)->unit_bytes;
    for (uint32_t d = j->ndim; d-- > 0;) {
        const int64_t size = j->corner->shape[d];
        j->count[d] = j->shape[d] / size + (j->shape[d] % size != 0);
        j->stride[d] = stride;
        if (!ckpt_mul_i64(stride, size, &stride) ||
            !ckpt_mul_u64(chunks, (uint64_t)j->count[d], &chunks))
            return fail_chunk(j, "they are too many");
    }
    return chunks == j->n ? 0 : fail_grid(j, "that are no regular grid");
}

static bool is_alike(const struct ckpt_tensor *a, const struct ckpt_tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim && a->swap == b->swap && a->conj == b->conj &&
           a->neg == b->neg;
}

/* As large as the corner's, unless it is at the end; but its strides must be the corner's. */
static int check_extent(const struct join *j, const struct ckpt_tensor *t, const int64_t *at) {
    bool is_short = false; /* along an axis inside this one: then this one's stride differs */
    for (uint32_t d = j->ndim; d-- > 0;) {
        const int64_t size = j->corner->shape[d], left = j->shape[d] - at[d];
        if (at[d] % size || left < 1)
            return fail_grid(j, "that are no regular grid");
        if (t->shape[d] != (left < size ? left : size))
            return fail_grid(j, "that are no regular grid");
        if (is_short && t->shape[d] > 1)
            return fail_grid(j, "of which those at an edge are narrower");
        is_short = is_short || t->shape[d] != size;
    }
    return 0;
}

/* The chunk's place in the grid, if it is one that we can serve. */
static int place(const struct join *j, const struct torch_chunk *chunk, struct ckpt_chunk *out) {
    const struct ckpt_tensor *const t = &chunk->tensor;
    int64_t at[CKPT_NDIM_MAX];
    if (!take_numbers(j, chunk->at, at) || !is_alike(t, j->corner))
        return fail_chunk(j, "they differ in dtype or rank");
    if (t->stride || !t->blob->in_file || ckpt_dtype_info(t->dtype)->unit_elements > 1)
        return fail_grid(j, "that are compressed, packed or not contiguous");
    const int rc = check_extent(j, t, at);
    if (rc)
        return rc;
    *out = (struct ckpt_chunk){.value = {.file = chunk->file,
                                         .offset = t->blob->file_offset + t->offset,
                                         .length = ckpt_tensor_bytes(t)}};
    for (uint32_t d = 0; d < j->ndim; d++)
        out->number = out->number * (uint64_t)j->count[d] + (uint64_t)(at[d] / j->corner->shape[d]);
    return 0;
}

static int by_number(const void *a, const void *b) {
    const uint64_t x = ((const struct ckpt_chunk *)a)->number;
    const uint64_t y = ((const struct ckpt_chunk *)b)->number;
    return (x > y) - (x < y);
}

static int place_all(const struct join *j, struct ckpt_chunk *out) {
    for (size_t i = 0; i < j->n; i++) {
        const int rc = place(j, &j->chunk[i], &out[i]);
        if (rc)
            return rc;
    }
    qsort(out, j->n, sizeof *out, by_number);
    for (size_t i = 0; i < j->n; i++) /* as many as the grid has: so each is there, or one twice */
        if (out[i].number != i)
            return fail_chunk(j, "two lie at one place");
    return 0;
}

/* --- the tensor ------------------------------------------------------------------------------- */

static int make_grid(const struct join *j, struct ckpt_chunk *chunks, struct ckpt_tensor *out) {
    static const uint8_t fill[ELEMENT_MAX]; /* nothing is missing */
    struct ckpt_chunk_grid *const g = ckpt_arena_alloc(&j->c->arena, sizeof *g);
    if (!g)
        return fail_memory(j);
    *g = (struct ckpt_chunk_grid){.ndim = j->ndim,
                                  .esize = ckpt_dtype_info(j->corner->dtype)->unit_bytes,
                                  .shape = j->shape,
                                  .chunk = j->corner->shape,
                                  .count = j->count,
                                  .stride = j->stride,
                                  .fill = fill,
                                  .chunks = chunks,
                                  .nchunks = j->n,
                                  .ops = &ckpt_chunk_plain_ops,
                                  .is_plain = true};
    out->blob = &g->blob;
    return ckpt_chunk_grid_init(g, ckpt_tensor_bytes(j->corner), false, j->c->decoded, out->key.s,
                                j->err);
}

int torch_dcp_join(struct ckpt_checkpoint *c, const struct torch_chunk *chunks, size_t n,
                   const struct ckpt_value *size, struct ckpt_tensor *out, struct ckpt_err *err) {
    struct join j = {.c = c, .chunk = chunks, .n = n, .err = err};
    if (n == 0)
        return ckpt_fail(err, -ENOTSUP, "lies in several chunks, none of which has elements");
    if (!pickle_is_seq(size) || size->seq.n < 1 || size->seq.n > CKPT_NDIM_MAX)
        return fail_chunk(&j, "the metadata has no shape for it");
    j.ndim = (uint32_t)size->seq.n;
    int64_t *const numbers = ckpt_arena_array(&c->arena, 3 * j.ndim, sizeof *numbers);
    struct ckpt_chunk *const placed = ckpt_arena_array(&c->arena, n, sizeof *placed);
    if (!numbers || !placed)
        return fail_memory(&j);
    j.shape = numbers;
    j.count = numbers + j.ndim;
    j.stride = j.count + j.ndim;
    if (!take_numbers(&j, size, j.shape))
        return fail_chunk(&j, "the metadata has no shape for it");
    int rc = find_corner(&j);
    if (rc == 0)
        rc = lay_grid(&j);
    if (rc == 0)
        rc = place_all(&j, placed);
    if (rc)
        return rc;
    out->dtype = j.corner->dtype;
    out->ndim = j.ndim;
    out->shape = j.shape;
    out->swap = j.corner->swap;
    out->conj = j.corner->conj;
    out->neg = j.corner->neg;
    rc = make_grid(&j, placed, out);
    if (rc == 0 && ckpt_checkpoint_add_blob(c, out->blob))
        rc = fail_memory(&j);
    return rc ? rc : ckpt_tensor_check(out, err);
}
