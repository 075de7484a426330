#include "formats/msgpack.h"

#include <errno.h>
#include <string.h>

#include "formats/limits.h"
#include "formats/mapped.h"
#include "formats/tensor.h"

enum { EXT_ARRAY = 1, EXT_COMPLEX = 2, EXT_SCALAR = 3 };

struct reader {
    const uint8_t *bytes;
    size_t n, pos;
    struct ckpt_arena *arena;
    unsigned objects, depth;
    uint64_t text_bytes; /* of all texts so far */
    struct ckpt_err *err;
};

static int fail_memory(struct reader *r) {
    return ckpt_fail_memory(r->err, "reading msgpack");
}

static int fail_short(struct reader *r) {
    return ckpt_fail(r->err, -EINVAL, "msgpack ends early, at byte %zu: it is truncated", r->pos);
}

static int take(struct reader *r, void *out, size_t n) {
    if (n > r->n - r->pos)
        return fail_short(r);
    const int rc = ckpt_mapped_copy(out, r->bytes + r->pos, n, r->err);
    r->pos += n;
    return rc;
}

/* A big-endian integer of n <= 8 bytes. */
static int take_be(struct reader *r, unsigned n, uint64_t *out) {
    uint8_t b[8];
    const int rc = take(r, b, n);
    *out = 0;
    for (unsigned i = 0; rc == 0 && i < n; i++)
        *out = *out << 8 | b[i];
    return rc;
}

/* --- heads ------------------------------------------------------------------------------------ */

enum token { NIL, FALSE_, TRUE_, UINT, INT, FLOAT, TEXT, BYTES, LIST, MAP, EXT };

/* What an item is, and its number: the value, or how many bytes or items follow. */
struct head {
    enum token token;
    uint64_t u;
    int64_t i;
    double f;
    uint8_t ext;
};

static int take_sized(struct reader *r, struct head *h, enum token token, unsigned bytes) {
    h->token = token;
    return take_be(r, bytes, &h->u);
}

static int take_ext(struct reader *r, struct head *h, unsigned bytes, uint64_t fixed) {
    h->token = EXT;
    h->u = fixed;
    const int rc = bytes ? take_be(r, bytes, &h->u) : 0;
    return rc ? rc : take(r, &h->ext, 1);
}

static int take_signed(struct reader *r, struct head *h, unsigned bytes) {
    uint64_t v;
    const int rc = take_be(r, bytes, &v);
    const unsigned unused = 64 - 8 * bytes;
    h->token = INT;
    h->i = rc ? 0 : (int64_t)(v << unused) >> unused;
    return rc;
}

static int take_float(struct reader *r, struct head *h, unsigned bytes) {
    uint64_t v;
    const int rc = take_be(r, bytes, &v);
    const uint32_t narrow = rc ? 0 : (uint32_t)v;
    float f;
    memcpy(&f, &narrow, sizeof f);
    if (rc == 0 && bytes == 8)
        memcpy(&h->f, &v, sizeof h->f);
    else
        h->f = f;
    h->token = FLOAT;
    return rc;
}

/* First bytes from C0 on. */
static int take_long_head(struct reader *r, uint8_t b, struct head *h) {
    switch (b) {
    case 0xc0:
        h->token = NIL;
        return 0;
    case 0xc2:
    case 0xc3:
        h->token = b == 0xc3 ? TRUE_ : FALSE_;
        return 0;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return take_sized(r, h, BYTES, 1u << (b - 0xc4));
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return take_ext(r, h, 1u << (b - 0xc7), 0);
    case 0xca:
    case 0xcb:
        return take_float(r, h, b == 0xca ? 4 : 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return take_sized(r, h, UINT, 1u << (b - 0xcc));
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return take_signed(r, h, 1u << (b - 0xd0));
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return take_ext(r, h, 0, (uint64_t)1 << (b - 0xd4));
    case 0xd9:
    case 0xda:
    case 0xdb:
        return take_sized(r, h, TEXT, 1u << (b - 0xd9));
    case 0xdc:
    case 0xdd:
        return take_sized(r, h, LIST, 2u << (b - 0xdc));
    case 0xde:
    case 0xdf:
        return take_sized(r, h, MAP, 2u << (b - 0xde));
    default:
        return ckpt_fail(r->err, -EINVAL, "msgpack has the unknown byte %02x at %zu", b,
                         r->pos - 1);
    }
}

static int take_head(struct reader *r, struct head *h) {
    uint8_t b;
    *h = (struct head){0};
    const int rc = take(r, &b, 1);
    if (rc)
        return rc;
    if (b < 0x80)
        *h = (struct head){.token = UINT, .u = b};
    else if (b < 0x90)
        *h = (struct head){.token = MAP, .u = b & 0xf};
    else if (b < 0xa0)
        *h = (struct head){.token = LIST, .u = b & 0xf};
    else if (b < 0xc0)
        *h = (struct head){.token = TEXT, .u = b & 0x1f};
    else if (b >= 0xe0)
        *h = (struct head){.token = INT, .i = (int64_t)b - 256};
    else
        return take_long_head(r, b, h);
    return 0;
}

/* --- values ----------------------------------------------------------------------------------- */

static int read_value(struct reader *r, struct ckpt_value **out);

static int take_text(struct reader *r, uint64_t n, struct ckpt_text *out) {
    if (n > r->n - r->pos)
        return fail_short(r);
    if (n > CKPT_LIMIT_MSGPACK_TEXT)
        return ckpt_fail(r->err, -E2BIG,
                         "msgpack has a text of more than %u bytes (limit of msgpack text)",
                         CKPT_LIMIT_MSGPACK_TEXT);
    r->text_bytes += n;
    if (r->text_bytes > CKPT_LIMIT_MSGPACK_TEXTS)
        return ckpt_fail(r->err, -E2BIG,
                         "msgpack has more than %u bytes of texts (limit of msgpack texts)",
                         CKPT_LIMIT_MSGPACK_TEXTS);
    char *const s = ckpt_arena_alloc(r->arena, (size_t)n + 1);
    if (!s)
        return fail_memory(r);
    *out = (struct ckpt_text){s, (size_t)n};
    return take(r, s, (size_t)n);
}

static int read_seq(struct reader *r, struct ckpt_value *v, uint64_t n) {
    if (n > r->n - r->pos)
        return fail_short(r);
    if (r->depth == CKPT_LIMIT_MSGPACK_DEPTH)
        return ckpt_fail(r->err, -E2BIG,
                         "msgpack is nested deeper than %u (limit of msgpack depth)",
                         CKPT_LIMIT_MSGPACK_DEPTH);
    if (n > CKPT_LIMIT_MSGPACK_OBJECTS)
        return ckpt_fail(r->err, -E2BIG,
                         "msgpack has more than %u values (limit of msgpack values)",
                         CKPT_LIMIT_MSGPACK_OBJECTS);
    v->seq.item = ckpt_arena_array(r->arena, (size_t)n + 1, sizeof *v->seq.item);
    if (!v->seq.item)
        return fail_memory(r);
    r->depth++;
    int rc = 0;
    for (; rc == 0 && v->seq.n < n; v->seq.n++) {
        rc = read_value(r, &v->seq.item[v->seq.n]);
        if (rc == 0 && v->seq.item[v->seq.n]->depth >= v->depth)
            v->depth = v->seq.item[v->seq.n]->depth + 1;
    }
    r->depth--;
    return rc;
}

static struct ckpt_msgpack_array *make_array(struct reader *r, struct ckpt_value *v) {
    struct ckpt_msgpack_array *const a = ckpt_arena_alloc(r->arena, sizeof *a);
    v->kind = CKPT_VALUE_MSGPACK_ARRAY;
    v->format = a;
    return a;
}

/* A number as an array without dimensions. */
static int make_number(struct reader *r, struct ckpt_value *v, const char *dtype, const void *bytes,
                       size_t n) {
    static const int64_t no_dimensions[1];
    struct ckpt_msgpack_array *const a = make_array(r, v);
    if (!a)
        return fail_memory(r);
    a->dtype = ckpt_text_of(dtype);
    a->shape = no_dimensions;
    a->is_number = true;
    a->nbytes = n;
    memcpy(a->number, bytes, n);
    return 0;
}

static int fail_payload(struct reader *r, size_t at) {
    return ckpt_fail(r->err, -EINVAL, "msgpack has an array at byte %zu that is malformed", at);
}

static int read_shape(struct reader *r, struct ckpt_msgpack_array *a, size_t at) {
    struct head h;
    int rc = take_head(r, &h);
    if (rc == 0 && (h.token != LIST || h.u > CKPT_NDIM_MAX))
        return fail_payload(r, at);
    int64_t *const shape = rc ? NULL : ckpt_arena_array(r->arena, (size_t)h.u + 1, sizeof *shape);
    if (rc == 0 && !shape)
        return fail_memory(r);
    a->ndim = rc ? 0 : (uint32_t)h.u;
    a->shape = shape;
    for (uint32_t i = 0; rc == 0 && i < a->ndim; i++) {
        rc = take_head(r, &h);
        if (rc == 0 && (h.token != UINT || h.u > INT64_MAX))
            return fail_payload(r, at);
        shape[i] = (int64_t)h.u;
    }
    return rc;
}

/* [shape, dtype, bytes], the bytes to the end of the payload. */
static int read_array(struct reader *r, struct ckpt_value *v, size_t end) {
    const size_t at = r->pos;
    struct ckpt_msgpack_array *const a = make_array(r, v);
    struct head h;
    if (!a)
        return fail_memory(r);
    int rc = take_head(r, &h);
    if (rc == 0 && (h.token != LIST || h.u != 3))
        return fail_payload(r, at);
    if (rc == 0)
        rc = read_shape(r, a, at);
    if (rc == 0)
        rc = take_head(r, &h);
    if (rc == 0 && h.token != TEXT && h.token != BYTES)
        return fail_payload(r, at);
    if (rc == 0)
        rc = take_text(r, h.u, &a->dtype);
    if (rc == 0)
        rc = take_head(r, &h);
    if (rc)
        return rc;
    if (h.token != BYTES || r->pos > end || h.u != end - r->pos)
        return fail_payload(r, at);
    a->offset = r->pos;
    a->nbytes = h.u;
    r->pos = end;
    return 0;
}

static int read_complex(struct reader *r, struct ckpt_value *v, size_t end) {
    const size_t at = r->pos;
    struct head h, part[2];
    int rc = take_head(r, &h);
    if (rc == 0 && (h.token != LIST || h.u != 2))
        return fail_payload(r, at);
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = take_head(r, &part[i]);
        if (rc == 0 && part[i].token != FLOAT)
            return fail_payload(r, at);
    }
    if (rc)
        return rc;
    const double both[2] = {part[0].f, part[1].f};
    return r->pos == end ? make_number(r, v, "complex128", both, sizeof both) : fail_payload(r, at);
}

static int read_ext(struct reader *r, struct ckpt_value *v, const struct head *h) {
    if (h->u > r->n - r->pos)
        return fail_short(r);
    const size_t end = r->pos + (size_t)h->u;
    if (h->ext == EXT_ARRAY || h->ext == EXT_SCALAR)
        return read_array(r, v, end);
    if (h->ext == EXT_COMPLEX)
        return read_complex(r, v, end);
    return ckpt_fail(r->err, -EINVAL, "msgpack has the unknown extension %u at byte %zu", h->ext,
                     r->pos);
}

static int read_body(struct reader *r, struct ckpt_value *v, const struct head *h) {
    switch (h->token) {
    case NIL:
        v->kind = CKPT_VALUE_NONE;
        return 0;
    case FALSE_:
    case TRUE_:
        return make_number(r, v, "bool", &(uint8_t){h->token == TRUE_}, 1);
    case UINT:
        return make_number(r, v, h->u > INT64_MAX ? "uint64" : "int64", &h->u, sizeof h->u);
    case INT:
        return make_number(r, v, "int64", &h->i, sizeof h->i);
    case FLOAT:
        return make_number(r, v, "float64", &h->f, sizeof h->f);
    case TEXT:
    case BYTES:
        v->kind = h->token == TEXT ? CKPT_VALUE_STR : CKPT_VALUE_BYTES;
        return take_text(r, h->u, &v->text);
    case LIST:
        v->kind = CKPT_VALUE_LIST;
        return read_seq(r, v, h->u);
    case MAP:
        v->kind = CKPT_VALUE_DICT;
        return read_seq(r, v, 2 * h->u);
    case EXT:
        break;
    }
    return read_ext(r, v, h);
}

static int read_value(struct reader *r, struct ckpt_value **out) {
    struct head h;
    if (r->objects++ == CKPT_LIMIT_MSGPACK_OBJECTS)
        return ckpt_fail(r->err, -E2BIG,
                         "msgpack has more than %u values (limit of msgpack values)",
                         CKPT_LIMIT_MSGPACK_OBJECTS);
    const int rc = take_head(r, &h);
    *out = rc ? NULL : ckpt_arena_alloc(r->arena, sizeof **out);
    if (rc)
        return rc;
    return *out ? read_body(r, *out, &h) : fail_memory(r);
}

bool ckpt_msgpack_is(const uint8_t *start, size_t n) {
    const size_t head = n == 0                               ? 0
                        : start[0] > 0x80 && start[0] < 0x90 ? 1
                        : start[0] == 0xde                   ? 3
                        : start[0] == 0xdf                   ? 5
                                                             : 0;
    if (head == 0 || n <= head)
        return false;
    const uint8_t key = start[head];
    return (key >= 0xa0 && key < 0xc0) || (key >= 0xd9 && key <= 0xdb);
}

int ckpt_msgpack_read(const uint8_t *bytes, size_t n, struct ckpt_arena *a, struct ckpt_value **out,
                      struct ckpt_err *err) {
    struct reader r = {.bytes = bytes, .n = n, .arena = a, .err = err};
    const int rc = read_value(&r, out);
    if (rc)
        return rc;
    return r.pos == n
               ? 0
               : ckpt_fail(err, -EINVAL, "msgpack ends at byte %zu, the file at %zu", r.pos, n);
}
