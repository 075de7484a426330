/*
 * Manifests and nodes of OCDBT: the first byte says which, and whether the rest is a body or comes
 * in its envelope, whose length and checksum are made right. Properties: what is accepted refers
 * only to its files, whose paths stay below the database's folder; a node's keys rise, prefixes and
 * inline values lie in them; an accepted input that is cut short is not accepted.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "formats/ocdbt.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 16)

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_files(const struct ckpt_ocdbt_files *files) {
    for (size_t i = 0; i < files->n; i++) {
        const struct ckpt_text path = files->file[i].path;
        require(path.n == 0 || path.s[0] != '/');
        require(files->file[i].base.n <= path.n);
        require(!ckpt_text_is(path, "..") && !ckpt_text_starts(path, "../") &&
                !ckpt_text_ends(path, "/.."));
        require(memmem(path.s, path.n, "/../", 4) == NULL);
    }
}

static bool check_manifest(const uint8_t *body, size_t n) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_ocdbt_manifest m;
    if (ckpt_ocdbt_parse_manifest(body, n, &arena, &m, NULL) != 0)
        return false;
    check_files(&m.files);
    return true;
}

static bool check_node(const uint8_t *body, size_t n) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_ocdbt_node node;
    if (ckpt_ocdbt_parse_node(body, n, CKPT_TEXT("base/"), &arena, &node, NULL) != 0)
        return false;
    require(node.n > 0);
    check_files(&node.files);
    for (size_t i = 0; i < node.n; i++) {
        const struct ckpt_ocdbt_entry *const e = &node.entry[i];
        require(i == 0 || ckpt_text_cmp(node.entry[i - 1].key, e->key) < 0);
        require(e->prefix <= e->key.n);
        if (e->value)
            require(e->value >= body && e->value + e->ref.length <= body + n);
        else
            require(e->ref.file < node.files.n);
    }
    return true;
}

static void check_wrapped(uint8_t *bytes, size_t n, enum ckpt_ocdbt_magic magic) {
    uint8_t *body = NULL;
    size_t body_n = 0;
    if (n < 18)
        return;
    for (unsigned i = 0; i < 4; i++)
        bytes[i] = (uint8_t)((uint32_t)magic >> (24 - 8 * i));
    for (unsigned i = 0; i < 8; i++)
        bytes[4 + i] = (uint8_t)((uint64_t)n >> (8 * i));
    const uint32_t crc = ckpt_crc32c(0, bytes, n - 4);
    for (unsigned i = 0; i < 4; i++)
        bytes[n - 4 + i] = (uint8_t)(crc >> (8 * i));
    if (ckpt_ocdbt_unwrap(bytes, n, magic, SIZE_MAX_FUZZED, &body, &body_n, NULL) != 0)
        return;
    require(body_n <= SIZE_MAX_FUZZED);
    (void)(magic == CKPT_OCDBT_NODE ? check_node(body, body_n) : check_manifest(body, body_n));
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > SIZE_MAX_FUZZED)
        return 0;
    const bool is_node = data[0] & 1;
    CKPT_AUTO(free) uint8_t *copy = malloc(size - 1);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 2) {
        check_wrapped(copy, size - 1, is_node ? CKPT_OCDBT_NODE : CKPT_OCDBT_MANIFEST);
        return 0;
    }
    bool (*const check)(const uint8_t *, size_t) = is_node ? check_node : check_manifest;
    if (check(copy, size - 1))
        require(!check(copy, size - 2));
    return 0;
}
