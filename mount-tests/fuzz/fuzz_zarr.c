/*
 * zarr metadata and a chunk decoded by it. The input is JSON up to a zero byte, then the stored
 * chunk; the first byte says which version. Properties: accepted metadata has a dtype, chunks of
 * positive size, and strides that stay in the chunk; the key of each chunk names its number;
 * decoding fills exactly the chunk or fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/zarr.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 16)
#define CHUNK_MOST ((uint64_t)1 << 20)

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_layout(const struct ckpt_zarr *z) {
    const unsigned es = ckpt_dtype_info(z->dtype)->unit_bytes;
    uint64_t last = 0;
    for (uint32_t d = 0; d < z->ndim; d++) {
        require(z->shape[d] >= 0 && z->chain.shape[d] > 0 && z->chain.stride[d] > 0);
        last += (uint64_t)(z->chain.shape[d] - 1) * (uint64_t)z->chain.stride[d];
    }
    require((last + 1) * es == z->chain.bytes);
}

/* The key of the array's last chunk. */
static void check_key(const struct ckpt_zarr *z) {
    CKPT_AUTO(str) struct ckpt_str key = {0};
    uint64_t count = 1, number = 0;
    ckpt_str_puts(&key, z->has_c ? "c" : z->ndim ? "" : "0");
    for (uint32_t d = 0; d < z->ndim; d++) {
        const int64_t n = (z->shape[d] + z->chain.shape[d] - 1) / z->chain.shape[d];
        if (n == 0 || z->shape[d] > INT32_MAX || __builtin_mul_overflow(count, (uint64_t)n, &count))
            return;
        if (d || z->has_c)
            ckpt_str_add(&key, &z->separator, 1);
        ckpt_str_i64(&key, n - 1);
    }
    require(ckpt_zarr_chunk_number(z, ckpt_str_text(&key), &number) && number == count - 1);
    ckpt_str_puts(&key, "0");
    require(!ckpt_zarr_chunk_number(z, ckpt_str_text(&key), &number) || number < count);
}

static void check_decoding(const struct ckpt_zarr *z, const uint8_t *stored, size_t n) {
    const struct ckpt_stored value = ckpt_stored_memory(stored, n);
    if (z->chain.bytes > CHUNK_MOST || ckpt_zarr_chain_can(&z->chain, n, NULL) != 0)
        return;
    uint8_t *const out = malloc((size_t)z->chain.bytes);
    require(out != NULL);
    (void)!ckpt_zarr_decode(z, &value, out, NULL, NULL);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_zarr z;
    if (size < 2 || size > SIZE_MAX_FUZZED)
        return 0;
    const uint8_t *const json = data + 1, *const zero = memchr(json, 0, size - 1);
    const size_t n = zero ? (size_t)(zero - json) : size - 1;
    if (ckpt_zarr_parse(json, n, data[0] & 1 ? 3 : 2, &arena, &z, NULL) != 0)
        return 0;
    require(z.dtype != CKPT_DT_NONE && z.ndim <= CKPT_ZARR_NDIM_MAX);
    check_layout(&z);
    check_key(&z);
    if (zero)
        check_decoding(&z, zero + 1, size - 2 - n);
    return 0;
}
