/*
 * One tensor after the other, one block of served bytes after the other:
 *
 *     reader (walks, tiles, bands) -->  served block  \
 *                                                       equal?
 *     naive offsets, scalar rules  -->  expected block /
 *
 * What is computed from several tensors is evaluated anew, and is equal within its rounding.
 */
#include "verify/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/gather.h"
#include "base/cleanup.h"
#include "verify/source.h"

#define BLOCK_UNITS 32768
#define UNIT_MAX 16
#define BROADCAST_MIN ((uint64_t)64 << 20) /* bytes: below it, everything is checked */

struct check {
    struct ckpt_reader *reader;
    const struct ckpt_exec *exec;
    struct ckpt_bytes_result *result;
    const struct ckpt_adapted *tensor;
    uint32_t of_tensor; /* mismatches listed of this tensor */
    const struct ckpt_naive_norm
        *norm; /* what the part is computed from; both NULL: it is copied */
    const struct ckpt_naive_lora *lora;
    float *slack;          /* of each element of a block, with lora */
    uint64_t share, round; /* units of the part, and of all parts, in one turn */
    uint8_t *served, *expected, *raw;
};

static void describe(char *out, const uint8_t *element, uint32_t n) {
    int at = sprintf(out, "0x");
    for (uint32_t i = n; i-- > 0;)
        at += sprintf(out + at, "%02x", element[i]);
}

static void add_mismatch(struct check *c, uint64_t index, const uint8_t *expected,
                         const uint8_t *served, uint32_t unit) {
    struct ckpt_bytes_result *const r = c->result;
    r->mismatches++;
    if (r->nmismatch == CKPT_MISMATCHES_MAX || c->of_tensor == CKPT_MISMATCHES_PER_TENSOR) {
        r->truncated = true;
        return;
    }
    struct ckpt_mismatch *const m = &r->mismatch[r->nmismatch++];
    c->of_tensor++;
    m->key = c->tensor->key;
    m->index = index;
    describe(m->source, expected, unit);
    describe(m->served, served, unit);
}

/* What has to happen to an element, by what the source says of itself. */
static struct ckpt_element_map true_map(const struct ckpt_tensor *source, enum ckpt_dtype to) {
    return (struct ckpt_element_map){.from = source->dtype,
                                     .to = to,
                                     .swap = source->swap,
                                     .conj = source->conj,
                                     .neg = source->neg};
}

static int read_source(const struct check *c, const struct ckpt_naive *naive, int64_t from,
                       int64_t n, uint8_t *to, struct ckpt_err *err) {
    if (c->lora)
        return ckpt_naive_lora_read(c->lora, from, n, (float *)(void *)to, c->slack, err);
    return c->norm ? ckpt_naive_norm_read(c->norm, from, n, to, err)
                   : ckpt_source_raw(naive, from, n, to, err);
}

/* What units [from, from + n) of a part should be. NULL naive: zeros. */
static int expect(const struct check *c, const struct ckpt_naive *naive, int64_t from, int64_t n,
                  uint32_t unit, struct ckpt_err *err) {
    if (!naive) {
        memset(c->expected, 0, (size_t)n * unit);
        return 0;
    }
    const struct ckpt_element_map map = true_map(naive->source, c->tensor->dtype);
    if (ckpt_map_identity(&map))
        return read_source(c, naive, from, n, c->expected, err);
    const int rc = read_source(c, naive, from, n, c->raw, err);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        ckpt_element_convert(&map, c->raw + i * naive->unit, c->expected + i * unit);
    return rc;
}

/* i: of the block. */
static bool is_right(const struct check *c, int64_t i, const uint8_t *expected,
                     const uint8_t *served, uint32_t unit) {
    return memcmp(expected, served, unit) == 0 ||
           (c->lora && ckpt_naive_lora_close(c->tensor->dtype, c->slack[i], expected, served)) ||
           (c->norm &&
            ckpt_naive_norm_close(c->tensor->map.from, c->tensor->dtype, expected, served));
}

static void compare_block(struct check *c, uint64_t first, int64_t n, uint32_t unit) {
    const uint32_t elements = ckpt_dtype_info(c->tensor->dtype)->unit_elements;
    c->result->elements += (uint64_t)n * elements;
    if (memcmp(c->expected, c->served, (size_t)n * unit) == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        if (!is_right(c, i, c->expected + i * unit, c->served + i * unit, unit))
            add_mismatch(c, (first + (uint64_t)i) * elements, c->expected + i * unit,
                         c->served + i * unit, unit);
}

/* The unit of the adapted tensor that shows unit i of a part, whose first is unit `at` there. */
static uint64_t shown_at(const struct check *c, uint64_t at, int64_t i) {
    const uint64_t unit = (uint64_t)i;
    return unit / c->share * c->round + at + unit % c->share;
}

/* Units [first, end) of a part, whose first is unit `at` of the adapted tensor. */
static int check_units(struct check *c, const struct ckpt_naive *naive, uint64_t at, int64_t first,
                       int64_t end, uint32_t unit, struct ckpt_err *err) {
    int rc = 0;
    int64_t n;
    for (int64_t done = first; rc == 0 && done < end; done += n) {
        const uint64_t from = shown_at(c, at, done);
        const int64_t left = (int64_t)(c->share - (uint64_t)done % c->share);
        n = end - done < BLOCK_UNITS ? end - done : BLOCK_UNITS;
        n = n < left ? n : left;
        rc = ckpt_reader_read(c->reader, c->tensor, from * unit, (size_t)n * unit, c->served, err);
        if (rc == 0)
            rc = expect(c, naive, done, n, unit, err);
        if (rc == 0)
            compare_block(c, from, n, unit);
        if (rc == 0)
            rc = ckpt_exec_check(c->exec, err);
    }
    return rc;
}

/* A broadcast view of few bytes may show any number of them: of what is far larger than its
 * storage, both ends are checked. */
static int check_ends(struct check *c, const struct ckpt_naive *naive, uint64_t at, int64_t count,
                      uint32_t unit, struct ckpt_err *err) {
    c->result->unchecked++;
    const int rc = check_units(c, naive, at, 0, BLOCK_UNITS, unit, err);
    return rc < 0 ? rc : check_units(c, naive, at, count - BLOCK_UNITS, count, unit, err);
}

static bool is_broadcast(const struct ckpt_part *part) {
    return part->nbytes > BROADCAST_MIN && part->nbytes / 16 > part->source->blob->size;
}

static int check_norm(struct check *c, const struct ckpt_part *part,
                      const struct ckpt_weight_norm *of, const struct ckpt_naive *naive,
                      uint64_t at, uint32_t unit, struct ckpt_err *err) {
    CKPT_AUTO(naive_norm) struct ckpt_naive_norm norm = {0};
    int rc = ckpt_naive_norm_init(&norm, of, part->op, part->nop, err);
    if (rc < 0)
        return rc;
    c->result->computed++;
    c->norm = &norm;
    rc = check_units(c, naive, at, 0, naive->count, unit, err);
    c->norm = NULL;
    return rc;
}

static int check_lora(struct check *c, const struct ckpt_part *part, const struct ckpt_lora *of,
                      const struct ckpt_naive *naive, uint64_t at, uint32_t unit,
                      struct ckpt_err *err) {
    CKPT_AUTO(naive_lora) struct ckpt_naive_lora lora = {0};
    CKPT_AUTO(free) float *slack = malloc(BLOCK_UNITS * sizeof *slack);
    if (!slack)
        return ckpt_fail_memory(err, "checking bytes");
    int rc = ckpt_naive_lora_init(&lora, of, part->op, part->nop, err);
    if (rc < 0)
        return rc;
    c->result->computed++;
    c->lora = &lora;
    c->slack = slack;
    rc = check_units(c, naive, at, 0, naive->count, unit, err);
    c->lora = NULL;
    c->slack = NULL;
    return rc;
}

static int check_part(struct check *c, const struct ckpt_part *part, uint64_t at, uint32_t unit,
                      struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive naive = {0};
    const int64_t count = (int64_t)(part->nbytes / unit);
    if (!part->source)
        return check_units(c, NULL, at, 0, count, unit, err);
    int rc = ckpt_naive_init(&naive, part->source, part->op, part->nop, err);
    if (rc == 0 && (naive.count != count || part->source->dtype != c->tensor->map.from))
        rc = ckpt_fail(err, -EINVAL, "its operations give %lld %s elements, it shows %lld of %s",
                       (long long)naive.count, ckpt_dtype_info(part->source->dtype)->name,
                       (long long)count, ckpt_dtype_info(c->tensor->map.from)->name);
    if (rc < 0)
        return rc;
    const struct ckpt_weight_norm *const norm = ckpt_weight_norm_of(part->source->blob);
    if (norm)
        return check_norm(c, part, norm, &naive, at, unit, err);
    const struct ckpt_lora *const lora = ckpt_lora_of(part->source->blob);
    if (lora)
        return check_lora(c, part, lora, &naive, at, unit, err);
    rc = ckpt_naive_pin(&naive, err);
    if (rc < 0)
        return rc;
    return is_broadcast(part) ? check_ends(c, &naive, at, count, unit, err)
                              : check_units(c, &naive, at, 0, count, unit, err);
}

/* Where the operations alone decide the shape, it is the shape shown. */
static int check_shape(const struct ckpt_adapted *t, struct ckpt_err *err) {
    CKPT_AUTO(naive) struct ckpt_naive n = {0};
    if (t->nparts != 1 || !t->part[0].source || ckpt_dtype_info(t->dtype)->unit_elements > 1)
        return 0;
    const int rc = ckpt_naive_init(&n, t->part[0].source, t->part[0].op, t->part[0].nop, err);
    if (rc < 0)
        return rc;
    const struct ckpt_naive_shape *const s = ckpt_naive_result(&n);
    if (s->ndim != t->ndim || memcmp(s->size, t->shape, t->ndim * sizeof(t->shape[0])) != 0)
        return ckpt_fail(err, -EINVAL, "its operations do not give the shape it shows");
    return 0;
}

static int check_tensor(struct check *c, struct ckpt_err *err) {
    const struct ckpt_adapted *const t = c->tensor;
    const uint32_t unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    const uint64_t turns = t->turns > 1 ? t->turns : 1;
    uint64_t at = 0;
    int rc = check_shape(t, err);
    c->round = t->nbytes / unit / turns;
    for (uint32_t i = 0; rc == 0 && i < t->nparts; i++) {
        c->share = t->part[i].nbytes / unit / turns;
        rc = check_part(c, &t->part[i], at, unit, err);
        at += c->share;
    }
    return rc;
}

/* Sorts a failure into the result; only what ends the whole run is passed on. */
static int take_failure(struct check *c, int rc, const struct ckpt_err *found,
                        struct ckpt_err *err) {
    struct ckpt_bytes_result *const r = c->result;
    if (rc == -EINTR || rc == -ENOMEM)
        return ckpt_fail(err, rc, "%s", found->text);
    if (rc == -EOPNOTSUPP) {
        r->unchecked++;
        return 0;
    }
    const enum ckpt_status status =
        rc == -EINVAL ? CKPT_STATUS_CONVERT_FAIL : CKPT_STATUS_LOAD_FAIL;
    if (status < r->status)
        ckpt_reason_set(&r->reason, "%.*s: %s", CKPT_TEXT_ARGS(c->tensor->key), found->text);
    r->status = ckpt_status_worst(r->status, status);
    return 0;
}

static int check_all(struct check *c, const struct ckpt_model *m, struct ckpt_err *err) {
    for (size_t i = 0; i < m->ntensors; i++) {
        c->tensor = &m->tensor[i];
        c->of_tensor = 0;
        struct ckpt_err found = {0};
        int rc = check_tensor(c, &found);
        if (rc == 0)
            c->result->tensors++;
        else
            rc = take_failure(c, rc, &found, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool is_cancelled(void *exec) {
    return ckpt_exec_check(exec, NULL) < 0;
}

/* The checksums that the file keeps of its storages. */
static int check_storages(struct check *c, const struct ckpt_model *m, struct ckpt_err *err) {
    const struct ckpt_checkpoint *const p = m->checkpoint;
    struct ckpt_bytes_result *const r = c->result;
    struct ckpt_exec exec = *c->exec;
    const struct ckpt_stop stop = {.ask = is_cancelled, .arg = &exec};
    for (size_t i = 0; i < p->nblobs; i++) {
        struct ckpt_blob *const blob = p->blobs[i];
        if (!blob->ops->check)
            continue;
        struct ckpt_err found = {0};
        r->storages++;
        const int bad = blob->ops->check(blob, &stop, &found);
        if (bad == -EINTR || bad == -ENOMEM || bad == -ENOSPC)
            return ckpt_fail(err, bad, "%s", found.text);
        if (bad < 0) {
            r->status = ckpt_status_worst(r->status, CKPT_STATUS_DIFF);
            if (r->nfaults == CKPT_MISMATCHES_MAX) {
                r->truncated = true;
                continue;
            }
            r->fault[r->nfaults].blob = blob;
            ckpt_reason_set(&r->fault[r->nfaults++].why, "%s", found.text);
        }
        const int rc = ckpt_exec_check(c->exec, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int ckpt_bytes_check(struct ckpt_reader *r, const struct ckpt_model *m,
                     const struct ckpt_exec *exec, struct ckpt_bytes_result *result,
                     struct ckpt_err *err) {
    CKPT_AUTO(free) uint8_t *buffer = malloc((size_t)3 * BLOCK_UNITS * UNIT_MAX);
    *result = (struct ckpt_bytes_result){.status = CKPT_STATUS_SKIP};
    result->mismatch = calloc(CKPT_MISMATCHES_MAX, sizeof(*result->mismatch));
    result->fault = calloc(CKPT_MISMATCHES_MAX, sizeof(*result->fault));
    if (!buffer || !result->mismatch || !result->fault)
        return ckpt_fail_memory(err, "checking bytes");
    struct check c = {.reader = r,
                      .exec = exec,
                      .result = result,
                      .served = buffer,
                      .expected = buffer + (size_t)BLOCK_UNITS * UNIT_MAX,
                      .raw = buffer + (size_t)2 * BLOCK_UNITS * UNIT_MAX};
    int rc = check_all(&c, m, err);
    if (rc == 0)
        rc = check_storages(&c, m, err);
    if (result->tensors)
        result->status = ckpt_status_worst(result->status, CKPT_STATUS_PASS);
    if (result->mismatches)
        result->status = ckpt_status_worst(result->status, CKPT_STATUS_DIFF);
    return rc;
}

void ckpt_bytes_fini(struct ckpt_bytes_result *result) {
    free(result->mismatch);
    free(result->fault);
    *result = (struct ckpt_bytes_result){0};
}
