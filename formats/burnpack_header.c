#include "formats/burnpack_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/strmap.h"
#include "formats/cbor.h"
#include "formats/limits.h"

#define VERSION 1u

struct parser {
    struct ckpt_cbor cbor;
    struct ckpt_bpk_table *table;
    struct ckpt_header_entry_reader r;
    unsigned seen; /* bit per member of the map that is being read */
    struct ckpt_strmap names;
    uint64_t data_size;
};

static int fail_memory(const struct parser *p) {
    return ckpt_fail_memory(p->r.err, "reading the metadata of a burnpack");
}

/* "its shape is a text, expected an array" unless the token is the one. */
static int fail_token(const struct parser *p, const char *what, int token, int expected) {
    return ckpt_fail(p->r.err, -EINVAL, "%s is %s, expected %s (at byte %zu)", what,
                     ckpt_cbor_token_name(token), ckpt_cbor_token_name(expected), p->cbor.at);
}

/* The next token, which has to be the one. */
static int take(struct parser *p, const char *what, int expected) {
    const int t = ckpt_cbor_next(&p->cbor);
    return t < 0 ? t : t == expected ? 0 : fail_token(p, what, t, expected);
}

/* The next key of a map, which has to be text: 1, or 0 at the map's end. */
static int next_key(struct parser *p, const char *map) {
    const int t = ckpt_cbor_next(&p->cbor);
    if (t < 0 || t == CKPT_CBOR_MAP_END)
        return t < 0 ? t : 0;
    return t == CKPT_CBOR_TEXT
               ? 1
               : ckpt_fail(p->r.err, -EINVAL, "a key of %s is %s, expected a text (at byte %zu)",
                           map, ckpt_cbor_token_name(t), p->cbor.at);
}

/* Which of the names the key is; their number if it is none of them. A name again is an error. */
static int member(struct parser *p, const char *what, const char *const *names, int n) {
    int i = 0;
    while (i < n && !ckpt_text_is(p->cbor.text, names[i]))
        i++;
    if (i < n && p->seen & 1u << i)
        return ckpt_fail(p->r.err, -EINVAL, "%s holds \"%s\" twice (at byte %zu)", what, names[i],
                         p->cbor.at);
    p->seen |= 1u << i;
    return i;
}

/* A copy of the text just read as the name of something that is there once. */
static int take_name(struct parser *p, const char *what, struct ckpt_text *name) {
    *name = ckpt_text_copy(p->r.arena, p->cbor.text.s, p->cbor.text.n);
    const int rc = name->s ? ckpt_strmap_add(&p->names, *name, 0, NULL) : -ENOMEM;
    return rc == -EEXIST ? ckpt_fail(p->r.err, -EINVAL, "%s holds \"%.*s\" twice (at byte %zu)",
                                     what, CKPT_TEXT_ARGS(*name), p->cbor.at)
           : rc          ? fail_memory(p)
                         : 0;
}

/* --- the members of a tensor ------------------------------------------------------------------ */

/* Ours are named alike; a second name is only read. */
static const struct {
    const char *name;
    enum ckpt_dtype dtype;
} dtypes[] = {
    {"F64", CKPT_DT_F64},    {"F32", CKPT_DT_F32}, {"F16", CKPT_DT_F16}, {"BF16", CKPT_DT_BF16},
    {"I64", CKPT_DT_I64},    {"I32", CKPT_DT_I32}, {"I16", CKPT_DT_I16}, {"I8", CKPT_DT_I8},
    {"U64", CKPT_DT_U64},    {"U32", CKPT_DT_U32}, {"U16", CKPT_DT_U16}, {"U8", CKPT_DT_U8},
    {"Flex32", CKPT_DT_F32}, /* F32's bits, of which a device may use fewer */
};
enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

const char *ckpt_bpk_dtype_name(enum ckpt_dtype t) {
    for (size_t i = 0; i < NDTYPES; i++)
        if (dtypes[i].dtype == t)
            return dtypes[i].name;
    return t == CKPT_DT_BOOL ? "Bool" : NULL;
}

static void plain_dtype(struct parser *p) {
    for (size_t i = 0; i < NDTYPES; i++)
        if (ckpt_text_is(p->cbor.text, dtypes[i].name)) {
            p->r.entry->dtype = dtypes[i].dtype;
            return;
        }
    ckpt_header_entry_fault(&p->r, "unknown dtype \"%.*s\"", CKPT_TEXT_ARGS(p->cbor.text));
}

/* {"Bool": "Native" | "U8" | "U32"}: how its elements, 0 and 1, are stored. */
static int bool_dtype(struct parser *p) {
    const int rc = take(p, "how booleans are stored", CKPT_CBOR_TEXT);
    if (rc)
        return rc;
    const bool is_wide = ckpt_text_is(p->cbor.text, "U32");
    if (is_wide || ckpt_text_is(p->cbor.text, "U8") || ckpt_text_is(p->cbor.text, "Native"))
        p->r.entry->dtype = is_wide ? CKPT_DT_U32 : CKPT_DT_BOOL;
    else
        ckpt_header_entry_fault(&p->r, "unknown dtype Bool(%.*s)", CKPT_TEXT_ARGS(p->cbor.text));
    p->table->nwide += is_wide;
    return 0;
}

/* A variant that holds something: {"Bool": ...} or {"QFloat": {...}}, which stays without dtype. */
static int variant_dtype(struct parser *p) {
    int rc = next_key(p, "a dtype");
    if (rc <= 0)
        return rc < 0 ? rc : ckpt_fail(p->r.err, -EINVAL, "a dtype is an empty map");
    if (ckpt_text_is(p->cbor.text, "Bool")) {
        rc = bool_dtype(p);
    } else {
        if (!ckpt_text_is(p->cbor.text, "QFloat"))
            ckpt_header_entry_fault(&p->r, "unknown dtype \"%.*s\"", CKPT_TEXT_ARGS(p->cbor.text));
        rc = ckpt_cbor_skip(&p->cbor, ckpt_cbor_next(&p->cbor));
    }
    return rc ? rc : take(p, "what follows a dtype's name", CKPT_CBOR_MAP_END);
}

static int read_dtype(struct parser *p) {
    const int t = ckpt_cbor_next(&p->cbor);
    if (t == CKPT_CBOR_MAP)
        return variant_dtype(p);
    if (t == CKPT_CBOR_TEXT)
        plain_dtype(p);
    else if (t >= 0)
        ckpt_header_entry_fault(&p->r, "its dtype is %s, expected a text", ckpt_cbor_token_name(t));
    return ckpt_cbor_skip(&p->cbor, t);
}

/* Reads an array of up to max numbers <= limit; *n gets their count. */
static int read_numbers(struct parser *p, const char *what, uint64_t *numbers, uint32_t max,
                        uint64_t limit, uint32_t *n) {
    int t = ckpt_cbor_next(&p->cbor);
    *n = 0;
    if (t != CKPT_CBOR_ARRAY) {
        if (t >= 0)
            ckpt_header_entry_fault(&p->r, "its %s is %s, expected an array", what,
                                    ckpt_cbor_token_name(t));
        return ckpt_cbor_skip(&p->cbor, t);
    }
    while ((t = ckpt_cbor_next(&p->cbor)) >= 0 && t != CKPT_CBOR_ARRAY_END) {
        if (t != CKPT_CBOR_UINT)
            ckpt_header_entry_fault(&p->r, "its %s holds %s, expected numbers", what,
                                    ckpt_cbor_token_name(t));
        else if (p->cbor.u > limit)
            ckpt_header_entry_fault(&p->r, "its %s holds %" PRIu64 ", which is too large", what,
                                    p->cbor.u);
        else if (*n == max)
            ckpt_header_entry_fault(&p->r, "its %s holds more than %u numbers", what, max);
        else
            numbers[(*n)++] = p->cbor.u;
        const int rc = ckpt_cbor_skip(&p->cbor, t);
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

static int read_shape(struct parser *p) {
    uint64_t numbers[CKPT_NDIM_MAX];
    const int rc = read_numbers(p, "shape", numbers, CKPT_NDIM_MAX, INT64_MAX, &p->r.entry->ndim);
    if (rc)
        return rc;
    int64_t *shape = ckpt_arena_array(p->r.arena, p->r.entry->ndim, sizeof *shape);
    if (!shape)
        return fail_memory(p);
    for (uint32_t i = 0; i < p->r.entry->ndim; i++)
        shape[i] = (int64_t)numbers[i];
    p->r.entry->shape = shape;
    return 0;
}

static int read_offsets(struct parser *p) {
    uint64_t numbers[2] = {0, 0};
    uint32_t n;
    const int rc = read_numbers(p, "data_offsets", numbers, 2, UINT64_MAX, &n);
    if (rc == 0 && n != 2)
        ckpt_header_entry_fault(&p->r, "its data_offsets holds %u numbers, expected 2", n);
    p->r.entry->begin = numbers[0];
    p->r.entry->end = numbers[1];
    return rc;
}

/* Which parameter of a training state it is: of no use outside the process that saved it. */
static int read_param_id(struct parser *p) {
    const int t = ckpt_cbor_next(&p->cbor);
    if (t >= 0 && t != CKPT_CBOR_UINT && t != CKPT_CBOR_NULL)
        ckpt_header_entry_fault(&p->r, "its param_id is %s, expected a number",
                                ckpt_cbor_token_name(t));
    return ckpt_cbor_skip(&p->cbor, t);
}

enum { DTYPE, SHAPE, OFFSETS, PARAM_ID, NMEMBERS };
static const char *const member_names[] = {"dtype", "shape", "data_offsets", "param_id"};

static int read_member(struct parser *p) {
    const int m = member(p, "a tensor", member_names, NMEMBERS);
    switch (m) {
    case DTYPE:
        return read_dtype(p);
    case SHAPE:
        return read_shape(p);
    case OFFSETS:
        return read_offsets(p);
    case PARAM_ID:
        return read_param_id(p);
    default:
        return m < 0 ? m : ckpt_cbor_skip(&p->cbor, ckpt_cbor_next(&p->cbor));
    }
}

/* The finished entry by itself. */
static void check_entry(struct parser *p) {
    const struct ckpt_header_entry *e = p->r.entry;
    for (int m = 0; m < PARAM_ID; m++)
        if (!(p->seen & 1u << m))
            ckpt_header_entry_fault(&p->r, "it has no %s", member_names[m]);
    ckpt_header_entry_check(&p->r, p->data_size);
    if (!p->r.is_faulty && e->end - e->begin > CKPT_LIMIT_BURNPACK_TENSOR_BYTES)
        ckpt_header_entry_fault(
            &p->r, "%" PRIu64 " bytes, burn's limit of one tensor of a burnpack is %" PRIu64,
            e->end - e->begin, CKPT_LIMIT_BURNPACK_TENSOR_BYTES);
}

static int add_entry(struct parser *p) {
    struct ckpt_bpk_table *t = p->table;
    struct ckpt_text key;
    if (t->n == CKPT_LIMIT_BURNPACK_TENSORS)
        return ckpt_fail(p->r.err, -E2BIG, "more than %u tensors, burn's limit of a burnpack",
                         CKPT_LIMIT_BURNPACK_TENSORS);
    const int rc = take_name(p, "\"tensors\"", &key);
    if (rc)
        return rc;
    if (!ckpt_array_grow(&t->entries, t->n, &t->cap, sizeof *t->entries))
        return fail_memory(p);
    p->r.entry = &t->entries[t->n++];
    *p->r.entry = (struct ckpt_header_entry){.key = key};
    return 0;
}

static int read_entry(struct parser *p) {
    int rc = add_entry(p);
    if (rc == 0)
        rc = take(p, "a tensor", CKPT_CBOR_MAP);
    if (rc)
        return rc;
    p->seen = 0;
    while ((rc = next_key(p, "a tensor")) > 0 && (rc = read_member(p)) == 0)
        ;
    if (rc)
        return rc;
    check_entry(p);
    return ckpt_header_entry_settle(&p->r);
}

/* --- metadata and scalars --------------------------------------------------------------------- */

static int check_room(const struct parser *p, const char *what, size_t n) {
    return n < CKPT_LIMIT_BURNPACK_PAIRS
               ? 0
               : ckpt_fail(p->r.err, -E2BIG, "more than %u %s (limit of burnpack pairs)",
                           CKPT_LIMIT_BURNPACK_PAIRS, what);
}

static int read_pair(struct parser *p) {
    struct ckpt_bpk_table *t = p->table;
    struct ckpt_pair pair;
    int rc = check_room(p, "pairs of metadata", t->nmetadata);
    if (rc == 0)
        rc = take_name(p, "\"metadata\"", &pair.key);
    if (rc == 0)
        rc = take(p, "a value of \"metadata\"", CKPT_CBOR_TEXT);
    if (rc)
        return rc;
    pair.value = ckpt_text_copy(p->r.arena, p->cbor.text.s, p->cbor.text.n);
    if (!pair.value.s ||
        !ckpt_array_grow(&t->metadata, t->nmetadata, &t->metadata_cap, sizeof pair))
        return fail_memory(p);
    t->metadata[t->nmetadata++] = pair;
    return 0;
}

static bool integer_value(struct parser *p, int token, bool is_signed, struct ckpt_value *v) {
    const uint64_t u = p->cbor.u;
    if (u <= INT64_MAX && (token == CKPT_CBOR_UINT || (token == CKPT_CBOR_NEGATIVE && is_signed))) {
        *v = (struct ckpt_value){.kind = CKPT_VALUE_INT,
                                 .i = token == CKPT_CBOR_UINT ? (int64_t)u : -1 - (int64_t)u};
        return true;
    }
    if (is_signed || token != CKPT_CBOR_UINT)
        return false;
    char *digits = ckpt_arena_printf(p->r.arena, "%" PRIu64, u);
    *v = (struct ckpt_value){.kind = CKPT_VALUE_BIGINT, .text = ckpt_text_of(digits ? digits : "")};
    return true;
}

/* The value of a scalar of that variant; false: the token is none. */
static bool scalar_value(struct parser *p, int variant, int token, struct ckpt_value *v) {
    switch (variant) {
    case 0:
    case 1:
        return integer_value(p, token, variant == 0, v);
    case 2:
        *v = (struct ckpt_value){.kind = CKPT_VALUE_FLOAT, .f = p->cbor.number};
        return token == CKPT_CBOR_FLOAT;
    default:
        *v = (struct ckpt_value){.kind = CKPT_VALUE_BOOL, .b = token == CKPT_CBOR_TRUE};
        return token == CKPT_CBOR_TRUE || token == CKPT_CBOR_FALSE;
    }
}

/* {"Int": -1} */
static int read_variant(struct parser *p, struct ckpt_bpk_scalar *s) {
    static const char *const variants[] = {"Int", "UInt", "Float", "Bool"};
    int rc = take(p, "a scalar", CKPT_CBOR_MAP);
    p->seen = 0;
    if (rc == 0)
        rc = next_key(p, "a scalar");
    if (rc < 0)
        return rc;
    const int variant = rc ? member(p, "a scalar", variants, 4) : 4;
    const int t = variant < 4 ? ckpt_cbor_next(&p->cbor) : 0;
    if (t < 0)
        return t;
    if (variant == 4 || !scalar_value(p, variant, t, &s->value))
        return ckpt_fail(p->r.err, -EINVAL,
                         "the scalar \"%.*s\" is not an Int, UInt, Float or Bool (at byte %zu)",
                         CKPT_TEXT_ARGS(s->key), p->cbor.at);
    return take(p, "what follows a scalar", CKPT_CBOR_MAP_END);
}

static int read_scalar(struct parser *p) {
    struct ckpt_bpk_table *t = p->table;
    struct ckpt_bpk_scalar s;
    int rc = check_room(p, "scalars", t->nscalars);
    if (rc == 0)
        rc = take_name(p, "\"scalars\"", &s.key);
    if (rc == 0)
        rc = read_variant(p, &s);
    if (rc)
        return rc;
    if (!ckpt_array_grow(&t->scalars, t->nscalars, &t->scalars_cap, sizeof s))
        return fail_memory(p);
    t->scalars[t->nscalars++] = s;
    return 0;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int read_map(struct parser *p, const char *what, int (*read_item)(struct parser *p)) {
    int rc = take(p, what, CKPT_CBOR_MAP);
    while (rc == 0 && (rc = next_key(p, what)) > 0)
        rc = read_item(p);
    ckpt_strmap_clear(&p->names);
    return rc;
}

static int read_section(struct parser *p, unsigned *seen) {
    static const char *const sections[] = {"tensors", "metadata", "scalars"};
    p->seen = *seen;
    const int i = member(p, "the metadata", sections, 3);
    *seen = p->seen;
    switch (i) {
    case 0:
        return read_map(p, "\"tensors\"", read_entry);
    case 1:
        return read_map(p, "\"metadata\"", read_pair);
    case 2:
        return read_map(p, "\"scalars\"", read_scalar);
    default: /* of a later burn */
        return i < 0 ? i : ckpt_cbor_skip(&p->cbor, ckpt_cbor_next(&p->cbor));
    }
}

static int read_sections(struct parser *p) {
    unsigned seen = 0;
    int rc = take(p, "the metadata", CKPT_CBOR_MAP);
    while (rc == 0 && (rc = next_key(p, "the metadata")) > 0)
        rc = read_section(p, &seen);
    if (rc)
        return rc;
    if (!(seen & 1u))
        return ckpt_fail(p->r.err, -EINVAL, "the metadata has no \"tensors\"");
    return ckpt_cbor_next(&p->cbor); /* EOF is 0 */
}

/* Ranges may lie anywhere but over each other. */
static int check_overlaps(struct parser *p) {
    size_t n;
    CKPT_AUTO(free)
    struct ckpt_header_entry **sorted = ckpt_header_by_range(p->table->entries, p->table->n, &n);
    if (!sorted)
        return fail_memory(p);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        p->r.entry = sorted[i];
        const uint64_t begin = sorted[i]->begin;
        if (begin == sorted[i]->end)
            continue; /* no byte of it can lie in another */
        if (begin < end)
            ckpt_header_entry_fault(&p->r,
                                    "its data begins at byte %" PRIu64
                                    ", inside the tensor before it, which ends at %" PRIu64,
                                    begin, end);
        else if (begin - end >= CKPT_BPK_ALIGNMENT)
            p->table->unclaimed += begin - end;
        if (!p->r.is_faulty)
            end = sorted[i]->end;
        const int rc = ckpt_header_entry_settle(&p->r);
        if (rc)
            return rc;
    }
    if (p->data_size - end >= CKPT_BPK_ALIGNMENT) /* burn pads before an empty tensor, too */
        p->table->unclaimed += p->data_size - end;
    return 0;
}

/* Now that their ranges have been checked as all others'. */
static void leave_out_quantised(struct ckpt_bpk_table *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].dtype == CKPT_DT_NONE && !t->entries[i].fault)
            t->entries[i].fault = "a tensor that burn quantised (QFloat), which is not supported";
}

int ckpt_bpk_parse(struct ckpt_bpk_table *t, struct ckpt_arena *a, const void *cbor, size_t n,
                   uint64_t data_size, bool keep_going, struct ckpt_err *err) {
    *t = (struct ckpt_bpk_table){.data_start = ckpt_bpk_data_start(n)};
    struct parser p = {.table = t,
                       .r = {.arena = a, .keep_going = keep_going, .err = err},
                       .data_size = data_size};
    ckpt_cbor_init(&p.cbor, cbor, n, CKPT_BPK_HEADER, err);
    int rc = read_sections(&p);
    ckpt_cbor_fini(&p.cbor);
    ckpt_strmap_fini(&p.names);
    if (rc == 0)
        rc = check_overlaps(&p);
    leave_out_quantised(t);
    if (rc)
        ckpt_bpk_table_fini(t);
    return rc;
}

uint64_t ckpt_bpk_data_start(uint64_t n) {
    const uint64_t a = CKPT_BPK_ALIGNMENT;
    return (CKPT_BPK_HEADER + n + a - 1) / a * a;
}

bool ckpt_bpk_detect(const void *bytes, size_t n) {
    return n >= sizeof CKPT_BPK_MAGIC - 1 &&
           memcmp(bytes, CKPT_BPK_MAGIC, sizeof CKPT_BPK_MAGIC - 1) == 0;
}

static int check_header(uint64_t version, uint64_t n, uint64_t file_size, struct ckpt_err *err) {
    if (version != VERSION)
        return ckpt_fail(err, -EINVAL,
                         "a burnpack of version %" PRIu64 ", only version %u is known", version,
                         VERSION);
    if (n > CKPT_LIMIT_BURNPACK_METADATA)
        return ckpt_fail(err, -E2BIG,
                         "the burnpack gives its metadata %" PRIu64 " bytes, burn's limit is %u", n,
                         CKPT_LIMIT_BURNPACK_METADATA);
    if (file_size > CKPT_LIMIT_BURNPACK_FILE_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "a burnpack of %" PRIu64 " bytes, burn's limit of the file is %" PRIu64,
                         file_size, CKPT_LIMIT_BURNPACK_FILE_BYTES);
    if (CKPT_BPK_HEADER + n > file_size)
        return ckpt_fail(err, -EINVAL,
                         "the burnpack's metadata of %" PRIu64
                         " bytes runs past the end of the file, which has %" PRIu64
                         " bytes: the file is truncated or damaged",
                         n, file_size);
    return 0;
}

int ckpt_bpk_read(struct ckpt_bpk_table *t, struct ckpt_arena *a, const struct ckpt_file *f,
                  bool keep_going, struct ckpt_err *err) {
    *t = (struct ckpt_bpk_table){0};
    uint8_t head[CKPT_BPK_HEADER];
    int rc = ckpt_file_read(f, 0, head, sizeof head, err);
    if (rc)
        return rc;
    struct ckpt_buf b = {.p = head, .n = sizeof head, .pos = sizeof CKPT_BPK_MAGIC - 1};
    const uint64_t version = ckpt_buf_u16(&b), n = ckpt_buf_u32(&b);
    rc = check_header(version, n, f->size, err);
    if (rc)
        return rc;
    /* In memory of our own, so that a file that changes meanwhile cannot pull the rug away. */
    CKPT_AUTO(free) char *cbor = malloc((size_t)n + 1);
    if (!cbor)
        return ckpt_fail_memory(err, "reading the metadata of a burnpack");
    rc = ckpt_file_read(f, CKPT_BPK_HEADER, cbor, (size_t)n, err);
    const uint64_t start = ckpt_bpk_data_start(n);
    return rc ? rc
              : ckpt_bpk_parse(t, a, cbor, (size_t)n, f->size > start ? f->size - start : 0,
                               keep_going, err);
}

void ckpt_bpk_table_fini(struct ckpt_bpk_table *t) {
    free(t->entries);
    free(t->metadata);
    free(t->scalars);
    *t = (struct ckpt_bpk_table){0};
}
