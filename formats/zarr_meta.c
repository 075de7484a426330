/*
 * The JSON that describes an array. Both versions say the same with other words; what they say is
 * checked together at the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json_walk.h"
#include "formats/zarr.h"

struct parser {
    struct ckpt_json j;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
    struct ckpt_zarr *z;
    int64_t format;
    bool has_shape, has_chunk, has_dtype, has_fill, has_codecs;
    struct ckpt_zarr_fill fill;
};

static void parser_fini(struct parser *p) {
    ckpt_json_fini(&p->j);
}
CKPT_DEFINE_AUTO(parser, struct parser, parser_fini)

static int read_text(struct parser *p, const char *what, struct ckpt_text *out) {
    return ckpt_json_read_text(&p->j, what, p->arena, out);
}

/* --- values of both versions ------------------------------------------------------------------ */

static int read_sizes(struct parser *p, const char *what, int64_t *out, uint32_t *n) {
    int token = ckpt_json_next(&p->j);
    if (token != CKPT_JSON_ARRAY)
        return ckpt_json_unexpected(&p->j, token, what, "a list");
    for (*n = 0; (token = ckpt_json_next(&p->j)) >= 0 && token != CKPT_JSON_ARRAY_END; ++*n) {
        if (*n == CKPT_ZARR_NDIM_MAX)
            return ckpt_fail(p->err, -ENOTSUP, "it has more than %d dimensions",
                             CKPT_ZARR_NDIM_MAX);
        const int rc = ckpt_json_take_int(&p->j, token, what, &out[*n]);
        if (rc)
            return rc;
    }
    return token < 0 ? token : 0;
}

static int read_shape(struct parser *p) {
    p->has_shape = true;
    return read_sizes(p, "the shape", p->z->shape, &p->z->ndim);
}

static int read_chunk_shape(struct parser *p) {
    p->has_chunk = true;
    return read_sizes(p, "the shape of chunks", p->z->chain.shape, &p->z->chain.ndim);
}

/* Texts that stand for a number: NaN and infinities, and the bits in hexadecimal. */
static bool take_fill_text(struct ckpt_text t, struct ckpt_zarr_fill *f, double *part) {
    f->kind = CKPT_ZARR_FILL_FLOAT;
    if (ckpt_text_is(t, "NaN"))
        *part = __builtin_nan("");
    else if (ckpt_text_is(t, "Infinity"))
        *part = __builtin_inf();
    else if (ckpt_text_is(t, "-Infinity"))
        *part = -__builtin_inf();
    else if (ckpt_text_starts(t, "0x") && t.n > 2 && t.n <= 18 && part == f->part) {
        char *end;
        f->kind = CKPT_ZARR_FILL_BITS;
        f->u = strtoull(t.s + 2, &end, 16);
        return end == t.s + t.n;
    } else
        return false;
    return true;
}

/* One number. False: the token is none. */
static bool take_fill(const struct ckpt_json *j, int token, struct ckpt_zarr_fill *f,
                      double *part) {
    switch (token) {
    case CKPT_JSON_INT:
        f->kind = part == f->part && f->kind == CKPT_ZARR_FILL_ZERO ? CKPT_ZARR_FILL_INT
                                                                    : CKPT_ZARR_FILL_FLOAT;
        f->negative = j->negative;
        f->u = j->negative ? (uint64_t)j->i : j->u;
        *part = j->negative ? (double)j->i : (double)j->u;
        return true;
    case CKPT_JSON_NUMBER:
        f->kind = CKPT_ZARR_FILL_FLOAT;
        *part = j->number;
        return true;
    case CKPT_JSON_TRUE:
    case CKPT_JSON_FALSE:
        f->kind = CKPT_ZARR_FILL_INT;
        f->u = token == CKPT_JSON_TRUE;
        return true;
    case CKPT_JSON_NULL:
        return true;
    case CKPT_JSON_STRING:
        return take_fill_text(j->text, f, part);
    default:
        return false;
    }
}

static int read_fill(struct parser *p) {
    p->has_fill = true;
    int token = ckpt_json_next(&p->j);
    if (token != CKPT_JSON_ARRAY)
        return token < 0 ? token
               : take_fill(&p->j, token, &p->fill, p->fill.part)
                   ? 0
                   : ckpt_json_unexpected(&p->j, token, "the fill value", "a number");
    p->fill.kind = CKPT_ZARR_FILL_FLOAT;
    for (int i = 0; i < 2; i++) {
        token = ckpt_json_next(&p->j);
        if (token < 0 || !take_fill(&p->j, token, &p->fill, &p->fill.part[i]))
            return ckpt_json_unexpected(&p->j, token, "a part of the fill value", "a number");
    }
    p->fill.kind = CKPT_ZARR_FILL_FLOAT;
    token = ckpt_json_next(&p->j);
    return token == CKPT_JSON_ARRAY_END
               ? 0
               : ckpt_json_unexpected(&p->j, token, "the fill value", "two numbers");
}

static int read_separator(struct parser *p) {
    struct ckpt_text text;
    const int rc = read_text(p, "the separator", &text);
    if (rc)
        return rc;
    p->z->separator = text.s[0];
    return ckpt_text_is(text, ".") || ckpt_text_is(text, "/")
               ? 0
               : ckpt_fail(p->err, -EINVAL, "the separator is \"%.*s\", expected . or /",
                           CKPT_TEXT_ARGS(text));
}

static int fail_dtype(struct parser *p, struct ckpt_text name) {
    return ckpt_fail(p->err, -ENOTSUP, "its element type \"%.*s\" is not known",
                     CKPT_TEXT_ARGS(name));
}

/* --- version 2 -------------------------------------------------------------------------------- */

static int read_dtype_v2(struct parser *p) {
    const int token = ckpt_json_next(&p->j);
    p->has_dtype = true;
    if (token == CKPT_JSON_ARRAY)
        return ckpt_fail(p->err, -ENOTSUP, "its elements are records");
    if (token != CKPT_JSON_STRING)
        return ckpt_json_unexpected(&p->j, token, "the dtype", "a string");
    p->z->dtype = ckpt_zarr_dtype_v2(p->j.text, &p->z->chain.is_big);
    return p->z->dtype ? 0 : fail_dtype(p, p->j.text);
}

static int compressor_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    struct ckpt_text id;
    if (!ckpt_text_is(key, "id"))
        return ckpt_json_read_nothing(&p->j);
    const int rc = read_text(p, "the id of the compressor", &id);
    if (rc)
        return rc;
    p->z->chain.nsteps = 1;
    return ckpt_compression_by_name(id, &p->z->chain.step[0].compression)
               ? 0
               : ckpt_fail(p->err, -ENOTSUP, "its compressor \"%.*s\" is not known",
                           CKPT_TEXT_ARGS(id));
}

static int read_compressor(struct parser *p) {
    const int token = ckpt_json_next(&p->j);
    if (token == CKPT_JSON_NULL)
        return 0;
    const int rc = ckpt_json_take_object(&p->j, token, "the compressor", compressor_member, p);
    if (rc)
        return rc;
    return p->z->chain.nsteps ? 0 : ckpt_fail(p->err, -EINVAL, "the compressor has no id");
}

static int fail_filter(struct parser *p) {
    return ckpt_fail(p->err, -ENOTSUP, "its chunks went through filters, none of which is known");
}

/* Null or an empty list. */
static int read_none(struct parser *p, const char *what) {
    const int token = ckpt_json_next(&p->j);
    if (token == CKPT_JSON_NULL)
        return 0;
    if (token != CKPT_JSON_ARRAY)
        return ckpt_json_unexpected(&p->j, token, what, "a list");
    const int next = ckpt_json_next(&p->j);
    return next < 0 ? next : next == CKPT_JSON_ARRAY_END ? 0 : fail_filter(p);
}

static int read_order(struct parser *p) {
    struct ckpt_text text;
    const int rc = read_text(p, "the order", &text);
    if (rc)
        return rc;
    p->z->chain.is_reversed = ckpt_text_is(text, "F");
    return p->z->chain.is_reversed || ckpt_text_is(text, "C")
               ? 0
               : ckpt_fail(p->err, -EINVAL, "the order is \"%.*s\", expected C or F",
                           CKPT_TEXT_ARGS(text));
}

static int member_v2(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (ckpt_text_is(key, "zarr_format"))
        return ckpt_json_read_int(&p->j, "zarr_format", &p->format);
    if (ckpt_text_is(key, "shape"))
        return read_shape(p);
    if (ckpt_text_is(key, "chunks"))
        return read_chunk_shape(p);
    if (ckpt_text_is(key, "dtype"))
        return read_dtype_v2(p);
    if (ckpt_text_is(key, "compressor"))
        return read_compressor(p);
    if (ckpt_text_is(key, "fill_value"))
        return read_fill(p);
    if (ckpt_text_is(key, "order"))
        return read_order(p);
    if (ckpt_text_is(key, "filters"))
        return read_none(p, "the filters");
    if (ckpt_text_is(key, "dimension_separator"))
        return read_separator(p);
    return ckpt_json_read_nothing(&p->j);
}

/* --- version 3 -------------------------------------------------------------------------------- */

/* {"name": ..., "configuration": {...}}, whose name may also stand alone. */
struct extension {
    struct parser *p;
    struct ckpt_text name;
    ckpt_json_member *configuration;
};

static int extension_member(void *user, struct ckpt_text key) {
    struct extension *const e = user;
    if (ckpt_text_is(key, "name"))
        return read_text(e->p, "a name", &e->name);
    if (ckpt_text_is(key, "configuration") && e->configuration)
        return ckpt_json_read_object(&e->p->j, "a configuration", e->configuration, e->p);
    return ckpt_json_read_nothing(&e->p->j);
}

static int read_extension(struct extension *e, const char *what) {
    struct ckpt_json *const j = &e->p->j;
    const int token = ckpt_json_next(j);
    if (token == CKPT_JSON_STRING) {
        e->name = ckpt_text_copy(e->p->arena, j->text.s, j->text.n);
        return e->name.s ? 0 : ckpt_fail_memory(e->p->err, what);
    }
    const int rc = ckpt_json_take_object(j, token, what, extension_member, e);
    if (rc)
        return rc;
    return e->name.s ? 0 : ckpt_fail(e->p->err, -EINVAL, "%s has no name", what);
}

static int read_dtype_v3(struct parser *p) {
    struct extension e = {.p = p};
    p->has_dtype = true;
    const int rc = read_extension(&e, "the data type");
    if (rc)
        return rc;
    p->z->dtype = ckpt_zarr_dtype_v3(e.name);
    return p->z->dtype ? 0 : fail_dtype(p, e.name);
}

static int grid_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    return ckpt_text_is(key, "chunk_shape") ? read_chunk_shape(p) : ckpt_json_read_nothing(&p->j);
}

static int read_grid(struct parser *p) {
    struct extension e = {.p = p, .configuration = grid_member};
    const int rc = read_extension(&e, "the grid of chunks");
    if (rc)
        return rc;
    return ckpt_text_is(e.name, "regular")
               ? 0
               : ckpt_fail(p->err, -ENOTSUP, "its grid of chunks is \"%.*s\", not regular",
                           CKPT_TEXT_ARGS(e.name));
}

static int encoding_member(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    return ckpt_text_is(key, "separator") ? read_separator(p) : ckpt_json_read_nothing(&p->j);
}

static int read_encoding(struct parser *p) {
    struct extension e = {.p = p, .configuration = encoding_member};
    p->z->separator = '\0';
    const int rc = read_extension(&e, "the encoding of chunk keys");
    if (rc)
        return rc;
    p->z->has_c = ckpt_text_is(e.name, "default");
    if (!p->z->separator)
        p->z->separator = p->z->has_c ? '/' : '.';
    return p->z->has_c || ckpt_text_is(e.name, "v2")
               ? 0
               : ckpt_fail(p->err, -ENOTSUP, "its chunk keys are encoded as \"%.*s\"",
                           CKPT_TEXT_ARGS(e.name));
}

static int read_node_type(struct parser *p) {
    struct ckpt_text text;
    const int rc = read_text(p, "the node type", &text);
    if (rc)
        return rc;
    return ckpt_text_is(text, "array")
               ? 0
               : ckpt_fail(p->err, -EINVAL, "is no array but a %.*s", CKPT_TEXT_ARGS(text));
}

static int understand_member(void *user, struct ckpt_text key) {
    struct extension *const e = user;
    bool must = true;
    if (!ckpt_text_is(key, "must_understand"))
        return ckpt_json_read_nothing(&e->p->j);
    const int rc = ckpt_json_read_bool(&e->p->j, "must_understand", &must);
    if (rc == 0 && !must)
        e->name = CKPT_TEXT("ignored");
    return rc;
}

/* One that we don't know may be passed over only if it says so. */
static int read_unknown(struct parser *p, struct ckpt_text key) {
    struct extension e = {.p = p};
    const struct ckpt_text name = ckpt_text_copy(p->arena, key.s, key.n);
    if (!name.s)
        return ckpt_fail_memory(p->err, "reading the metadata of an array");
    const int token = ckpt_json_next(&p->j);
    const int rc = token == CKPT_JSON_OBJECT
                       ? ckpt_json_take_object(&p->j, token, "a member", understand_member, &e)
                       : ckpt_json_skip(&p->j, token);
    if (rc)
        return rc;
    return e.name.s ? 0
                    : ckpt_fail(p->err, -ENOTSUP, "its metadata has \"%.*s\", which is not known",
                                CKPT_TEXT_ARGS(name));
}

static int member_v3(void *user, struct ckpt_text key) {
    struct parser *const p = user;
    if (ckpt_text_is(key, "zarr_format"))
        return ckpt_json_read_int(&p->j, "zarr_format", &p->format);
    if (ckpt_text_is(key, "node_type"))
        return read_node_type(p);
    if (ckpt_text_is(key, "shape"))
        return read_shape(p);
    if (ckpt_text_is(key, "data_type"))
        return read_dtype_v3(p);
    if (ckpt_text_is(key, "chunk_grid"))
        return read_grid(p);
    if (ckpt_text_is(key, "chunk_key_encoding"))
        return read_encoding(p);
    if (ckpt_text_is(key, "fill_value"))
        return read_fill(p);
    if (ckpt_text_is(key, "codecs")) {
        p->has_codecs = true;
        return ckpt_zarr_read_codecs(&p->j, p->arena, 0, &p->z->chain, p->err);
    }
    if (ckpt_text_is(key, "storage_transformers"))
        return read_none(p, "the storage transformers");
    if (ckpt_text_is(key, "attributes") || ckpt_text_is(key, "dimension_names"))
        return ckpt_json_read_nothing(&p->j);
    return read_unknown(p, key);
}

/* --- the whole -------------------------------------------------------------------------------- */

static bool is_big(const struct ckpt_zarr_chain *c) {
    return c->shards ? is_big(&c->shards->inner) : c->is_big;
}

static void settle_fill(struct parser *p) {
    struct ckpt_zarr *const z = p->z;
    const struct ckpt_dtype_info *const d = ckpt_dtype_info(z->dtype);
    z->fill_unknown = !ckpt_zarr_fill_bytes(&p->fill, z->dtype, z->fill);
    z->swap = is_big(&z->chain) && d->component_bytes > 1;
    for (unsigned at = 0; z->swap && at < d->unit_bytes; at += d->component_bytes)
        for (unsigned i = 0; i < d->component_bytes / 2u; i++) {
            uint8_t *const one = &z->fill[at + i];
            uint8_t *const other = &z->fill[at + d->component_bytes - 1u - i];
            const uint8_t kept = *one;
            *one = *other;
            *other = kept;
        }
}

static int settle(struct parser *p, int version) {
    struct ckpt_zarr *const z = p->z;
    uint64_t count;
    if (p->format != version)
        return ckpt_fail(p->err, -EINVAL, "zarr_format is %" PRId64 ", expected %d", p->format,
                         version);
    const char *const missing = !p->has_shape                    ? "shape"
                                : !p->has_chunk                  ? "shape of chunks"
                                : !p->has_dtype                  ? "element type"
                                : version == 3 && !p->has_codecs ? "codecs"
                                                                 : NULL;
    if (missing)
        return ckpt_fail(p->err, -EINVAL, "its metadata has no %s", missing);
    if (z->chain.ndim != z->ndim)
        return ckpt_fail(p->err, -EINVAL, "it has %u dimensions, its chunks have %u", z->ndim,
                         z->chain.ndim);
    if (!ckpt_shape_count(z->shape, z->ndim, &count))
        return ckpt_fail(p->err, -EINVAL, "its shape is negative or overflows 63 bits");
    settle_fill(p);
    int64_t chunk[CKPT_ZARR_NDIM_MAX];
    memcpy(chunk, z->chain.shape, z->ndim * sizeof chunk[0]);
    return ckpt_zarr_chain_settle(&z->chain, chunk, z->ndim, ckpt_dtype_info(z->dtype)->unit_bytes,
                                  0, p->err);
}

int ckpt_zarr_parse(const void *json, size_t n, int version, struct ckpt_arena *a,
                    struct ckpt_zarr *out, struct ckpt_err *err) {
    CKPT_AUTO(parser) struct parser p = {.arena = a, .err = err, .z = out};
    memset(out, 0, sizeof *out);
    out->separator = version == 2 ? '.' : '/';
    out->has_c = version == 3;
    ckpt_json_init(&p.j, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    int rc = ckpt_json_read_object(&p.j, "the metadata", version == 2 ? member_v2 : member_v3, &p);
    if (rc)
        return rc;
    const int token = ckpt_json_next(&p.j);
    rc = token < 0 ? token : settle(&p, version);
    return rc;
}

bool ckpt_zarr_is_metadata(struct ckpt_text key, int *version) {
    const char *const slash = memrchr(key.s, '/', key.n);
    const struct ckpt_text last =
        slash ? (struct ckpt_text){slash + 1, (size_t)(key.s + key.n - slash - 1)} : key;
    *version = ckpt_text_is(last, ".zarray") ? 2 : ckpt_text_is(last, "zarr.json") ? 3 : 0;
    return *version != 0;
}

#define INDEX_DIGITS 18 /* fit 63 bits; more than real indices have */

/* Digits without leading zeros, below `most`. */
static bool take_index(struct ckpt_text *rest, int64_t most, int64_t *out) {
    size_t n = 0;
    int64_t v = 0;
    for (; n < rest->n && n < INDEX_DIGITS && rest->s[n] >= '0' && rest->s[n] <= '9'; n++)
        v = 10 * v + (rest->s[n] - '0');
    if (n == 0 || (rest->s[0] == '0' && n > 1) || v >= most)
        return false;
    *rest = (struct ckpt_text){rest->s + n, rest->n - n};
    *out = v;
    return true;
}

static bool take_byte(struct ckpt_text *rest, char c) {
    if (rest->n == 0 || rest->s[0] != c)
        return false;
    *rest = (struct ckpt_text){rest->s + 1, rest->n - 1};
    return true;
}

bool ckpt_zarr_chunk_number(const struct ckpt_zarr *z, struct ckpt_text rest, uint64_t *number) {
    *number = 0;
    if (z->has_c && !take_byte(&rest, 'c'))
        return false;
    if (z->ndim == 0 && !z->has_c)
        return ckpt_text_is(rest, "0");
    for (uint32_t d = 0; d < z->ndim; d++) {
        const int64_t chunk = z->chain.shape[d];
        const int64_t grid = z->shape[d] / chunk + (z->shape[d] % chunk != 0);
        int64_t index;
        if ((d > 0 || z->has_c) && !take_byte(&rest, z->separator))
            return false;
        if (!take_index(&rest, grid, &index))
            return false;
        *number = *number * (uint64_t)grid + (uint64_t)index;
    }
    return rest.n == 0;
}
