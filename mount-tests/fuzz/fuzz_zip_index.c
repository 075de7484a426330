/*
 * The ZIP reader on any bytes. Property: of an accepted archive every entry's bytes lie inside the
 * file, no two entries overlap, no name occurs twice; reading an entry ends in its bytes or an
 * error.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "formats/zip.h"

#define READ_MAX ((uint64_t)1 << 20)

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_extents(const struct ckpt_zip *zip, uint64_t size) {
    for (size_t i = 0; i < zip->nentries; i++) {
        const struct ckpt_zip_entry *e = &zip->entry[i];
        require(e->stored <= size && e->data <= size - e->stored && e->header <= e->data);
        require(e->deflated || e->stored == e->size);
        require(ckpt_zip_find(zip, e->name) == e);
        for (size_t k = 0; k < i && e->stored; k++) {
            const struct ckpt_zip_entry *o = &zip->entry[k];
            require(!o->stored || o->data + o->stored <= e->header ||
                    e->data + e->stored <= o->header);
        }
    }
}

static void read_entry(const struct ckpt_zip *zip, const struct ckpt_zip_entry *e) {
    struct ckpt_arena arena = {0};
    struct ckpt_text text;
    struct ckpt_blob *blob;
    struct ckpt_err err = {0};
    struct ckpt_decoded_cache *cache;
    require(ckpt_decoded_cache_new(READ_MAX, &cache, &err) == 0);
    const int rc = ckpt_zip_read(zip, e, READ_MAX, &arena, &text, &err);
    require(rc == 0 ? text.n == e->size : err.text[0] != '\0');
    if (e->size <= READ_MAX && ckpt_zip_blob(zip, e, cache, &arena, "entry", &blob, &err) == 0) {
        struct ckpt_pin pin;
        require(blob->size == e->size);
        if (blob->ops->pin(blob, 0, blob->size, &pin, NULL, &err) == 0) {
            require(rc != 0 || memcmp(pin.data, text.s, text.n) == 0);
            blob->ops->unpin(blob, &pin);
        }
        (void)blob->ops->check(blob, NULL, &err);
        if (blob->ops->fini)
            blob->ops->fini(blob);
    }
    ckpt_decoded_cache_free(cache);
    ckpt_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct ckpt_file file = {.fd = -1, .name = "input", .size = size, .data = data};
    struct ckpt_arena arena = {0};
    CKPT_AUTO(zip) struct ckpt_zip zip = {0};
    struct ckpt_err err = {0};
    const int rc = ckpt_zip_open(&file, &arena, &zip, &err);
    require(rc == 0 || err.text[0] != '\0');
    if (rc == 0) {
        check_extents(&zip, size);
        for (size_t i = 0; i < zip.nentries; i++)
            read_entry(&zip, &zip.entry[i]);
    }
    ckpt_arena_fini(&arena);
    return 0;
}
