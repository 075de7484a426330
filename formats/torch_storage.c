#include "formats/torch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/size.h"
#include "formats/pickle_vm.h"

/* Storage classes, and persistent ids that name storages. */

#define KEY_BYTES_MAX 1000 /* real ones are small numbers or, once, addresses */

static const struct storage_class {
    const char *name;
    enum ckpt_dtype dtype; /* NONE: quantised, not served */
    uint8_t bytes;         /* of an element */
} classes[] = {
    {"DoubleStorage", CKPT_DT_F64, 8},       {"FloatStorage", CKPT_DT_F32, 4},
    {"HalfStorage", CKPT_DT_F16, 2},         {"BFloat16Storage", CKPT_DT_BF16, 2},
    {"LongStorage", CKPT_DT_I64, 8},         {"IntStorage", CKPT_DT_I32, 4},
    {"ShortStorage", CKPT_DT_I16, 2},        {"CharStorage", CKPT_DT_I8, 1},
    {"ByteStorage", CKPT_DT_U8, 1},          {"BoolStorage", CKPT_DT_BOOL, 1},
    {"ComplexFloatStorage", CKPT_DT_C64, 8}, {"ComplexDoubleStorage", CKPT_DT_C128, 16},
    {"UntypedStorage", CKPT_DT_U8, 1},       {"QInt8Storage", CKPT_DT_NONE, 1},
    {"QUInt8Storage", CKPT_DT_NONE, 1},      {"QInt32Storage", CKPT_DT_NONE, 4},
    {"QUInt4x2Storage", CKPT_DT_NONE, 1},    {"QUInt2x4Storage", CKPT_DT_NONE, 1},
};

/* By the class's name, in any of torch's modules that have it; NULL unknown. */
static const struct storage_class *find_class(const struct ckpt_value *global) {
    if (!pickle_is(global, CKPT_VALUE_GLOBAL))
        return NULL;
    const struct pickle_global *g = (const struct pickle_global *)global;
    if (!ckpt_text_is(g->module, "torch") && !ckpt_text_is(g->module, "torch.cuda") &&
        !ckpt_text_is(g->module, "torch.storage"))
        return NULL;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (ckpt_text_is(g->name, classes[i].name))
            return &classes[i];
    return NULL;
}

int torch_record_add(struct torch_reader *r, struct ckpt_text key, uint64_t nbytes,
                     uint64_t element, struct torch_record **out, struct ckpt_err *err) {
    if (r->nrecords == r->cap) {
        const size_t cap = r->cap ? r->cap * 2 : 64;
        struct torch_record **p = reallocarray(r->records, cap, sizeof *p);
        if (!p)
            return ckpt_fail_memory(err, "listing storages");
        r->records = p;
        r->cap = cap;
    }
    struct torch_record *record = ckpt_arena_alloc(&r->c->arena, sizeof *record);
    if (!record || ckpt_strmap_add(&r->by_key, key, r->nrecords, NULL) != 0)
        return ckpt_fail_memory(err, "listing storages");
    *record = (struct torch_record){.key = key, .nbytes = nbytes, .element = element};
    r->records[r->nrecords++] = record;
    *out = record;
    return 0;
}

/* The record of a key; made at its first mention. */
static int find_record(struct torch_reader *r, struct ckpt_text key, uint64_t nbytes,
                       uint64_t element, struct torch_record **out, struct ckpt_err *err) {
    const size_t i = ckpt_strmap_get(&r->by_key, key);
    if (i == CKPT_STRMAP_ABSENT) {
        const int rc = torch_record_add(r, key, nbytes, element, out, err);
        return rc ? rc : r->locate(r, *out, err);
    }
    *out = r->records[i];
    return 0;
}

bool torch_storage_narrow(struct torch_storage *s, const struct ckpt_value *offset,
                          const struct ckpt_value *count) {
    if (offset->kind != CKPT_VALUE_INT || count->kind != CKPT_VALUE_INT || offset->i < 0 ||
        count->i < 0)
        return false;
    const uint64_t element = s->element, have = s->nbytes / element;
    if ((uint64_t)offset->i > have || (uint64_t)count->i > have - (uint64_t)offset->i)
        return false;
    s->offset += (uint64_t)offset->i * element;
    s->nbytes = (uint64_t)count->i * element;
    return true;
}

/* Narrows s to a view (view key, offset, numel), counted in elements; None: the whole. False if it
 * leaves the storage. */
static bool apply_view(struct torch_storage *s, const struct ckpt_value *view) {
    if (view->kind == CKPT_VALUE_NONE)
        return true;
    return view->kind == CKPT_VALUE_TUPLE && view->seq.n == 3 &&
           torch_storage_narrow(s, view->seq.item[1], view->seq.item[2]);
}

int torch_key_text(struct torch_reader *r, const struct ckpt_value *key, struct ckpt_text *out,
                   struct ckpt_err *err) {
    if (key->kind == CKPT_VALUE_STR && key->text.n > KEY_BYTES_MAX)
        return ckpt_fail(err, -EINVAL, "a storage key of %zu bytes", key->text.n);
    if (key->kind == CKPT_VALUE_STR) {
        *out = key->text;
        return 0;
    }
    if (key->kind != CKPT_VALUE_INT)
        return ckpt_fail(err, -EINVAL, "a storage key that is neither text nor a number");
    char *s = ckpt_arena_printf(&r->c->arena, "%lld", (long long)key->i);
    if (!s)
        return ckpt_fail_memory(err, "listing storages");
    *out = ckpt_text_of(s);
    return 0;
}

static bool is_storage_id(const struct ckpt_value *id, size_t n) {
    return id->kind == CKPT_VALUE_TUPLE && id->seq.n == n &&
           id->seq.item[0]->kind == CKPT_VALUE_STR &&
           ckpt_text_is(id->seq.item[0]->text, "storage");
}

struct ckpt_value *torch_value_new(struct torch_reader *r, int kind, void *data) {
    struct pickle_object *o = ckpt_arena_alloc(&r->c->arena, sizeof *o);
    if (!o)
        return NULL;
    o->v.kind = (uint8_t)kind;
    o->v.format = data;
    return &o->v;
}

static int set_error(struct torch_reader *r, struct torch_storage *s, struct ckpt_err *err,
                     const char *what, struct ckpt_text name) {
    s->error = ckpt_arena_printf(&r->c->arena, "%s (\"%.*s\")", what, CKPT_TEXT_ARGS(name));
    return s->error ? 0 : ckpt_fail_memory(err, "listing storages");
}

/* Class and size; then the record. */
static int fill_storage(struct torch_reader *r, struct torch_storage *s, struct ckpt_text key,
                        const struct ckpt_value *class, const struct ckpt_value *count,
                        struct ckpt_err *err) {
    const struct storage_class *cls = find_class(class);
    const bool named = class->kind == CKPT_VALUE_GLOBAL;
    if (!cls)
        return set_error(r, s, err, "its storage is of an unknown class",
                         named ? class->text : CKPT_TEXT("not a class"));
    s->cls = class->text.s;
    s->dtype = cls->dtype;
    s->element = cls->bytes;
    if (count->kind != CKPT_VALUE_INT || count->i < 0 ||
        !ckpt_mul_u64((uint64_t)count->i, cls->bytes, &s->nbytes))
        return set_error(r, s, err, "its storage has an impossible element count", key);
    const int rc = find_record(r, key, s->nbytes, cls->bytes, &s->record, err);
    if (rc)
        return rc;
    if (s->record->nbytes != s->nbytes)
        return set_error(r, s, err, "its storage is given two different sizes", key);
    return 0;
}

int torch_storage_new(struct torch_reader *r, struct ckpt_text key, const struct ckpt_value *cls,
                      const struct ckpt_value *count, struct ckpt_value **out,
                      struct ckpt_err *err) {
    struct torch_storage *s = ckpt_arena_alloc(&r->c->arena, sizeof *s);
    *out = s ? torch_value_new(r, CKPT_PICKLE_STORAGE, s) : NULL;
    return *out ? fill_storage(r, s, key, cls, count, err)
                : ckpt_fail_memory(err, "listing storages");
}

int torch_storage_from_id(struct torch_reader *r, const struct ckpt_value *id, bool with_view,
                          struct ckpt_value **out, struct ckpt_err *err) {
    struct ckpt_text key = {0};
    if (!is_storage_id(id, with_view ? 6 : 5))
        return ckpt_fail(err, -EINVAL,
                         "a persistent id that is not ('storage', class, key, location, numel%s)",
                         with_view ? ", view" : "");
    int rc = torch_key_text(r, id->seq.item[2], &key, err);
    if (rc == 0)
        rc = torch_storage_new(r, key, id->seq.item[1], id->seq.item[4], out, err);
    if (rc)
        return rc;
    struct torch_storage *s = (*out)->format;
    if (with_view && !s->error && !apply_view(s, id->seq.item[5]))
        return set_error(r, s, err, "its view of a storage leaves that storage", key);
    return 0;
}

void torch_reader_fini(struct torch_reader *r) {
    ckpt_strmap_fini(&r->by_key);
    free(r->records);
    r->records = NULL;
    r->nrecords = r->cap = 0;
}
