/*
 * A burnpack file. The metadata's length in its head is made right first, so that the fuzzer gets
 * behind it: the input's first two bytes say how much of the rest is CBOR. Property: that of
 * checkpoint_property.h, and no byte of the file belongs to two tensors.
 */
#include "checkpoint_property.h"
#include "formats/burnpack_header.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 20)

static int by_offset(const void *x, const void *y) {
    const struct ckpt_blob *a = *(struct ckpt_blob *const *)x, *b = *(struct ckpt_blob *const *)y;
    return (a->file_offset > b->file_offset) - (a->file_offset < b->file_offset);
}

static void check_disjoint(void) {
    struct ckpt_checkpoint *c = NULL;
    if (ckpt_checkpoint_open(path, NULL, &c, NULL) != 0)
        return;
    if (c->nblobs)
        qsort(c->blobs, c->nblobs, sizeof *c->blobs, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < c->nblobs; i++) {
        require(c->blobs[i]->size == 0 || c->blobs[i]->file_offset >= end);
        if (c->blobs[i]->size)
            end = c->blobs[i]->file_offset + c->blobs[i]->size;
    }
    ckpt_checkpoint_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > SIZE_MAX_FUZZED)
        return 0;
    const size_t rest = size - 2, wanted = data[0] | (size_t)data[1] << 8;
    const size_t n = wanted < rest ? wanted : rest, start = (size_t)ckpt_bpk_data_start(n);
    CKPT_AUTO(free) uint8_t *file = calloc(1, start + rest - n);
    if (!file)
        return 0;
    const uint8_t head[CKPT_BPK_HEADER] = {'N', 'R', 'U', 'B', 1, 0, (uint8_t)n, (uint8_t)(n >> 8)};
    memcpy(file, head, sizeof head);
    memcpy(file + sizeof head, data + 2, n);
    memcpy(file + start, data + 2 + n, rest - n);
    check_file_twice(file, start + rest - n);
    check_disjoint();
    return 0;
}
