/*
 * The JSON that describes an item of Orbax, read as each of the three files. Property: every leaf
 * has a path, whose segments are texts; every string has its name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/orbax.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 16)

static void require(bool condition) {
    if (!condition)
        abort();
}

/* A text that may be overwritten, with nothing behind it. */
static char *copy(const uint8_t *data, size_t size) {
    char *const text = malloc(size);
    require(text || size == 0);
    if (size)
        memcpy(text, data, size);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_orbax_metadata m;
    struct ckpt_orbax_strings strings = {0};
    if (size > SIZE_MAX_FUZZED)
        return 0;
    CKPT_AUTO(free) char *first = copy(data, size), *second = copy(data, size);
    if (ckpt_orbax_parse_metadata(first, size, &arena, &m, NULL) == 0)
        for (size_t i = 0; i < m.n; i++) {
            require(m.leaf[i].type.s != NULL);
            for (uint32_t k = 0; k < m.leaf[i].path.n; k++)
                require(m.leaf[i].path.segment[k].s != NULL);
        }
    if (ckpt_orbax_parse_strings(second, size, &arena, &strings, NULL) == 0)
        require(strings.map.count == strings.n);
    ckpt_strmap_fini(&strings.map);
    (void)ckpt_orbax_is_unfinished(data, size);
    return 0;
}
