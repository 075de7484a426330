/*
 * Version 3's list of codecs as a chain:
 *
 *     [transpose..., bytes | sharding_indexed, gzip | zstd | blosc | crc32c...]
 */
#include <errno.h>
#include <string.h>

#include "base/json_walk.h"
#include "formats/zarr.h"

/* The list, and the codec of it that is being read. */
struct codecs {
    struct ckpt_json *j;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
    unsigned depth;
    struct ckpt_zarr_chain *chain;
    bool has_elements; /* the codec from elements to bytes was there */
    /* of the codec: */
    struct ckpt_text name;
    enum { ENDIAN_NONE, ENDIAN_LITTLE, ENDIAN_BIG } endian;
    uint32_t order[CKPT_ZARR_NDIM_MAX], norder;
    bool is_reversed;
    struct ckpt_zarr_shards *shards;
};

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the metadata of an array");
}

/* --- configurations --------------------------------------------------------------------------- */

static int read_endian(struct codecs *c) {
    struct ckpt_text text;
    const int rc = ckpt_json_read_text(c->j, "the byte order", c->arena, &text);
    if (rc)
        return rc;
    c->endian = ckpt_text_is(text, "big") ? ENDIAN_BIG : ENDIAN_LITTLE;
    return c->endian == ENDIAN_BIG || ckpt_text_is(text, "little")
               ? 0
               : ckpt_fail(c->err, -EINVAL, "the byte order is \"%.*s\", expected little or big",
                           CKPT_TEXT_ARGS(text));
}

static int take_axis(void *user, int token) {
    struct codecs *const c = user;
    int64_t axis;
    const int rc = ckpt_json_take_int(c->j, token, "an axis of transpose", &axis);
    if (rc)
        return rc;
    if (axis < 0 || axis >= CKPT_ZARR_NDIM_MAX || c->norder == CKPT_ZARR_NDIM_MAX)
        return ckpt_fail(c->err, -EINVAL, "transpose has an axis that no array has");
    c->order[c->norder++] = (uint32_t)axis;
    return 0;
}

/* A list; of old writers "C" or "F". */
static int read_order(struct codecs *c) {
    const int token = ckpt_json_next(c->j);
    c->norder = 0;
    c->is_reversed = false;
    if (token != CKPT_JSON_STRING) {
        if (token != CKPT_JSON_ARRAY)
            return ckpt_json_unexpected(c->j, token, "the order of transpose", "a list");
        int element = 0;
        int rc = 0;
        while (rc == 0 && (element = ckpt_json_next(c->j)) >= 0 && element != CKPT_JSON_ARRAY_END)
            rc = take_axis(c, element);
        return rc ? rc : element < 0 ? element : 0;
    }
    c->is_reversed = ckpt_text_is(c->j->text, "F");
    return c->is_reversed || ckpt_text_is(c->j->text, "C")
               ? 0
               : ckpt_fail(c->err, -EINVAL, "the order of transpose is \"%.*s\"",
                           CKPT_TEXT_ARGS(c->j->text));
}

static int take_inner_size(void *user, int token) {
    struct codecs *const c = user;
    struct ckpt_zarr_chain *const inner = &c->shards->inner;
    int64_t size;
    const int rc = ckpt_json_take_int(c->j, token, "a dimension of the shard's chunks", &size);
    if (rc)
        return rc;
    if (inner->ndim == CKPT_ZARR_NDIM_MAX)
        return ckpt_fail(c->err, -EINVAL, "more than %d dimensions", CKPT_ZARR_NDIM_MAX);
    inner->shape[inner->ndim++] = size;
    return 0;
}

/* What describes the index: elements, and perhaps a checksum. */
static int read_index_codecs(struct codecs *c) {
    struct ckpt_zarr_chain index = {0};
    const int rc = ckpt_zarr_read_codecs(c->j, c->arena, CKPT_LIMIT_ZARR_SHARDS, &index, c->err);
    if (rc)
        return rc;
    if (index.shards || index.norder || index.is_reversed || index.nsteps > 1 ||
        (index.nsteps == 1 && !index.step[0].is_crc32c))
        return ckpt_fail(c->err, -ENOTSUP, "the index of its shards is compressed");
    c->shards->index_is_big = index.is_big;
    c->shards->has_crc32c = index.nsteps == 1;
    c->shards->has_index = true;
    return 0;
}

static int read_location(struct codecs *c) {
    struct ckpt_text text;
    const int rc = ckpt_json_read_text(c->j, "the location of the index", c->arena, &text);
    if (rc)
        return rc;
    c->shards->at_start = ckpt_text_is(text, "start");
    return c->shards->at_start || ckpt_text_is(text, "end")
               ? 0
               : ckpt_fail(c->err, -EINVAL, "the index of shards lies at \"%.*s\"",
                           CKPT_TEXT_ARGS(text));
}

/* A member of a shard's configuration. */
static int shard_member(struct codecs *c, struct ckpt_text key, bool *known) {
    *known = true;
    if (ckpt_text_is(key, "chunk_shape")) {
        c->shards->inner.ndim = 0;
        return ckpt_json_read_array(c->j, "the shape of the shard's chunks", take_inner_size, c);
    }
    if (ckpt_text_is(key, "codecs"))
        return ckpt_zarr_read_codecs(c->j, c->arena, c->depth + 1, &c->shards->inner, c->err);
    if (ckpt_text_is(key, "index_codecs"))
        return read_index_codecs(c);
    if (ckpt_text_is(key, "index_location"))
        return read_location(c);
    *known = false;
    return 0;
}

/* The members of all configurations have names of their own, so that those may come before the
 * codec's name. */
static int configuration_member(void *user, struct ckpt_text key) {
    struct codecs *const c = user;
    bool known = false;
    if (ckpt_text_is(key, "endian"))
        return read_endian(c);
    if (ckpt_text_is(key, "order"))
        return read_order(c);
    if (!c->shards)
        c->shards = ckpt_arena_alloc(c->arena, sizeof *c->shards);
    if (!c->shards)
        return fail_memory(c->err);
    const int rc = shard_member(c, key, &known);
    return rc || known ? rc : ckpt_json_read_nothing(c->j); /* levels and the like */
}

static int codec_member(void *user, struct ckpt_text key) {
    struct codecs *const c = user;
    if (ckpt_text_is(key, "name"))
        return ckpt_json_read_text(c->j, "the name of a codec", c->arena, &c->name);
    if (ckpt_text_is(key, "configuration"))
        return ckpt_json_read_object(c->j, "the configuration of a codec", configuration_member, c);
    return ckpt_json_read_nothing(c->j);
}

/* --- the chain -------------------------------------------------------------------------------- */

static int fail_order(struct codecs *c) {
    return ckpt_fail(c->err, -EINVAL, "the codec \"%.*s\" is in the wrong place of the list",
                     CKPT_TEXT_ARGS(c->name));
}

/* Another transposition on those before it. */
static int add_transpose(struct codecs *c) {
    struct ckpt_zarr_chain *const chain = c->chain;
    uint32_t composed[CKPT_ZARR_NDIM_MAX];
    if (c->has_elements)
        return fail_order(c);
    if (c->is_reversed) {
        chain->is_reversed = !chain->is_reversed;
        return 0;
    }
    if (c->norder && chain->is_reversed)
        return ckpt_fail(c->err, -ENOTSUP, "it is transposed by \"F\" and again by a list");
    if (chain->norder && c->norder != chain->norder)
        return fail_order(c);
    for (uint32_t i = 0; i < c->norder; i++) {
        if (c->order[i] >= c->norder)
            return ckpt_fail(c->err, -EINVAL, "transpose has an axis that the array has not");
        composed[i] = chain->norder ? chain->order[c->order[i]] : c->order[i];
    }
    memcpy(chain->order, composed, c->norder * sizeof composed[0]);
    chain->norder = c->norder;
    return 0;
}

static int add_elements(struct codecs *c, bool is_sharded) {
    if (c->has_elements)
        return fail_order(c);
    c->has_elements = true;
    if (!is_sharded) {
        c->chain->is_big = c->endian == ENDIAN_BIG;
        return 0;
    }
    if (!c->shards || !c->shards->has_index)
        return ckpt_fail(c->err, -EINVAL, "sharding_indexed does not describe its index");
    c->chain->shards = c->shards;
    return 0;
}

static int add_step(struct codecs *c, struct ckpt_zarr_step step) {
    if (!c->has_elements)
        return fail_order(c);
    if (c->chain->nsteps == CKPT_LIMIT_ZARR_STEPS)
        return ckpt_fail(c->err, -E2BIG, "more than %u codecs (limit of codecs)",
                         CKPT_LIMIT_ZARR_STEPS);
    c->chain->step[c->chain->nsteps++] = step;
    return 0;
}

static int add_codec(struct codecs *c) {
    struct ckpt_zarr_step step = {0};
    if (!c->name.s)
        return ckpt_fail(c->err, -EINVAL, "a codec has no name");
    if (ckpt_text_is(c->name, "transpose"))
        return add_transpose(c);
    if (ckpt_text_is(c->name, "bytes"))
        return add_elements(c, false);
    if (ckpt_text_is(c->name, "sharding_indexed"))
        return add_elements(c, true);
    if (ckpt_text_is(c->name, "crc32c")) {
        step.is_crc32c = true;
        return add_step(c, step);
    }
    if (ckpt_compression_by_name(c->name, &step.compression))
        return add_step(c, step);
    return ckpt_fail(c->err, -ENOTSUP, "its codec \"%.*s\" is not known", CKPT_TEXT_ARGS(c->name));
}

static int take_codec(void *user, int token) {
    struct codecs *const c = user;
    struct codecs one = *c;
    int rc = 0;
    one.name = (struct ckpt_text){0};
    one.endian = ENDIAN_NONE;
    one.norder = 0;
    one.is_reversed = false;
    one.shards = NULL;
    if (token == CKPT_JSON_STRING) {
        one.name = ckpt_text_copy(c->arena, c->j->text.s, c->j->text.n);
        rc = one.name.s ? 0 : fail_memory(c->err);
    } else {
        rc = ckpt_json_take_object(c->j, token, "a codec", codec_member, &one);
    }
    if (rc == 0)
        rc = add_codec(&one);
    c->has_elements = one.has_elements;
    return rc;
}

int ckpt_zarr_read_codecs(struct ckpt_json *j, struct ckpt_arena *a, unsigned depth,
                          struct ckpt_zarr_chain *out, struct ckpt_err *err) {
    struct codecs c = {.j = j, .arena = a, .err = err, .depth = depth, .chain = out};
    if (depth > CKPT_LIMIT_ZARR_SHARDS)
        return ckpt_fail(err, -E2BIG, "shards are nested deeper than %u (limit of nested shards)",
                         CKPT_LIMIT_ZARR_SHARDS);
    out->nsteps = out->norder = 0;
    out->shards = NULL;
    out->is_big = out->is_reversed = false;
    const int rc = ckpt_json_read_array(j, "the list of codecs", take_codec, &c);
    if (rc)
        return rc;
    return c.has_elements
               ? 0
               : ckpt_fail(err, -EINVAL, "its codecs have none that makes bytes of elements");
}
