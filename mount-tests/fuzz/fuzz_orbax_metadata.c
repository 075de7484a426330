/*
 * The JSON that describes an item of Orbax, read as each of the three files. Property: every leaf
 * has a path, whose segments are texts; every string has its name.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "formats/orbax.h"

#define SIZE_MAX_FUZZED ((size_t)1 << 16)

static void require(bool condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    struct ckpt_orbax_metadata m;
    struct ckpt_orbax_strings strings = {0};
    if (size > SIZE_MAX_FUZZED)
        return 0;
    if (ckpt_orbax_parse_metadata(data, size, &arena, &m, NULL) == 0)
        for (size_t i = 0; i < m.n; i++) {
            require(m.leaf[i].type.s != NULL);
            for (uint32_t k = 0; k < m.leaf[i].path.n; k++)
                require(m.leaf[i].path.segment[k].s != NULL);
        }
    if (ckpt_orbax_parse_strings(data, size, &arena, &strings, NULL) == 0)
        require(strings.map.count == strings.n);
    ckpt_strmap_fini(&strings.map);
    (void)ckpt_orbax_is_unfinished(data, size);
    return 0;
}
