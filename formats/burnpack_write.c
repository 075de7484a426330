#include "formats/burnpack_write.h"

#include <errno.h>
#include <inttypes.h>

#include "base/size.h"
#include "formats/burnpack_header.h"
#include "formats/cbor.h"

bool ckpt_bpk_can_hold(enum ckpt_dtype t) {
    return ckpt_bpk_dtype_name(t) != NULL;
}

/* Gives every item its offset from where the data begins. */
static int place(struct ckpt_header_item *items, size_t n, struct ckpt_err *err) {
    const uint64_t a = CKPT_BPK_ALIGNMENT;
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ckpt_bpk_can_hold(items[i].dtype))
            return ckpt_fail(err, -EINVAL, "tensor \"%.*s\": burnpack has no dtype %s",
                             CKPT_TEXT_ARGS(items[i].key), ckpt_dtype_info(items[i].dtype)->name);
        if (!ckpt_add_u64(end, a - 1, &end))
            end = UINT64_MAX;
        items[i].offset = end / a * a;
        if (!ckpt_add_u64(items[i].offset, items[i].nbytes, &end) || end > INT64_MAX)
            return ckpt_fail(err, -E2BIG,
                             "tensor \"%.*s\": the file would be larger than 2^63 bytes",
                             CKPT_TEXT_ARGS(items[i].key));
    }
    return 0;
}

/* "F32", or {"Bool": "Native"}. */
static void write_dtype(struct ckpt_str *out, enum ckpt_dtype t) {
    if (t == CKPT_DT_BOOL)
        ckpt_cborw_map(out, 1);
    ckpt_cborw_text(out, ckpt_text_of(ckpt_bpk_dtype_name(t)));
    if (t == CKPT_DT_BOOL)
        ckpt_cborw_text(out, CKPT_TEXT("Native"));
}

static void write_item(struct ckpt_str *out, const struct ckpt_header_item *item) {
    ckpt_cborw_text(out, item->key);
    ckpt_cborw_map(out, 3);
    ckpt_cborw_text(out, CKPT_TEXT("dtype"));
    write_dtype(out, item->dtype);
    ckpt_cborw_text(out, CKPT_TEXT("shape"));
    ckpt_cborw_array(out, item->ndim);
    for (uint32_t i = 0; i < item->ndim; i++)
        ckpt_cborw_u64(out, (uint64_t)item->shape[i]);
    ckpt_cborw_text(out, CKPT_TEXT("data_offsets"));
    ckpt_cborw_array(out, 2);
    ckpt_cborw_u64(out, item->offset);
    ckpt_cborw_u64(out, item->offset + item->nbytes);
}

static void write_metadata(struct ckpt_str *out, const struct ckpt_pair *pairs, size_t n) {
    ckpt_cborw_text(out, CKPT_TEXT("metadata"));
    ckpt_cborw_map(out, n);
    for (size_t i = 0; i < n; i++) {
        ckpt_cborw_text(out, pairs[i].key);
        ckpt_cborw_text(out, pairs[i].value);
    }
}

static void put_le(char *at, uint64_t v, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        at[i] = (char)(v >> (8 * i) & 0xff);
}

/* Puts the length of the metadata into the head, and zeros behind it; *size becomes the header's.
 */
static int finish(struct ckpt_str *out, uint64_t start, uint64_t *size, struct ckpt_err *err) {
    static const char zeros[CKPT_BPK_ALIGNMENT];
    const uint64_t written = ckpt_str_total(out) - start, length = written - CKPT_BPK_HEADER;
    if (length > UINT32_MAX)
        return ckpt_fail(err, -E2BIG,
                         "the metadata of the burnpack would have %" PRIu64
                         " bytes, more than its length can say",
                         length);
    *size = ckpt_bpk_data_start(length);
    ckpt_str_add(out, zeros, (size_t)(*size - written));
    if (out->failed)
        return ckpt_fail_memory(err, "writing a burnpack's header");
    if (!out->sink)
        put_le(out->s + start + CKPT_BPK_HEADER - 4, length, 4);
    return 0;
}

int ckpt_bpk_write_header(struct ckpt_str *out, struct ckpt_header_item *items, size_t n,
                          const struct ckpt_pair *metadata, size_t nmetadata,
                          struct ckpt_err *err) {
    const uint64_t start = ckpt_str_total(out);
    uint64_t size = 0;
    int rc = place(items, n, err);
    if (rc)
        return rc;
    ckpt_str_add(out, CKPT_BPK_MAGIC "\1\0\0\0\0\0", CKPT_BPK_HEADER);
    ckpt_cborw_map(out, nmetadata ? 2 : 1);
    ckpt_cborw_text(out, CKPT_TEXT("tensors"));
    ckpt_cborw_map(out, n);
    for (size_t i = 0; i < n; i++)
        write_item(out, &items[i]);
    if (nmetadata)
        write_metadata(out, metadata, nmetadata);
    rc = finish(out, start, &size, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        items[i].offset += size;
    return rc;
}
