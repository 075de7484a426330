#include "formats/torch.h"

#include <errno.h>
#include <string.h>

#include "base/size.h"

/* From a tensor as the pickle describes it to one of the checkpoint's. */

/* torch's float4_e2m1fn_x2 counts bytes of two values each. Dense ones are shown as F4, whose last
 * dimension counts values; strided ones stay as they are. */
static int split_pairs(struct torch_reader *r, struct ckpt_tensor *t, struct ckpt_err *err) {
    if (t->dtype != CKPT_DT_F4_X2 || t->stride || t->ndim == 0 ||
        t->shape[t->ndim - 1] > INT64_MAX / 2)
        return 0;
    int64_t *shape = ckpt_arena_array(&r->c->arena, t->ndim, sizeof *shape);
    if (!shape)
        return ckpt_fail_memory(err, "reading tensors");
    for (uint32_t i = 0; i < t->ndim; i++)
        shape[i] = t->shape[i];
    shape[t->ndim - 1] *= 2;
    t->shape = shape;
    t->dtype = CKPT_DT_F4;
    return 0;
}

static bool is_contiguous(const struct torch_tensor *t) {
    int64_t step = 1;
    for (uint32_t i = t->ndim; i-- > 0;) {
        if (t->shape[i] != 1 && t->stride[i] != step)
            return false;
        if (!ckpt_mul_i64(step, t->shape[i], &step))
            return false;
    }
    return true;
}

/* Where its bytes are: enters the blob into the checkpoint at the first use. */
static int take_blob(struct torch_reader *r, const struct torch_tensor *t, struct ckpt_err *err) {
    struct torch_record *record = t->storage->record;
    if (record->error)
        return ckpt_fail(err, -EINVAL, "%s", record->error);
    if (record->listed)
        return 0;
    const int rc = ckpt_checkpoint_add_blob(r->c, record->blob);
    if (rc)
        return ckpt_fail_memory(err, "listing storages");
    record->listed = true;
    return 0;
}

/* The view as the pickle gives it, checked against its storage, which may be a part of the blob. */
static int describe(struct torch_reader *r, const struct torch_tensor *t, struct ckpt_tensor *out,
                    struct ckpt_err *err) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(t->dtype);
    const struct torch_storage *s = t->storage;
    struct ckpt_blob range = {.size = s->nbytes, .name = ""};
    uint64_t count = 0;
    out->dtype = t->dtype;
    out->ndim = t->ndim;
    out->shape = t->shape;
    out->stride = t->stride;
    out->blob = &range;
    if (ckpt_shape_count(t->shape, t->ndim, &count) && count == 0)
        out->stride = NULL; /* no element: neither strides nor offset matter */
    else if (!ckpt_mul_u64((uint64_t)t->offset, info->unit_bytes, &out->offset))
        return ckpt_fail(err, -EINVAL, "tensor \"%.*s\": its storage offset %lld overflows 64 bits",
                         CKPT_TEXT_ARGS(out->key), (long long)t->offset);
    const int rc = ckpt_tensor_check(out, err);
    out->blob = s->record->blob; /* the range is ours */
    if (rc)
        return rc;
    if (out->stride && is_contiguous(t))
        out->stride = NULL;
    out->offset += s->offset;
    return split_pairs(r, out, err);
}

static int convert(struct torch_reader *r, const struct torch_tensor *t, struct ckpt_tensor *out,
                   struct ckpt_err *err) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(t->dtype);
    int rc = t->error ? ckpt_fail(err, -EINVAL, "%s", t->error) : take_blob(r, t, err);
    if (rc)
        return ckpt_fail_in(err, "tensor \"%.*s\"", CKPT_TEXT_ARGS(out->key));
    rc = describe(r, t, out, err);
    out->swap = (t->swap || (r->big_endian && !t->is_numpy)) && info->component_bytes > 1;
    out->conj = t->conj && info->cls == CKPT_CLASS_COMPLEX;
    out->neg = t->neg;
    return rc;
}

/* "a.b.c" of a path; NULL text when out of memory. */
static struct ckpt_text join(struct ckpt_arena *a, struct ckpt_path path) {
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < path.n; i++)
        n += path.segment[i].n + 1;
    char *s = ckpt_arena_alloc(a, n + 1);
    for (uint32_t i = 0; s && i < path.n; i++) {
        if (i)
            s[at++] = '.';
        memcpy(s + at, path.segment[i].s, path.segment[i].n);
        at += path.segment[i].n;
    }
    return (struct ckpt_text){s, at};
}

static int leave_out(struct torch_reader *r, struct ckpt_path path, const char *reason,
                     struct ckpt_err *err) {
    const struct ckpt_text text = ckpt_text_copy(&r->c->arena, reason, strlen(reason));
    if (!text.s || ckpt_checkpoint_add_unsupported(r->c, path, text) != 0)
        return ckpt_fail_memory(err, "listing what is not supported");
    return 0;
}

int torch_tensor_describe(struct torch_reader *r, struct ckpt_path path,
                          const struct torch_tensor *t, struct ckpt_tensor *out,
                          struct ckpt_err *err) {
    *out = (struct ckpt_tensor){.path = path, .module = -1, .key = join(&r->c->arena, path)};
    return out->key.s ? convert(r, t, out, err) : ckpt_fail_memory(err, "reading tensors");
}

int torch_tensor_enter(struct ckpt_checkpoint *c, const struct ckpt_tensor *t,
                       struct ckpt_err *err) {
    if (c->ntensors >= CKPT_LIMIT_TENSORS)
        return ckpt_fail(err, -E2BIG, "more than %u tensors (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    struct ckpt_tensor *slot = ckpt_checkpoint_add_tensor(c);
    if (!slot)
        return ckpt_fail_memory(err, "reading tensors");
    *slot = *t;
    return 0;
}

int torch_tensor_add(struct torch_reader *r, struct ckpt_path path, const struct torch_tensor *t,
                     int32_t module, struct ckpt_err *err) {
    if (t->unsupported && !t->error)
        return leave_out(r, path, t->unsupported, err);
    struct ckpt_tensor made;
    struct ckpt_err bad;
    const int rc = torch_tensor_describe(r, path, t, &made, &bad);
    made.module = module;
    if (rc && r->options->keep_going && rc != -ENOMEM)
        return leave_out(r, path, bad.text, err);
    if (rc)
        return ckpt_fail(err, rc, "%s", bad.text);
    return torch_tensor_enter(r->c, &made, err);
}
