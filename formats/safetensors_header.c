#include "formats/safetensors_header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "formats/limits.h"

struct parser {
    struct ckpt_json json;
    struct ckpt_st_table *table;
    struct ckpt_header_entry_reader r;
    bool has_dtype, has_shape, has_offsets;
    uint64_t data_size;
    uint64_t ndims; /* of all tensors so far */
};

static int read_dtype(struct parser *p) {
    const int t = ckpt_json_next(&p->json);
    if (t != CKPT_JSON_STRING) {
        if (t >= 0)
            ckpt_header_entry_fault(&p->r, "its dtype is %s, expected a string",
                                    ckpt_json_token_name(t));
        return ckpt_json_skip(&p->json, t);
    }
    p->r.entry->dtype = ckpt_dtype_by_name(p->json.text);
    if (!ckpt_dtype_info(p->r.entry->dtype)
             ->in_safetensors) /* C128 is a dtype, but not of this format */
        ckpt_header_entry_fault(&p->r, "unknown dtype \"%.*s\"", CKPT_TEXT_ARGS(p->json.text));
    p->has_dtype = true;
    return 0;
}

/* Reads an array of up to max numbers >= 0 and <= limit; *n gets their count. */
static int read_numbers(struct parser *p, const char *what, uint64_t *numbers, uint32_t max,
                        uint64_t limit, uint32_t *n) {
    struct ckpt_json *j = &p->json;
    int t = ckpt_json_next(j);
    *n = 0;
    if (t != CKPT_JSON_ARRAY) {
        if (t >= 0)
            ckpt_header_entry_fault(&p->r, "its %s is %s, expected an array", what,
                                    ckpt_json_token_name(t));
        return ckpt_json_skip(j, t);
    }
    while ((t = ckpt_json_next(j)) >= 0 && t != CKPT_JSON_ARRAY_END) {
        if (t != CKPT_JSON_INT)
            ckpt_header_entry_fault(&p->r, "its %s holds %s, expected integers", what,
                                    ckpt_json_token_name(t));
        else if (j->negative)
            ckpt_header_entry_fault(&p->r, "its %s holds the negative number %" PRId64, what, j->i);
        else if (j->u > limit)
            ckpt_header_entry_fault(&p->r, "its %s holds %" PRIu64 ", which is too large", what,
                                    j->u);
        else if (*n == max)
            ckpt_header_entry_fault(&p->r, "its %s holds more than %u numbers", what, max);
        else
            numbers[(*n)++] = j->u;
        if (ckpt_json_skip(j, t))
            return -EINVAL;
    }
    return t < 0 ? t : 0;
}

static int read_shape(struct parser *p) {
    uint64_t numbers[CKPT_NDIM_MAX];
    const int rc = read_numbers(p, "shape", numbers, CKPT_NDIM_MAX, INT64_MAX, &p->r.entry->ndim);
    if (rc)
        return rc;
    p->ndims += p->r.entry->ndim;
    if (p->ndims > CKPT_LIMIT_DIMENSIONS)
        return ckpt_fail(p->r.err, -E2BIG,
                         "the tensors have more than %u dimensions together (limit of dimensions)",
                         CKPT_LIMIT_DIMENSIONS);
    int64_t *shape = ckpt_arena_array(p->r.arena, p->r.entry->ndim, sizeof *shape);
    if (!shape)
        return ckpt_fail_memory(p->r.err, "reading a safetensors header");
    for (uint32_t i = 0; i < p->r.entry->ndim; i++)
        shape[i] = (int64_t)numbers[i];
    p->r.entry->shape = shape;
    p->has_shape = true;
    return 0;
}

static int read_offsets(struct parser *p) {
    uint64_t numbers[2] = {0, 0};
    uint32_t n;
    const int rc = read_numbers(p, "data_offsets", numbers, 2, UINT64_MAX, &n);
    if (rc)
        return rc;
    if (n != 2)
        ckpt_header_entry_fault(&p->r, "its data_offsets holds %u numbers, expected 2", n);
    p->r.entry->begin = numbers[0];
    p->r.entry->end = numbers[1];
    p->has_offsets = true;
    return 0;
}

static int read_member(struct parser *p) {
    const struct ckpt_text name = p->json.text;
    if (ckpt_text_is(name, "dtype"))
        return read_dtype(p);
    if (ckpt_text_is(name, "shape"))
        return read_shape(p);
    if (ckpt_text_is(name, "data_offsets"))
        return read_offsets(p);
    return ckpt_json_skip(&p->json, ckpt_json_next(&p->json)); /* as the reference package does */
}

static const char *missing_member(const struct parser *p) {
    return !p->has_dtype     ? "dtype"
           : !p->has_shape   ? "shape"
           : !p->has_offsets ? "data_offsets"
                             : NULL;
}

static void check_entry(struct parser *p) {
    if (missing_member(p))
        ckpt_header_entry_fault(&p->r, "it has no %s", missing_member(p));
    ckpt_header_entry_check(&p->r, p->data_size);
}

static int add_entry(struct parser *p) {
    struct ckpt_st_table *t = p->table;
    if (t->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(p->r.err, -E2BIG, "more than %u tensors (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    const struct ckpt_text key = ckpt_text_copy(p->r.arena, p->json.text.s, p->json.text.n);
    if (!key.s || !ckpt_array_grow(&t->entries, t->n, &t->cap, sizeof *t->entries))
        return ckpt_fail_memory(p->r.err, "reading a safetensors header");
    p->r.entry = &t->entries[t->n++];
    *p->r.entry = (struct ckpt_header_entry){.key = key};
    p->has_dtype = p->has_shape = p->has_offsets = false;
    return 0;
}

static int read_entry(struct parser *p) {
    int rc = add_entry(p);
    if (rc)
        return rc;
    int t = ckpt_json_next(&p->json);
    if (t != CKPT_JSON_OBJECT) {
        if (t >= 0)
            ckpt_header_entry_fault(&p->r, "its entry is %s, expected an object",
                                    ckpt_json_token_name(t));
        rc = ckpt_json_skip(&p->json, t);
        return rc ? rc : ckpt_header_entry_settle(&p->r);
    }
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        rc = read_member(p);
        if (rc)
            return rc;
    }
    if (t < 0)
        return t;
    check_entry(p);
    return ckpt_header_entry_settle(&p->r);
}

static int add_pair(struct parser *p, struct ckpt_text key, struct ckpt_text value) {
    struct ckpt_st_table *t = p->table;
    const struct ckpt_pair pair = {ckpt_text_copy(p->r.arena, key.s, key.n),
                                   ckpt_text_copy(p->r.arena, value.s, value.n)};
    if (!pair.key.s || !pair.value.s ||
        !ckpt_array_grow(&t->metadata, t->nmetadata, &t->metadata_cap, sizeof pair))
        return ckpt_fail_memory(p->r.err, "reading a safetensors header");
    t->metadata[t->nmetadata++] = pair;
    return 0;
}

static int read_metadata(struct parser *p) {
    int t = ckpt_json_next(&p->json);
    if (t == CKPT_JSON_NULL || t < 0) /* null counts as none, as in the reference package */
        return t < 0 ? t : 0;
    if (t != CKPT_JSON_OBJECT)
        return ckpt_fail(p->r.err, -EINVAL, "__metadata__ is %s, expected an object",
                         ckpt_json_token_name(t));
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        const struct ckpt_text key = p->json.text;
        t = ckpt_json_next(&p->json);
        if (t < 0)
            return t;
        if (t != CKPT_JSON_STRING)
            return ckpt_fail(p->r.err, -EINVAL, "__metadata__ \"%.*s\" is %s, expected a string",
                             CKPT_TEXT_ARGS(key), ckpt_json_token_name(t));
        const int rc = add_pair(p, key, p->json.text);
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

static int read_header(struct parser *p) {
    int t = ckpt_json_next(&p->json);
    if (t < 0)
        return t;
    if (t != CKPT_JSON_OBJECT)
        return ckpt_fail(p->r.err, -EINVAL, "the header is %s, expected an object",
                         ckpt_json_token_name(t));
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        const int rc =
            ckpt_text_is(p->json.text, "__metadata__") ? read_metadata(p) : read_entry(p);
        if (rc)
            return rc;
    }
    return t < 0 ? t : ckpt_json_next(&p->json); /* EOF is 0 */
}

/* The ranges have to tile the data: each begins where the one before it ends. */
static int check_tiling(struct parser *p) {
    size_t n;
    CKPT_AUTO(free)
    struct ckpt_header_entry **sorted = ckpt_header_by_range(p->table->entries, p->table->n, &n);
    if (!sorted)
        return ckpt_fail_memory(p->r.err, "reading a safetensors header");
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        p->r.entry = sorted[i];
        if (p->r.entry->begin < end)
            ckpt_header_entry_fault(&p->r,
                                    "its data begins at byte %" PRIu64
                                    ", inside the tensor before it, which ends at %" PRIu64,
                                    p->r.entry->begin, end);
        else if (p->r.entry->begin > end && !p->r.keep_going)
            ckpt_header_entry_fault(&p->r,
                                    "its data begins at byte %" PRIu64 ", so bytes from %" PRIu64
                                    " on belong to no tensor",
                                    p->r.entry->begin, end);
        p->table->unclaimed += p->r.entry->begin > end ? p->r.entry->begin - end : 0;
        if (!p->r.is_faulty)
            end = p->r.entry->end;
        const int rc = ckpt_header_entry_settle(&p->r);
        if (rc)
            return rc;
    }
    p->table->unclaimed += p->data_size - end;
    if (end != p->data_size && !p->r.keep_going)
        return ckpt_fail(p->r.err, -EINVAL,
                         "the last tensor ends at byte %" PRIu64 " of the data, which has %" PRIu64
                         " bytes: the file is damaged, or something was appended",
                         end, p->data_size);
    return 0;
}

/* The JSON reader is at its start. */
static int parse(struct parser *p) {
    *p->table = (struct ckpt_st_table){.data_start = 8 + p->json.n};
    p->json.base = 8;
    int rc = read_header(p);
    ckpt_json_fini(&p->json);
    if (!rc)
        rc = check_tiling(p);
    if (rc)
        ckpt_st_table_fini(p->table);
    return rc;
}

int ckpt_st_parse(struct ckpt_st_table *t, struct ckpt_arena *a, const void *json, size_t n,
                  uint64_t data_size, bool keep_going, struct ckpt_err *err) {
    struct parser p = {.table = t,
                       .r = {.arena = a, .keep_going = keep_going, .err = err},
                       .data_size = data_size};
    ckpt_json_init(&p.json, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    return parse(&p);
}

bool ckpt_st_detect(const struct ckpt_file *f) {
    uint8_t start[4096]; /* white space before the brace is read by the reference package */
    const size_t n = f->size < sizeof start ? (size_t)f->size : sizeof start;
    if (n < 9 || ckpt_file_read(f, 0, start, n, NULL))
        return false;
    struct ckpt_buf b = {.p = start, .n = n};
    if (ckpt_buf_u64(&b) > CKPT_LIMIT_HEADER_BYTES)
        return false;
    uint8_t c = ' ';
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t')
        c = ckpt_buf_u8(&b);
    return c == '{';
}

int ckpt_st_read(struct ckpt_st_table *t, struct ckpt_arena *a, const struct ckpt_file *f,
                 bool keep_going, struct ckpt_err *err) {
    *t = (struct ckpt_st_table){0};
    uint8_t start[8];
    if (f->size < sizeof start)
        return ckpt_fail(err, -EINVAL, "%" PRIu64 " bytes are too short for a safetensors file",
                         f->size);
    int rc = ckpt_file_read(f, 0, start, sizeof start, err);
    if (rc)
        return rc;
    struct ckpt_buf b = {.p = start, .n = sizeof start};
    const uint64_t n = ckpt_buf_u64(&b);
    if (n > CKPT_LIMIT_HEADER_BYTES)
        return ckpt_fail(
            err, -EINVAL,
            "not a safetensors file: its first 8 bytes give a header length of %" PRIu64
            ", the limit is %u",
            n, CKPT_LIMIT_HEADER_BYTES);
    if (n > f->size - sizeof start)
        return ckpt_fail(err, -EINVAL,
                         "the safetensors header of %" PRIu64
                         " bytes runs past the end of the file, "
                         "which has %" PRIu64 " bytes: the file is truncated or damaged",
                         n, f->size);
    /* In memory of our own, so that a file that changes meanwhile cannot pull the rug away. */
    CKPT_AUTO(free) char *json = malloc((size_t)n + 1);
    if (!json)
        return ckpt_fail_memory(err, "reading a safetensors header");
    rc = ckpt_file_read(f, sizeof start, json, (size_t)n, err);
    if (rc)
        return rc;
    struct parser p = {.table = t,
                       .r = {.arena = a, .keep_going = keep_going, .err = err},
                       .data_size = f->size - 8 - n};
    ckpt_json_init_in_place(&p.json, json, (size_t)n, CKPT_LIMIT_JSON_DEPTH, err);
    return parse(&p);
}

void ckpt_st_table_fini(struct ckpt_st_table *t) {
    free(t->entries);
    free(t->metadata);
    *t = (struct ckpt_st_table){0};
}
