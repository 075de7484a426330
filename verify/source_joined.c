/*
 * What a dialect joins of several source tensors, in PyTorch's layout: read part by part, without
 * the walks and joins of the read path.
 *
 *     turn 0                turn 1
 *     | part 0 | part 1 | part 0 | part 1 |      a part's share of a turn is its next 1/turns
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/computed_blob.h"
#include "base/cleanup.h"
#include "verify/source.h"

static int64_t share(const struct ckpt_joined *of, uint32_t part) {
    return of->part[part].units / (int64_t)of->turns;
}

static int init_part(struct ckpt_naive *naive, const struct ckpt_joined_part *part,
                     struct ckpt_err *err) {
    if (!part->source)
        return 0;
    if (ckpt_computed_blob_of(part->source->blob))
        return ckpt_fail(err, -EOPNOTSUPP, "\"%.*s\" is computed, and then joined with others",
                         CKPT_TEXT_ARGS(part->source->key));
    const int rc = ckpt_naive_init(naive, part->source, part->op, part->nop, err);
    return rc < 0 ? rc : ckpt_naive_pin(naive, err);
}

int ckpt_source_joined_init(struct ckpt_source_joined *j, const struct ckpt_joined *of,
                            struct ckpt_err *err) {
    int rc = 0;
    *j = (struct ckpt_source_joined){.of = of, .naive = calloc(of->nparts, sizeof *j->naive)};
    if (!j->naive)
        return ckpt_fail_memory(err, "joining tensors");
    for (uint32_t i = 0; rc == 0 && i < of->nparts; i++) {
        j->round += share(of, i);
        rc = init_part(&j->naive[i], &of->part[i], err);
    }
    return rc;
}

void ckpt_source_joined_fini(struct ckpt_source_joined *j) {
    for (uint32_t i = 0; j->naive && i < j->of->nparts; i++)
        ckpt_naive_fini(&j->naive[i]);
    free(j->naive);
    j->naive = NULL;
}

/* At most n elements from `first` on, of one part in one turn: how many, or negative. */
static int64_t read_some(const struct ckpt_source_joined *j, int64_t first, int64_t n, float *out,
                         struct ckpt_err *err) {
    const int64_t turn = first / j->round;
    int64_t at = first % j->round;
    uint32_t i = 0;
    for (; at >= share(j->of, i); i++)
        at -= share(j->of, i);
    const int64_t left = share(j->of, i) - at, count = left < n ? left : n;
    if (!j->of->part[i].source) {
        memset(out, 0, (size_t)count * sizeof *out);
        return count;
    }
    const int64_t from = turn * share(j->of, i) + at;
    const int rc = ckpt_source_floats(&j->naive[i], from, count, out, err);
    return rc < 0 ? rc : count;
}

int ckpt_source_joined_read(const struct ckpt_source_joined *j, int64_t first, int64_t n,
                            float *out, struct ckpt_err *err) {
    for (int64_t done = 0, got; done < n; done += got) {
        got = read_some(j, first + done, n - done, out + done, err);
        if (got < 0)
            return (int)got;
    }
    return 0;
}
