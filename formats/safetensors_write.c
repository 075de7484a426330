#include "formats/safetensors_write.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "formats/limits.h"

bool ckpt_st_can_hold(enum ckpt_dtype t) {
    return ckpt_dtype_info(t)->in_safetensors;
}

/* Sets *end to the byte behind the item's data; its data begins at the old *end. */
static int check_item(const struct ckpt_header_item *item, uint64_t *end, struct ckpt_err *err) {
    const struct ckpt_dtype_info *d = ckpt_dtype_info(item->dtype);
    uint64_t count, bytes;
    if (!d->in_safetensors)
        return ckpt_fail(err, -EINVAL, "tensor \"%.*s\": safetensors has no dtype %s",
                         CKPT_TEXT_ARGS(item->key), d->name);
    if (ckpt_text_is(item->key, "__metadata__"))
        return ckpt_fail(err, -EINVAL,
                         "a tensor named \"__metadata__\" cannot be in a safetensors file: rename "
                         "it (map=)");
    if (!ckpt_shape_count(item->shape, item->ndim, &count) ||
        !ckpt_dtype_bytes(item->dtype, count, &bytes) || bytes != item->nbytes)
        return ckpt_fail(err, -EINVAL,
                         "tensor \"%.*s\": its shape does not need the %" PRIu64 " bytes it has",
                         CKPT_TEXT_ARGS(item->key), item->nbytes);
    if (!ckpt_add_u64(*end, bytes, end))
        return ckpt_fail(err, -E2BIG, "tensor \"%.*s\": the file would be larger than 2^64 bytes",
                         CKPT_TEXT_ARGS(item->key));
    return 0;
}

static void write_item(struct ckpt_json_out *w, const struct ckpt_header_item *item,
                       uint64_t begin) {
    ckpt_jsonw_key_text(w, item->key);
    ckpt_jsonw_object(w);
    ckpt_jsonw_key(w, "dtype");
    ckpt_jsonw_string(w, ckpt_dtype_info(item->dtype)->name);
    ckpt_jsonw_key(w, "shape");
    ckpt_jsonw_array(w);
    for (uint32_t i = 0; i < item->ndim; i++)
        ckpt_jsonw_i64(w, item->shape[i]);
    ckpt_jsonw_array_end(w);
    ckpt_jsonw_key(w, "data_offsets");
    ckpt_jsonw_array(w);
    ckpt_jsonw_u64(w, begin);
    ckpt_jsonw_u64(w, begin + item->nbytes);
    ckpt_jsonw_array_end(w);
    ckpt_jsonw_object_end(w);
}

static void write_metadata(struct ckpt_json_out *w, const struct ckpt_pair *pairs, size_t n) {
    if (n == 0)
        return;
    ckpt_jsonw_key(w, "__metadata__");
    ckpt_jsonw_object(w);
    for (size_t i = 0; i < n; i++) {
        ckpt_jsonw_key_text(w, pairs[i].key);
        ckpt_jsonw_text(w, pairs[i].value);
    }
    ckpt_jsonw_object_end(w);
}

/* Pads the header that began at `start` and puts its length into the 8 bytes kept free for it. */
static int finish(struct ckpt_str *out, uint64_t start, struct ckpt_err *err) {
    while ((ckpt_str_total(out) - start) % 8 && !out->failed)
        ckpt_str_puts(out, " ");
    if (out->failed)
        return ckpt_fail_memory(err, "writing a safetensors header");
    const uint64_t length = ckpt_str_total(out) - start - 8;
    if (length > CKPT_LIMIT_HEADER_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "the safetensors header would have %" PRIu64 " bytes, its limit is %u",
                         length, CKPT_LIMIT_HEADER_BYTES);
    for (unsigned i = 0; i < 8 && !out->sink; i++)
        out->s[start + i] = (char)(length >> (8 * i) & 0xff);
    return 0;
}

int ckpt_st_write_header(struct ckpt_str *out, struct ckpt_header_item *items, size_t n,
                         const struct ckpt_pair *metadata, size_t nmetadata, struct ckpt_err *err) {
    const uint64_t start = ckpt_str_total(out);
    struct ckpt_json_out w = {.out = out};
    ckpt_str_add(out, "\0\0\0\0\0\0\0\0", 8);
    ckpt_jsonw_object(&w);
    write_metadata(&w, metadata, nmetadata);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        items[i].offset = end;
        const int rc = check_item(&items[i], &end, err);
        if (rc)
            return rc;
        write_item(&w, &items[i], items[i].offset);
    }
    ckpt_jsonw_object_end(&w);
    const int rc = finish(out, start, err);
    for (size_t i = 0; !rc && i < n; i++)
        items[i].offset += ckpt_str_total(out) - start;
    return rc;
}
