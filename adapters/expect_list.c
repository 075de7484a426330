/*
 * The list of a burn model's parameters. As JSON it is an object or an array, and a safetensors
 * header is one, too:
 *
 *     {"fc1.weight": {"shape": [4, 8], "dtype": "F32"}, ...}
 *     [{"name": "fc1.weight", "shape": [4, 8], "dtype": "F32"}, "fc1.bias", ...]
 *
 * shape and dtype may be left out; then they are not compared. Other members mean nothing here.
 */
#include "adapters/expect.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "formats/burnpack_header.h"
#include "formats/checkpoint.h"
#include "formats/safetensors_header.h"

struct parser {
    struct ckpt_json json;
    struct ckpt_parameters *list;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
};

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading the expected parameters");
}

static int fail_token(const struct parser *p, const char *what, int token, const char *expected) {
    return ckpt_fail(p->err, -EINVAL, "%s is %s, expected %s (at byte %zu)", what,
                     ckpt_json_token_name(token), expected, p->json.at);
}

/* The next parameter of the list, which the caller names. */
static struct ckpt_parameter *add(struct ckpt_parameters *list) {
    if (list->n >= CKPT_LIMIT_TENSORS ||
        !ckpt_array_grow(&list->at, list->n, &list->cap, sizeof *list->at))
        return NULL;
    list->at[list->n] = (struct ckpt_parameter){0};
    return &list->at[list->n++];
}

static int add_named(struct parser *p, struct ckpt_text name, struct ckpt_parameter **out) {
    if (p->list->n >= CKPT_LIMIT_TENSORS)
        return ckpt_fail(p->err, -E2BIG, "more than %u parameters (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    *out = add(p->list);
    if (!*out)
        return fail_memory(p->err);
    (*out)->name = ckpt_text_copy(p->arena, name.s, name.n);
    return (*out)->name.s ? 0 : fail_memory(p->err);
}

/* A dtype as safetensors or burn writes it; burn's words for booleans and quantised data say more
 * than we need. */
static int read_dtype(struct parser *p, struct ckpt_parameter *q) {
    const int t = ckpt_json_next(&p->json);
    if (t < 0 || t == CKPT_JSON_NULL)
        return t < 0 ? t : 0;
    if (t != CKPT_JSON_STRING)
        return fail_token(p, "\"dtype\"", t, "a string");
    const struct ckpt_text word = p->json.text;
    q->dtype = ckpt_dtype_by_name(word);
    if (q->dtype == CKPT_DT_NONE && ckpt_text_starts(word, "Bool"))
        q->dtype = CKPT_DT_BOOL;
    if (q->dtype == CKPT_DT_NONE && ckpt_text_is(word, "Flex32"))
        q->dtype = CKPT_DT_F32;
    if (q->dtype == CKPT_DT_NONE && !ckpt_text_starts(word, "QFloat"))
        return ckpt_fail(p->err, -EINVAL, "unknown dtype \"%.*s\" (at byte %zu)",
                         CKPT_TEXT_ARGS(word), p->json.at);
    return 0;
}

static int read_shape(struct parser *p, struct ckpt_parameter *q) {
    int64_t numbers[CKPT_NDIM_MAX];
    uint32_t n = 0;
    int t = ckpt_json_next(&p->json);
    if (t < 0 || t == CKPT_JSON_NULL)
        return t < 0 ? t : 0;
    if (t != CKPT_JSON_ARRAY)
        return fail_token(p, "\"shape\"", t, "an array");
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_INT) {
        if (p->json.negative || p->json.u > INT64_MAX || n == CKPT_NDIM_MAX)
            return ckpt_fail(p->err, -EINVAL, "a \"shape\" is none (at byte %zu)", p->json.at);
        numbers[n++] = (int64_t)p->json.u;
    }
    if (t != CKPT_JSON_ARRAY_END)
        return t < 0 ? t : fail_token(p, "a dimension", t, "a number");
    int64_t *shape = ckpt_arena_array(p->arena, n, sizeof *shape);
    if (!shape)
        return fail_memory(p->err);
    memcpy(shape, numbers, n * sizeof *shape);
    q->shape = shape;
    q->ndim = n;
    q->has_shape = true;
    return 0;
}

static int read_name(struct parser *p, struct ckpt_parameter *q) {
    const int t = ckpt_json_next(&p->json);
    if (t != CKPT_JSON_STRING)
        return t < 0 ? t : fail_token(p, "\"name\"", t, "a string");
    q->name = ckpt_text_copy(p->arena, p->json.text.s, p->json.text.n);
    return q->name.s ? 0 : fail_memory(p->err);
}

/* The members of a parameter, whose brace has been read. */
static int read_members(struct parser *p, struct ckpt_parameter *q) {
    int t;
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        const struct ckpt_text key = p->json.text;
        int rc;
        if (ckpt_text_is(key, "dtype"))
            rc = read_dtype(p, q);
        else if (ckpt_text_is(key, "shape"))
            rc = read_shape(p, q);
        else if (ckpt_text_is(key, "name") && !q->name.s)
            rc = read_name(p, q);
        else
            rc = ckpt_json_skip(&p->json, ckpt_json_next(&p->json));
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

/* {"NAME": {...} | null, ...} */
static int read_object(struct parser *p) {
    int t;
    while ((t = ckpt_json_next(&p->json)) == CKPT_JSON_KEY) {
        struct ckpt_parameter *q = NULL;
        const struct ckpt_text name = p->json.text;
        t = ckpt_json_next(&p->json);
        int rc = t < 0 ? t : 0;
        if (rc == 0 && ckpt_text_is(name, "__metadata__")) {
            rc = ckpt_json_skip(&p->json, t);
        } else if (rc == 0) {
            rc = t == CKPT_JSON_OBJECT || t == CKPT_JSON_NULL
                     ? add_named(p, name, &q)
                     : fail_token(p, "a parameter", t, "an object");
            if (rc == 0 && t == CKPT_JSON_OBJECT)
                rc = read_members(p, q);
        }
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

/* [{"name": ..., ...} | "NAME", ...] */
static int read_array(struct parser *p) {
    int t;
    while ((t = ckpt_json_next(&p->json)) >= 0 && t != CKPT_JSON_ARRAY_END) {
        struct ckpt_parameter *q;
        int rc;
        if (t == CKPT_JSON_STRING) {
            rc = add_named(p, p->json.text, &q);
        } else if (t == CKPT_JSON_OBJECT) {
            q = add(p->list);
            rc = q ? read_members(p, q) : fail_memory(p->err);
            if (rc == 0 && !q->name.s)
                rc = ckpt_fail(p->err, -EINVAL, "a parameter has no \"name\" (at byte %zu)",
                               p->json.at);
        } else {
            rc = fail_token(p, "a parameter", t, "an object or a name");
        }
        if (rc)
            return rc;
    }
    return t < 0 ? t : 0;
}

static bool is_json(const char *text, size_t n) {
    const size_t blanks = strspn(text, " \t\r\n");
    return blanks < n && (text[blanks] == '{' || text[blanks] == '[');
}

static int read_list(struct parser *p) {
    const int t = ckpt_json_next(&p->json);
    if (t < 0)
        return t;
    const int rc = t == CKPT_JSON_OBJECT  ? read_object(p)
                   : t == CKPT_JSON_ARRAY ? read_array(p)
                                          : fail_token(p, "the list", t, "an object or an array");
    return rc ? rc : ckpt_json_next(&p->json); /* EOF is 0 */
}

int ckpt_parameters_parse(struct ckpt_parameters *list, struct ckpt_arena *a, const void *json,
                          size_t n, struct ckpt_err *err) {
    struct parser p = {.list = list, .arena = a, .err = err};
    ckpt_json_init(&p.json, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    const int rc = read_list(&p);
    ckpt_json_fini(&p.json);
    return rc;
}

/* --- files that burn saved -------------------------------------------------------------------- */

static bool copy_parameter(struct ckpt_parameters *list, struct ckpt_arena *a,
                           const struct ckpt_tensor *t) {
    struct ckpt_parameter *q = add(list);
    int64_t *shape = ckpt_arena_array(a, t->ndim, sizeof *shape);
    if (!q || !shape)
        return false;
    if (t->ndim)
        memcpy(shape, t->shape, t->ndim * sizeof *shape);
    *q = (struct ckpt_parameter){.name = ckpt_text_copy(a, t->key.s, t->key.n),
                                 .dtype = t->dtype,
                                 .has_shape = true,
                                 .ndim = t->ndim,
                                 .shape = shape};
    return q->name.s != NULL;
}

/* What is listed but not served, as quantised tensors, is a parameter all the same. */
static bool copy_name(struct ckpt_parameters *list, struct ckpt_arena *a, struct ckpt_text name) {
    struct ckpt_parameter *q = add(list);
    if (q)
        q->name = ckpt_text_copy(a, name.s, name.n);
    return q && q->name.s;
}

static int read_checkpoint(struct ckpt_parameters *list, struct ckpt_arena *a, const char *path,
                           struct ckpt_err *err) {
    struct ckpt_checkpoint *c = NULL;
    const int rc = ckpt_checkpoint_open_file(path, NULL, &c, err);
    if (rc)
        return rc;
    bool ok = true;
    for (size_t i = 0; ok && i < c->ntensors; i++)
        ok = copy_parameter(list, a, &c->tensors[i]);
    for (size_t i = 0; ok && i < c->nunsupported; i++)
        ok = copy_name(list, a, c->unsupported[i].path.segment[0]);
    ckpt_checkpoint_close(c);
    return ok ? 0 : fail_memory(err);
}

static int read_json_file(struct ckpt_parameters *list, struct ckpt_arena *a,
                          const struct ckpt_file *f, struct ckpt_err *err) {
    if (f->size > CKPT_LIMIT_HEADER_BYTES)
        return ckpt_fail(err, -E2BIG,
                         "%" PRIu64 " bytes, a list of parameters may have %u: expected JSON, or a "
                         "safetensors file or burnpack that burn saved",
                         f->size, CKPT_LIMIT_HEADER_BYTES);
    CKPT_AUTO(free) char *text = malloc((size_t)f->size + 1);
    if (!text)
        return fail_memory(err);
    const int rc = ckpt_file_read(f, 0, text, (size_t)f->size, err);
    if (rc)
        return rc;
    text[f->size] = '\0';
    if (!is_json(text, (size_t)f->size))
        return ckpt_fail(err, -EINVAL,
                         "expected a list of parameters as JSON, or a safetensors file or burnpack "
                         "that burn saved");
    return ckpt_parameters_parse(list, a, text, (size_t)f->size, err);
}

static bool is_tensor_file(const struct ckpt_file *f) {
    uint8_t start[4];
    return ckpt_st_detect(f) ||
           (f->size >= sizeof start && ckpt_file_read(f, 0, start, sizeof start, NULL) == 0 &&
            ckpt_bpk_detect(start, sizeof start));
}

int ckpt_parameters_read(struct ckpt_parameters *list, struct ckpt_arena *a, const char *path,
                         struct ckpt_err *err) {
    struct ckpt_file *f = NULL;
    int rc = ckpt_file_open(path, &f, err);
    if (rc)
        return rc;
    rc = is_tensor_file(f) ? read_checkpoint(list, a, path, err) : read_json_file(list, a, f, err);
    ckpt_file_close(f);
    return rc;
}

void ckpt_parameters_fini(struct ckpt_parameters *list) {
    free(list->at);
    *list = (struct ckpt_parameters){0};
}
