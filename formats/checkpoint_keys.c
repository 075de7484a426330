#include "formats/checkpoint.h"

#include <errno.h>
#include <inttypes.h>

/* Keys are written into every tree and every JSON file that is made of them, and each dot is a
 * folder: what they may weigh is bounded, one by one and together. */

struct weight {
    size_t bytes, levels;
};

static int weigh_path(struct weight *all, struct ckpt_path p, struct ckpt_err *err) {
    size_t n = 0;
    for (uint32_t i = 0; i < p.n; i++) {
        n += p.segment[i].n + (i > 0);
        for (size_t k = 0; k < p.segment[i].n; k++)
            all->levels += p.segment[i].s[k] == '.';
    }
    all->levels += p.n;
    all->bytes += n;
    if (n > CKPT_LIMIT_KEY_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "the key \"%.*s...\" has %zu bytes, the limit is %u (limit of key bytes)",
                         p.segment[0].n < 40 ? (int)p.segment[0].n : 40, p.segment[0].s, n,
                         CKPT_LIMIT_KEY_BYTES);
    if (all->bytes > CKPT_LIMIT_KEYS_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "the keys have more than %u bytes together (limit of all keys' bytes)",
                         CKPT_LIMIT_KEYS_BYTES);
    if (all->levels > CKPT_LIMIT_KEYS_LEVELS)
        return ckpt_fail(err, -E2BIG,
                         "the keys name more than %u folders and files (limit of all keys' levels)",
                         CKPT_LIMIT_KEYS_LEVELS);
    return 0;
}

static int weigh_notes(struct weight *all, const struct ckpt_note *note, size_t n,
                       struct ckpt_err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = weigh_path(all, note[i].path, err);
    return rc;
}

/* So that the limit of memory is one of what a file may hold, not of what the machine has. */
static int check_memory(const struct ckpt_checkpoint *c, size_t matrices, struct ckpt_err *err) {
    const uint64_t values = (uint64_t)c->nvalues + c->nunsupported + c->nopaque;
    const uint64_t need = c->arena.used + (uint64_t)c->ntensors * CKPT_MEMORY_PER_TENSOR +
                          (uint64_t)matrices * CKPT_MEMORY_PER_MATRIX +
                          values * CKPT_MEMORY_PER_VALUE;
    if (need <= CKPT_LIMIT_MEMORY)
        return 0;
    return ckpt_fail(err, -E2BIG,
                     "%zu tensors and %" PRIu64
                     " values, and what the file says of them, would take "
                     "%" PRIu64 " MiB of memory, the limit is %u (limit of memory)",
                     c->ntensors, values, need >> 20, CKPT_LIMIT_MEMORY >> 20);
}

int ckpt_checkpoint_check_memory(const struct ckpt_checkpoint *c, struct ckpt_err *err) {
    return check_memory(c, 0, err);
}

int ckpt_checkpoint_end_limit(struct ckpt_checkpoint *c, int rc, struct ckpt_err *err) {
    c->arena.limit = 0;
    return rc == -ENOMEM && c->arena.exceeded
               ? ckpt_fail(err, -E2BIG,
                           "%zu of its arrays, and what it says of them, take more than %u MiB of "
                           "memory (limit of memory)",
                           c->ntensors, CKPT_LIMIT_MEMORY >> 20)
               : rc;
}

static size_t count_matrices(const struct ckpt_checkpoint *c) {
    size_t n = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        n += c->tensors[i].ndim == 2;
    return n;
}

int ckpt_checkpoint_check_keys(const struct ckpt_checkpoint *c, struct ckpt_err *err) {
    struct weight all = {0};
    int rc = check_memory(c, count_matrices(c), err);
    for (size_t i = 0; rc == 0 && i < c->ntensors; i++)
        rc = weigh_path(&all, c->tensors[i].path, err);
    for (size_t i = 0; rc == 0 && i < c->nvalues; i++)
        rc = weigh_path(&all, c->values[i].path, err);
    if (rc == 0)
        rc = weigh_notes(&all, c->unsupported, c->nunsupported, err);
    return rc ? rc : weigh_notes(&all, c->opaque, c->nopaque, err);
}
