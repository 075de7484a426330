/*
 * The PyTorch readers against files that torch wrote, old and new, and against malformed and
 * malicious ones: fixtures/pt/expected.tsv says what must come of each (its fields are explained in
 * make_expected.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "base/json.h"
#include "formats/checkpoint.h"

#define FOLDER FIXTURES "/pt/"
#define EVIL_MARKER "PT_EVIL_MARKER"

static struct ckpt_checkpoint *open_or_fail(const char *path, bool keep_going) {
    const struct ckpt_open_options options = {.keep_going = keep_going};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, &options, &c, &err) != 0)
        fail_msg("%s: %s", path, err.text);
    return c;
}

/* --- what a tensor's bytes are, the slow way ----------------------------------------------------
 */

static void flip(uint8_t *e, unsigned size) {
    for (unsigned i = 0; i < size / 2; i++) {
        const uint8_t byte = e[i];
        e[i] = e[size - 1 - i];
        e[size - 1 - i] = byte;
    }
}

/* Byte order, conjugate and negative bit, a component at a time. */
static void change_element(const struct ckpt_tensor *t, uint8_t *e) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(t->dtype);
    for (unsigned at = 0; at < info->unit_bytes; at += info->component_bytes) {
        const bool imaginary = at > 0;
        if (t->swap)
            flip(e + at, info->component_bytes);
        if (t->neg != (t->conj && imaginary))
            e[at + info->component_bytes - 1] ^= 0x80;
    }
}

/* Where element i in C order lies, in elements from the first. */
static uint64_t element_offset(const struct ckpt_tensor *t, uint64_t i) {
    uint64_t at = 0;
    for (uint32_t d = t->ndim; d-- > 0;) {
        at += i % (uint64_t)t->shape[d] * (uint64_t)t->stride[d];
        i /= (uint64_t)t->shape[d];
    }
    return at;
}

static uint8_t *gather(const struct ckpt_tensor *t) {
    const unsigned unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    const uint64_t n = ckpt_tensor_bytes(t);
    struct ckpt_pin pin;
    struct ckpt_err err = {0};
    uint8_t *out = calloc(1, n + 1);
    assert_non_null(out);
    if (t->blob->ops->pin(t->blob, 0, t->blob->size, &pin, NULL, &err) != 0)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < n / unit; i++) {
        const uint64_t from = t->offset + (t->stride ? element_offset(t, i) : i) * unit;
        assert_true(from + unit <= t->blob->size);
        memcpy(out + i * unit, pin.data + from, unit);
        change_element(t, out + i * unit);
    }
    t->blob->ops->unpin(t->blob, &pin);
    return out;
}

static void check_bytes(const struct ckpt_tensor *t, const char *file, const char *want) {
    char hex[SHA256_DIGEST_STRING_LENGTH];
    uint8_t *bytes = gather(t);
    SHA256Data(bytes, ckpt_tensor_bytes(t), hex);
    free(bytes);
    if (strcmp(hex, want) != 0)
        fail_msg("%s: %s: other bytes than expected", file, t->key.s);
}

/* --- expected.tsv -------------------------------------------------------------------------------
 */

#define FIELDS_MAX 40

struct line {
    char *field[FIELDS_MAX];
    size_t n;
};

static bool read_line(FILE *f, char **text, size_t *cap, struct line *l) {
    *l = (struct line){{NULL}, 0};
    if (getline(text, cap, f) < 0)
        return false;
    char *rest = *text;
    rest[strcspn(rest, "\n")] = '\0';
    for (char *field; (field = strsep(&rest, "\t")) && l->n < FIELDS_MAX;)
        l->field[l->n++] = field;
    return true;
}

/* The path as the fields have it, tabs between. */
static struct ckpt_str path_text(struct ckpt_path p) {
    struct ckpt_str s = {0};
    for (uint32_t i = 0; i < p.n; i++) {
        if (i)
            ckpt_str_puts(&s, "\t");
        ckpt_json_quote(&s, p.segment[i]);
    }
    return s;
}

static bool same_path(struct ckpt_path p, const struct line *l, size_t from) {
    struct ckpt_str want = {0}, got = path_text(p);
    for (size_t i = from; i < l->n; i++)
        ckpt_str_printf(&want, "%s%s", i > from ? "\t" : "", l->field[i]);
    const bool same = ckpt_text_eq(ckpt_str_text(&want), ckpt_str_text(&got));
    ckpt_str_fini(&want);
    ckpt_str_fini(&got);
    return same;
}

/* A file that is being compared: c is NULL if it was refused. */
struct subject {
    char name[256];
    struct ckpt_checkpoint *c;
    bool ok;     /* must be served exactly as listed */
    size_t next; /* tensor to be compared next */
};

static const struct ckpt_tensor *find_tensor(const struct ckpt_checkpoint *c, const struct line *l,
                                             size_t from) {
    for (size_t i = 0; i < c->ntensors; i++)
        if (same_path(c->tensors[i].path, l, from))
            return &c->tensors[i];
    return NULL;
}

static void check_tensor(struct subject *s, const struct line *l) {
    char shape[512] = "";
    size_t n = 0;
    if (s->next >= s->c->ntensors)
        fail_msg("%s: %s is missing", s->name, l->field[4]);
    const struct ckpt_tensor *t = &s->c->tensors[s->next++];
    if (!same_path(t->path, l, 4))
        fail_msg("%s: %s where %s is expected", s->name, t->key.s, l->field[4]);
    for (uint32_t d = 0; d < t->ndim; d++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", d ? "," : "",
                              (long long)t->shape[d]);
    if (strcmp(ckpt_dtype_info(t->dtype)->name, l->field[1]) != 0 ||
        strcmp(t->ndim ? shape : "-", l->field[2]) != 0)
        fail_msg("%s: %s is %s [%s]", s->name, t->key.s, ckpt_dtype_info(t->dtype)->name, shape);
    check_bytes(t, s->name, l->field[3]);
}

static void check_listed(struct subject *s, const struct line *l) {
    if (s->next < s->c->ntensors && same_path(s->c->tensors[s->next].path, l, 1)) {
        s->next++;
        return;
    }
    for (size_t i = 0; i < s->c->nunsupported; i++)
        if (same_path(s->c->unsupported[i].path, l, 1))
            return;
    fail_msg("%s: %s is neither served nor listed", s->name, l->field[1]);
}

static void check_shared(struct subject *s, const struct line *l) {
    const struct ckpt_blob *blob = NULL;
    for (size_t i = 1; i < l->n; i++) {
        const struct line one = {.field = {l->field[i]}, .n = 1};
        const struct ckpt_tensor *t = find_tensor(s->c, &one, 0);
        assert_non_null(t);
        if (blob && t->blob != blob)
            fail_msg("%s: %s has a storage of its own", s->name, l->field[i]);
        blob = t->blob;
    }
}

static void begin(struct subject *s, const struct line *l) {
    char path[512];
    struct ckpt_err err = {0};
    snprintf(s->name, sizeof s->name, "%s", l->field[1]);
    snprintf(path, sizeof path, FOLDER "%s", l->field[1]);
    s->next = 0;
    s->ok = strcmp(l->field[2], "ok") == 0;
    s->c = NULL;
    const int rc = ckpt_checkpoint_open(path, NULL, &s->c, &err);
    if (rc != 0 && s->ok)
        fail_msg("%s is refused: %s", s->name, err.text);
    if (rc == 0 && strcmp(l->field[2], "refuse") == 0)
        fail_msg("%s is accepted", s->name);
    if (rc != 0 && (err.text[0] == '\0' || strchr(err.text, '\n')))
        fail_msg("%s: not one sentence: \"%s\"", s->name, err.text);
    if (rc != 0 && strcmp(l->field[3], "-") != 0 && !strstr(err.text, l->field[3]))
        fail_msg("%s: \"%s\" does not name %s", s->name, err.text, l->field[3]);
}

/* Whatever was accepted holds tensors that can be read. */
static void end(struct subject *s) {
    if (!s->c)
        return;
    if (s->ok && s->next != s->c->ntensors)
        fail_msg("%s: %zu tensors, expected %zu", s->name, s->c->ntensors, s->next);
    for (size_t i = 0; i < s->c->ntensors; i++) {
        struct ckpt_err err = {0};
        assert_int_equal(ckpt_tensor_check(&s->c->tensors[i], &err), 0);
        if (ckpt_tensor_bytes(&s->c->tensors[i]) < 1 << 20)
            free(gather(&s->c->tensors[i]));
    }
    ckpt_checkpoint_close(s->c);
    s->c = NULL;
}

/* numpy arrays may stand anywhere: what is compared in order is the rest. */
static void skip_arrays(struct subject *s) {
    while (s->ok && s->next < s->c->ntensors &&
           strcmp(s->c->tensors[s->next].blob->name, "numpy array") == 0)
        s->next++;
}

static void check_fact(struct subject *s, const struct line *l, bool arrays_are_tensors) {
    const char *kind = l->field[0];
    if (strcmp(kind, "tensor") == 0) {
        if (!arrays_are_tensors)
            skip_arrays(s);
        check_tensor(s, l);
    } else if (strcmp(kind, "listed") == 0) {
        check_listed(s, l);
    } else if (strcmp(kind, "shared") == 0) {
        check_shared(s, l);
    }
    if (!arrays_are_tensors)
        skip_arrays(s);
}

static void test_all_files(void **state) {
    CKPT_AUTO(fclose) FILE *f = fopen(FOLDER "expected.tsv", "r");
    CKPT_AUTO(free) char *text = NULL;
    struct subject s = {0};
    struct line l;
    size_t cap = 0, files = 0;
    (void)state;
    assert_non_null(f);
    while (read_line(f, &text, &cap, &l)) {
        if (strcmp(l.field[0], "file") == 0) {
            end(&s);
            begin(&s, &l);
            files++;
        } else {
            check_fact(&s, &l, strstr(s.name, ".pkl") != NULL);
        }
    }
    end(&s);
    assert_true(files > 150);
    assert_int_not_equal(access(EVIL_MARKER, F_OK), 0);
}

/* --- single points ------------------------------------------------------------------------------
 */

static void test_keep_going(void **state) {
    static const char *const names[] = {"bad_shape_negative", "bad_offset_oob", "bad_size_bignum",
                                        "bad_args_few", "bad_dims_overflow"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, FOLDER "%s.pt", names[i]);
        struct ckpt_checkpoint *c = open_or_fail(path, true);
        assert_int_equal(c->ntensors, 1);
        assert_true(ckpt_text_is(c->tensors[0].key, "ok"));
        assert_int_equal(c->nunsupported, 1);
        assert_true(ckpt_text_is(c->unsupported[0].path.segment[0], "w"));
        ckpt_checkpoint_close(c);
    }
}

static int64_t attribute(const struct ckpt_module *m, const char *name) {
    const struct ckpt_value *v = ckpt_value_get(m->attributes, name);
    assert_non_null(v);
    return v->kind == CKPT_VALUE_BOOL ? v->b : v->i;
}

static void check_mlp(const char *path, const char *container) {
    static const struct {
        const char *path, *cls;
        int parent;
    } want[] = {{"", "ptmodels.Mlp", -1},
                {"fc1", "torch.nn.modules.linear.Linear", 0},
                {"relu", "torch.nn.modules.activation.ReLU", 0},
                {"fc2", "torch.nn.modules.linear.Linear", 0}};
    struct ckpt_checkpoint *c = open_or_fail(path, false);
    assert_int_equal(c->nmodules, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_true(ckpt_text_is(c->modules[i].path, want[i].path));
        assert_true(ckpt_text_is(c->modules[i].name, want[i].path));
        assert_true(ckpt_text_is(c->modules[i].cls, want[i].cls));
        assert_int_equal(c->modules[i].parent, want[i].parent);
        assert_int_equal(c->modules[i].container.n, container ? 1 : 0);
    }
    assert_int_equal(attribute(&c->modules[1], "in_features"), 4);
    assert_int_equal(attribute(&c->modules[3], "out_features"), 3);
    assert_null(ckpt_value_get(c->modules[1].attributes, "_parameters"));
    assert_int_equal(c->tensors[0].module, 1);
    assert_int_equal(c->tensors[3].module, 3);
    assert_int_equal(c->tensors[0].path.n, container ? 2 : 1);
    ckpt_checkpoint_close(c);
}

static void test_modules(void **state) {
    (void)state;
    check_mlp(FOLDER "a1_full.pt", NULL);
    check_mlp(FOLDER "a1_full_legacy.pt", NULL);
    check_mlp(FOLDER "t113_full.pt", NULL);
    check_mlp(FOLDER "module_in_dict.pt", "model");
}

static void test_values(void **state) {
    static const struct {
        const char *key, *json;
    } want[] = {{"npscalar", "2.5"},
                {"st", "[1,2]"},
                {"by", "[0,255]"},
                {"big", "1208925819614629174706176"},
                {"i63", "9223372036854775807"},
                {"f", "\"NaN\""},
                {"none", "null"},
                {"dd", "{\"a\":1}"},
                {"ns", "{\"lr\":0.1,\"name\":\"run\",\"layers\":[1,2]}"},
                {"npobj", "[1,\"x\"]"},
                {"dev", "\"cuda:1\""}};
    struct ckpt_checkpoint *c = open_or_fail(FOLDER "objects.pt", false);
    size_t found = 0;
    (void)state;
    for (size_t i = 0; i < c->nvalues; i++) {
        struct ckpt_str json = {0};
        struct ckpt_json_out w = {.out = &json};
        ckpt_value_json(&w, c->values[i].value);
        for (size_t k = 0; k < sizeof want / sizeof *want; k++)
            if (ckpt_text_is(c->values[i].path.segment[0], want[k].key)) {
                assert_string_equal(json.s, want[k].json);
                found++;
            }
        ckpt_str_fini(&json);
    }
    assert_int_equal(found, sizeof want / sizeof *want);
    assert_true(ckpt_text_is(c->opaque[0].text, "builtins.complex"));
    ckpt_checkpoint_close(c);
}

/* The first wrong checksum of a checkpoint's blobs, or NULL. */
static const char *wrong_checksum(const char *path, struct ckpt_err *err) {
    struct ckpt_checkpoint *c = open_or_fail(path, false);
    int rc = 0;
    for (size_t i = 0; i < c->nblobs && rc == 0; i++)
        rc = c->blobs[i]->ops->check ? c->blobs[i]->ops->check(c->blobs[i], NULL, err) : 0;
    ckpt_checkpoint_close(c);
    assert_true(rc == 0 || rc == -EBADMSG);
    return rc ? err->text : NULL;
}

static void test_checksums(void **state) {
    struct ckpt_err err;
    (void)state;
    assert_null(wrong_checksum(FOLDER "a1_state.pt", &err));
    assert_null(wrong_checksum(FOLDER "zip_deflated.pt", &err));
    assert_null(wrong_checksum(FOLDER "zip_nocrc.pt", &err)); /* 0: not computed */
    const char *wrong = wrong_checksum(FOLDER "bad_crc_data.pt", &err);
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "a1_state/data/0"));
}

static int install_guard(void **state) {
    (void)state;
    return ckpt_guard_install();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_files), cmocka_unit_test(test_keep_going),
        cmocka_unit_test(test_modules),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_checksums),
    };
    return cmocka_run_group_tests(tests, install_guard, NULL);
}
