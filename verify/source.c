/* Reading parameters: a block of elements at a time is copied together, then converted. */
#include "verify/source.h"

#include <errno.h>
#include <string.h>

#include "adapters/gather.h"
#include "base/cleanup.h"
#include "base/guard.h"
#include "verify/convert.h"

#define BLOCK 1024 /* elements: offsets and bytes stay in the first-level cache */
#define ELEMENT_MAX 16

/* A constant width lets the compiler turn the copy into one load and one store. */
#define COPY_EACH(width)                                                                           \
    for (int64_t i = 0; i < n; i++)                                                                \
        memcpy(to + i * (width), first + offsets[i], (width));                                     \
    break

static void copy_offsets(const uint8_t *first, uint32_t unit, const int64_t *offsets, int64_t n,
                         uint8_t *to) {
    switch (unit) {
    case 1:
        COPY_EACH(1);
    case 2:
        COPY_EACH(2);
    case 4:
        COPY_EACH(4);
    case 8:
        COPY_EACH(8);
    default:
        COPY_EACH(unit);
    }
}

/* Functions of their own, so that no local of a caller lives across the guard. */
static int guarded_copy(const uint8_t *from, size_t n, uint8_t *to) {
    int rc;
    CKPT_GUARDED(rc, { memcpy(to, from, n); });
    return rc;
}

static int guarded_offsets(const struct ckpt_naive *n, const int64_t *offsets, int64_t count,
                           uint8_t *to) {
    int rc;
    CKPT_GUARDED(rc, { copy_offsets(n->first, n->unit, offsets, count, to); });
    return rc;
}

/* Reverses the bytes of each component. */
static void swap_bytes(uint8_t *p, int64_t n, uint32_t width) {
    for (int64_t i = 0; i < n; i++, p += width)
        for (uint32_t k = 0; k < width / 2; k++) {
            const uint8_t kept = p[k];
            p[k] = p[width - 1 - k];
            p[width - 1 - k] = kept;
        }
}

/* A float's sign is the top bit of its last byte. */
static void negate_floats(uint8_t *p, int64_t n, uint32_t width) {
    for (int64_t i = 0; i < n; i++)
        p[i * width + width - 1] ^= 0x80;
}

int ckpt_source_raw(const struct ckpt_naive *n, int64_t from, int64_t count, uint8_t *to,
                    struct ckpt_err *err) {
    int64_t offsets[BLOCK];
    int rc = 0;
    if (n->dense && count > 0)
        rc = guarded_copy(n->first + from * n->unit, (size_t)(count * n->unit), to);
    for (int64_t done = 0; rc == 0 && !n->dense && done < count; done += BLOCK) {
        const int64_t block = count - done < BLOCK ? count - done : BLOCK;
        ckpt_naive_offsets(n, from + done, block, offsets);
        rc = guarded_offsets(n, offsets, block, to + done * n->unit);
    }
    return rc == 0 ? 0
                   : ckpt_fail(err, rc, "tensor \"%.*s\": its bytes are no longer in the source",
                               CKPT_TEXT_ARGS(n->source->key));
}

int ckpt_source_copy(const struct ckpt_naive *n, int64_t from, int64_t count, uint8_t *to,
                     struct ckpt_err *err) {
    const struct ckpt_dtype_info *const info = ckpt_dtype_info(n->source->dtype);
    const int rc = ckpt_source_raw(n, from, count, to, err);
    if (rc < 0)
        return rc;
    if (n->source->swap)
        swap_bytes(to, count * (n->unit / info->component_bytes), info->component_bytes);
    if (n->source->neg && ckpt_convert_is_float(n->source->dtype))
        negate_floats(to, count, n->unit);
    return 0;
}

int ckpt_source_floats(const struct ckpt_naive *naive, int64_t first, int64_t n, float *out,
                       struct ckpt_err *err) {
    const enum ckpt_dtype dtype = naive->source->dtype;
    uint8_t bytes[BLOCK * ELEMENT_MAX];
    int rc = 0;
    if (dtype == CKPT_DT_F32)
        return ckpt_source_copy(naive, first, n, (uint8_t *)out, err);
    for (int64_t done = 0; rc == 0 && done < n; done += BLOCK) {
        const int64_t block = n - done < BLOCK ? n - done : BLOCK;
        rc = ckpt_source_copy(naive, first + done, block, bytes, err);
        if (rc == 0)
            ckpt_convert_f32(dtype, bytes, block, out + done);
    }
    return rc;
}

static int read_source(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                       struct ckpt_err *err) {
    return ckpt_source_floats(p->from, first, n, out, err);
}

static int read_joined(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                       struct ckpt_err *err) {
    return ckpt_source_joined_read(p->from, first, n, out, err);
}

static int read_norm(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                     struct ckpt_err *err) {
    const struct ckpt_naive_norm *const norm = p->from;
    uint8_t bytes[BLOCK * sizeof(double)];
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < n; done += BLOCK) {
        const int64_t block = n - done < BLOCK ? n - done : BLOCK;
        rc = ckpt_naive_norm_read(norm, first + done, block, bytes, err);
        if (rc == 0)
            ckpt_convert_f32(norm->v.source->dtype, bytes, block, out + done);
    }
    return rc;
}

static int read_lora(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                     struct ckpt_err *err) {
    return ckpt_naive_lora_read(p->from, first, n, out, NULL, err);
}

static int set_shape(struct ckpt_param *p, const int64_t *shape, uint32_t ndim,
                     enum ckpt_dtype dtype, struct ckpt_err *err) {
    if (ndim > CKPT_ARRAY_NDIM_MAX)
        return ckpt_fail(err, -EOPNOTSUPP, "%.*s has %u dimensions; the checker handles %d",
                         CKPT_TEXT_ARGS(p->name), ndim, CKPT_ARRAY_NDIM_MAX);
    if (!ckpt_convert_is_float(dtype))
        return ckpt_fail(err, -EOPNOTSUPP, "%.*s is %s: no forward is computed from it",
                         CKPT_TEXT_ARGS(p->name), ckpt_dtype_info(dtype)->name);
    p->ndim = ndim;
    for (uint32_t d = 0; d < ndim; d++)
        p->shape[d] = shape[d];
    return 0;
}

static int init_joined(struct ckpt_source_param *s, const struct ckpt_adapted *t,
                       struct ckpt_err *err) {
    const struct ckpt_joined *const j = t->joined;
    s->param = (struct ckpt_param){.name = t->torch_key, .read = read_joined, .from = &s->joined};
    const int rc = set_shape(&s->param, j->shape, j->ndim, t->map.from, err);
    return rc < 0 ? rc : ckpt_source_joined_init(&s->joined, j, err);
}

static int init_one(struct ckpt_source_param *s, const struct ckpt_adapted *t,
                    struct ckpt_err *err) {
    if (t->nparts != 1 || !t->part[0].source)
        return ckpt_fail(err, -EOPNOTSUPP, "a rule makes %.*s of several tensors",
                         CKPT_TEXT_ARGS(t->torch_key));
    const struct ckpt_part *const part = &t->part[0];
    s->param = (struct ckpt_param){.name = t->torch_key, .read = read_source, .from = &s->naive};
    int rc = ckpt_naive_init(&s->naive, part->source, part->op, part->ntorch, err);
    if (rc < 0)
        return rc;
    const struct ckpt_naive_shape *const shape = ckpt_naive_result(&s->naive);
    rc = set_shape(&s->param, shape->size, shape->ndim, part->source->dtype, err);
    if (rc < 0)
        return rc;
    const struct ckpt_weight_norm *const of = ckpt_weight_norm_of(part->source->blob);
    const struct ckpt_lora *const lora = ckpt_lora_of(part->source->blob);
    if (lora) {
        s->param.read = read_lora;
        s->param.from = &s->lora;
        return ckpt_naive_lora_init(&s->lora, lora, part->op, part->ntorch, err);
    }
    if (!of)
        return ckpt_naive_pin(&s->naive, err);
    s->param.read = read_norm;
    s->param.from = &s->norm;
    return ckpt_naive_norm_init(&s->norm, of, part->op, part->ntorch, err);
}

/* As torch casts, by way of float32. */
static int read_cast(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                     struct ckpt_err *err) {
    const struct ckpt_source_param *const s = p->from;
    const struct ckpt_element_map map = {.from = CKPT_DT_F32, .to = s->to};
    uint8_t bytes[ELEMENT_MAX];
    const int rc = s->exact.read(&s->exact, first, n, out, err);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        ckpt_element_convert(&map, (const uint8_t *)&out[i], bytes);
        ckpt_convert_f32(s->to, bytes, 1, &out[i]);
    }
    return rc;
}

int ckpt_source_param_init(struct ckpt_source_param *s, const struct ckpt_adapted *t, bool cast,
                           struct ckpt_err *err) {
    memset(s, 0, sizeof(*s));
    const int rc = t->joined ? init_joined(s, t, err) : init_one(s, t, err);
    if (rc < 0 || !cast || t->map.from == t->map.to || t->map.to == CKPT_DT_F64)
        return rc;
    s->exact = s->param;
    s->to = t->map.to;
    s->param.read = read_cast;
    s->param.from = s;
    return 0;
}

void ckpt_source_param_fini(struct ckpt_source_param *s) {
    ckpt_source_joined_fini(&s->joined);
    ckpt_naive_fini(&s->naive);
    ckpt_naive_norm_fini(&s->norm);
    ckpt_naive_lora_fini(&s->lora);
}

#define SERVED_BLOCK 65536 /* bytes: a request's own cost is small beside it */

static int read_served(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                       struct ckpt_err *err) {
    const struct ckpt_served_param *const s = p->from;
    const enum ckpt_dtype dtype = s->tensor->dtype;
    const int64_t unit = ckpt_dtype_info(dtype)->unit_bytes;
    uint8_t bytes[SERVED_BLOCK];
    int rc = 0;
    if (dtype == CKPT_DT_F32)
        return ckpt_reader_read(s->reader, s->tensor, (uint64_t)(first * unit), (size_t)(n * unit),
                                out, err);
    for (int64_t done = 0, block; rc == 0 && done < n; done += block) {
        block = n - done < SERVED_BLOCK / unit ? n - done : SERVED_BLOCK / unit;
        rc = ckpt_reader_read(s->reader, s->tensor, (uint64_t)((first + done) * unit),
                              (size_t)(block * unit), bytes, err);
        if (rc == 0)
            ckpt_convert_f32(dtype, bytes, block, out + done);
    }
    return rc;
}

int ckpt_served_param_init(struct ckpt_served_param *s, struct ckpt_reader *reader,
                           const struct ckpt_adapted *t, struct ckpt_err *err) {
    *s = (struct ckpt_served_param){.reader = reader, .tensor = t};
    s->param = (struct ckpt_param){.name = t->key, .read = read_served, .from = s};
    return set_shape(&s->param, t->shape, t->ndim, t->dtype, err);
}

/* ---- whole tensors ---- */

static int load_converted(const struct ckpt_naive *n, struct ckpt_array *out,
                          struct ckpt_err *err) {
    const enum ckpt_dtype dtype = n->source->dtype;
    uint8_t bytes[BLOCK * ELEMENT_MAX];
    int rc = 0;
    for (int64_t done = 0; rc == 0 && done < n->count; done += BLOCK) {
        const int64_t block = n->count - done < BLOCK ? n->count - done : BLOCK;
        rc = ckpt_source_copy(n, done, block, bytes, err);
        if (rc == 0 && out->dtype == CKPT_DT_F64)
            memcpy((double *)out->data + done, bytes, (size_t)block * sizeof(double));
        else if (rc == 0 && out->dtype == CKPT_DT_F32)
            ckpt_convert_f32(dtype, bytes, block, ckpt_array_f32(out) + done);
        else if (rc == 0 && out->dtype == CKPT_DT_BOOL)
            for (int64_t i = 0; i < block; i++)
                ckpt_array_bool(out)[done + i] = bytes[i] != 0;
        else if (rc == 0)
            ckpt_convert_i64(dtype, bytes, block, ckpt_array_i64(out) + done);
    }
    return rc;
}

int ckpt_source_load(const struct ckpt_tensor *t, bool wide, struct ckpt_memory *memory,
                     struct ckpt_array *out, struct ckpt_err *err) {
    memset(out, 0, sizeof(*out));
    const enum ckpt_dtype to =
        t->dtype == CKPT_DT_F64 && !wide ? CKPT_DT_F32 : ckpt_array_dtype(t->dtype);
    if (to == CKPT_DT_NONE)
        return ckpt_fail(err, -EOPNOTSUPP, "tensor \"%.*s\" is %s, which the checker can't use",
                         CKPT_TEXT_ARGS(t->key), ckpt_dtype_info(t->dtype)->name);
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    int rc = ckpt_naive_init(&n, t, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_array_new(out, memory, to, t->shape, t->ndim, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&n, err);
    if (rc == 0)
        rc = load_converted(&n, out, err);
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}

/* ---- two tensors ---- */

static int compare_blocks(const struct ckpt_naive *a, const struct ckpt_naive *b, bool *differs,
                          struct ckpt_err *err) {
    uint8_t bytes[2][BLOCK * ELEMENT_MAX];
    int rc = 0;
    for (int64_t done = 0; rc == 0 && !*differs && done < a->count; done += BLOCK) {
        const int64_t n = a->count - done < BLOCK ? a->count - done : BLOCK;
        rc = ckpt_source_copy(a, done, n, bytes[0], err);
        if (rc == 0)
            rc = ckpt_source_copy(b, done, n, bytes[1], err);
        *differs = rc == 0 && memcmp(bytes[0], bytes[1], (size_t)n * a->unit) != 0;
    }
    return rc;
}

int ckpt_source_differs(const struct ckpt_tensor *a, const struct ckpt_tensor *b, bool *differs,
                        struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive first = {0}, second = {0};
    *differs = a->dtype != b->dtype || a->ndim != b->ndim ||
               (a->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) != 0);
    if (*differs)
        return 0;
    int rc = ckpt_naive_init(&first, a, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_init(&second, b, NULL, 0, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&first, err);
    if (rc == 0)
        rc = ckpt_naive_pin(&second, err);
    if (rc == -EOPNOTSUPP)
        return 0; /* elements below a byte: the byte check does without them, too */
    return rc < 0 ? rc : compare_blocks(&first, &second, differs, err);
}
