/*
 * Every limit of formats/limits.h at its edge: what lies just at it is accepted, one more is
 * refused in a sentence that names the limit. Inputs are made here. (Those of graphs and JSON's
 * depth are in test_limits_graph.c; pickle depth, pickled objects and the size of a value's JSON in
 * the tests of those parts.)
 */
#include "toy.h"

#include <unistd.h>

#include "adapters/model.h"
#include "base/cleanup.h"
#include "base/guard.h"
#include "formats/pickle.h"
#include "formats/safetensors_header.h"
#include "formats/shard_index.h"
#include "formats/zip.h"
#include "fs/tree.h"

/* expected NULL: must succeed; else the sentence that the refusal must hold. */
static void check(int rc, const struct ckpt_err *err, const char *expected) {
    if (expected ? rc == 0 || !strstr(err->text, expected) : rc != 0)
        fail_msg("rc %d \"%s\", expected \"%s\"", rc, err->text, expected ? expected : "success");
}

static void put(struct ckpt_str *s, uint64_t v, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        ckpt_str_add(s, &(char){(char)(i < 8 ? v >> (8 * i) : 0)}, 1);
}

static void check_file(const struct ckpt_str *bytes, const char *expected) {
    char path[] = "/tmp/test_limits.XXXXXX.safetensors"; /* told by content, all but one */
    const int fd = mkstemps(path, 12);
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    assert_true(fd >= 0 && !bytes->failed);
    for (size_t done = 0; done < bytes->n;) {
        const ssize_t n = write(fd, bytes->s + done, bytes->n - done);
        assert_true(n > 0);
        done += (size_t)n;
    }
    close(fd);
    const int rc = ckpt_checkpoint_open(path, NULL, &c, &err);
    ckpt_checkpoint_close(c);
    unlink(path);
    check(rc, &err, expected);
}

/* --- safetensors and shards ------------------------------------------------------------------- */

static void check_header(const struct ckpt_str *json, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str file = {0};
    put(&file, json->n, 8);
    ckpt_str_add(&file, json->s, json->n);
    check_file(&file, expected);
}

static void check_header_bytes(size_t n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    ckpt_str_puts(&json, "{}");
    char blanks[1000];
    memset(blanks, ' ', sizeof blanks);
    while (json.n < n)
        ckpt_str_add(&json, blanks, n - json.n < sizeof blanks ? n - json.n : sizeof blanks);
    check_header(&json, expected);
}

static void test_header_bytes(void **state) {
    (void)state;
    check_header_bytes(CKPT_LIMIT_HEADER_BYTES, NULL);
    check_header_bytes(CKPT_LIMIT_HEADER_BYTES + 1, "the limit is 100000000");
}

/* n empty tensors, each key made of its number, `part` times over, and `tail` letters. */
static void check_keys(size_t n, const char *part, size_t parts, size_t tail,
                       const char *expected) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    ckpt_str_puts(&json, "{");
    for (size_t i = 0; i < n; i++) {
        ckpt_str_printf(&json, "%s\"%06zu", i ? "," : "", i);
        for (size_t k = 0; k < parts; k++)
            ckpt_str_puts(&json, part);
        for (size_t k = 0; k < tail; k++)
            ckpt_str_puts(&json, "x");
        ckpt_str_puts(&json, "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
    }
    ckpt_str_puts(&json, "}");
    check_header(&json, expected);
}

static void test_tensors(void **state) {
    (void)state;
    check_keys(CKPT_LIMIT_TENSORS, "", 0, 0, NULL);
    check_keys(CKPT_LIMIT_TENSORS + 1, "", 0, 0, "limit of tensors");
}

static void test_keys(void **state) {
    const size_t keys = CKPT_LIMIT_KEYS_BYTES / CKPT_LIMIT_KEY_BYTES;
    const size_t levels = CKPT_LIMIT_KEYS_LEVELS / 100; /* of keys that have 100 each */
    (void)state;
    check_keys(1, "", 0, CKPT_LIMIT_KEY_BYTES - 6, NULL);
    check_keys(1, "", 0, CKPT_LIMIT_KEY_BYTES - 5, "limit of key bytes");
    check_keys(keys, "", 0, CKPT_LIMIT_KEY_BYTES - 6, NULL);
    check_keys(keys + 1, "", 0, CKPT_LIMIT_KEY_BYTES - 6, "limit of all keys' bytes");
    check_keys(levels, ".a", 99, 0, NULL);
    check_keys(levels + 1, ".a", 99, 0, "limit of all keys' levels");
}

/* An index that names so many tensors in so many files. */
static void check_index(size_t tensors, size_t shards, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str json = {0};
    CKPT_AUTO(shard_index) struct ckpt_shard_index index = {0};
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    ckpt_str_puts(&json, "{\"weight_map\":{");
    for (size_t i = 0; i < tensors; i++)
        ckpt_str_printf(&json, "%s\"%zu\":\"%zu\"", i ? "," : "", i, i % shards);
    ckpt_str_puts(&json, "}}");
    check(ckpt_shard_index_parse(&index, &a, json.s, json.n, &err), &err, expected);
    ckpt_arena_fini(&a);
}

static void test_index(void **state) {
    (void)state;
    check_index(CKPT_LIMIT_SHARDS, CKPT_LIMIT_SHARDS, NULL);
    check_index(CKPT_LIMIT_SHARDS + 1, CKPT_LIMIT_SHARDS + 1, "limit of shards");
    check_index(CKPT_LIMIT_TENSORS, 1, NULL);
    check_index(CKPT_LIMIT_TENSORS + 1, 1, "limit of tensors");
}

/* --- ZIP -------------------------------------------------------------------------------------- */

static void put_local(struct ckpt_str *s, const char *name, struct ckpt_text data) {
    put(s, 0x04034b50, 4);
    put(s, 20, 2);
    put(s, 0, 12); /* flags, method, time, date, crc: not computed */
    put(s, data.n, 4);
    put(s, data.n, 4);
    put(s, strlen(name), 2);
    put(s, 0, 2);
    ckpt_str_puts(s, name);
    ckpt_str_add(s, data.s, data.n);
}

static void put_central(struct ckpt_str *s, const char *name, size_t size, uint64_t header) {
    put(s, 0x02014b50, 4);
    put(s, 20, 2);
    put(s, 20, 2);
    put(s, 0, 12);
    put(s, size, 4);
    put(s, size, 4);
    put(s, strlen(name), 2);
    put(s, 0, 12);
    put(s, header, 4);
    ckpt_str_puts(s, name);
}

/* The directory, and the zip64 form of the end, in which any count has room. */
static void put_end(struct ckpt_str *s, const struct ckpt_str *directory, size_t entries) {
    const uint64_t at = s->n, record = at + directory->n;
    ckpt_str_add(s, directory->s, directory->n);
    put(s, 0x06064b50, 4);
    put(s, 44, 8);
    put(s, 45, 2);
    put(s, 45, 2);
    put(s, 0, 8);
    put(s, entries, 8);
    put(s, entries, 8);
    put(s, directory->n, 8);
    put(s, at, 8);
    put(s, 0x07064b50, 4);
    put(s, 0, 4);
    put(s, record, 8);
    put(s, 1, 4);
    put(s, 0x06054b50, 4);
    put(s, 0, 4);
    put(s, UINT64_MAX, 8);
    put(s, UINT64_MAX, 4);
    put(s, 0, 2);
}

static struct ckpt_str make_archive(struct ckpt_text pickle, size_t entries) {
    struct ckpt_str out = {0}, directory = {0};
    for (size_t i = 0; i < entries; i++) {
        char name[32];
        snprintf(name, sizeof name, i == 0 ? "a/data.pkl" : i == 1 ? "a/data/0" : "a/%zu", i);
        const struct ckpt_text data = i == 0 ? pickle : i == 1 ? CKPT_TEXT("abcd") : CKPT_TEXT("");
        put_central(&directory, name, data.n, out.n);
        put_local(&out, name, data);
    }
    put_end(&out, &directory, entries);
    ckpt_str_fini(&directory);
    return out;
}

/* Entries with long names: a directory that is just below its limit, and one that is not. */
static void test_zip_directory(void **state) {
    static char name[60001];
    const size_t entry = 60000 + 46;
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        CKPT_AUTO(str) struct ckpt_str out = {0};
        CKPT_AUTO(str) struct ckpt_str directory = {0};
        size_t entries = 1;
        put_central(&directory, "a/data.pkl", 2, 0);
        put_local(&out, "a/data.pkl", CKPT_TEXT("}."));
        for (; directory.n + entry <= CKPT_LIMIT_ZIP_DIRECTORY + more * entry; entries++) {
            snprintf(name, sizeof name, "a/%059998zu", entries);
            put_central(&directory, name, 0, out.n);
            put_local(&out, name, CKPT_TEXT(""));
        }
        put_end(&out, &directory, entries);
        check_file(&out, more ? "limit of the ZIP directory" : NULL);
    }
}

static void check_archive(struct ckpt_text pickle, size_t entries, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str bytes = make_archive(pickle, entries);
    check_file(&bytes, expected);
}

static void test_zip_entries(void **state) {
    (void)state;
    check_archive(CKPT_TEXT("}."), CKPT_LIMIT_ZIP_ENTRIES, NULL);
    check_archive(CKPT_TEXT("}."), CKPT_LIMIT_ZIP_ENTRIES + 1, "limit of ZIP entries");
}

/* A comment that holds an end record of its own: another reader may take that one. */
static void test_two_ends(void **state) {
    CKPT_AUTO(str) struct ckpt_str bytes = make_archive(CKPT_TEXT("}."), 2);
    (void)state;
    ckpt_str_cut(&bytes, bytes.n - 2);
    put(&bytes, 22, 2);
    put(&bytes, 0x06054b50, 4);
    put(&bytes, 0, 14);
    put(&bytes, 0, 4);
    check_file(&bytes, "ambiguous");
}

static void test_inflated_bytes(void **state) {
    const struct ckpt_zip zip = {0};
    struct ckpt_zip_entry e = {.name = CKPT_TEXT("a/data/0"),
                               .stored = CKPT_LIMIT_INFLATED_BYTES / 1000,
                               .size = CKPT_LIMIT_INFLATED_BYTES,
                               .deflated = true};
    struct ckpt_arena a = {0};
    struct ckpt_blob *blob;
    struct ckpt_err err = {0};
    (void)state;
    check(ckpt_zip_blob(&zip, &e, NULL, &a, "0", &blob, &err), &err, NULL);
    blob->ops->fini(blob);
    e.size++;
    check(ckpt_zip_blob(&zip, &e, NULL, &a, "0", &blob, &err), &err, "the limit is 68719476736");
    ckpt_arena_fini(&a);
}

/* A TorchScript archive whose code is one class and a comment. */
static void check_code(size_t n, const char *expected) {
    static const char head[] = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n#";
    const char *const name[] = {"a/data.pkl", "a/constants.pkl", "a/code/__torch__.py"};
    CKPT_AUTO(str) struct ckpt_str out = {0};
    CKPT_AUTO(str) struct ckpt_str directory = {0};
    CKPT_AUTO(free) char *code = malloc(n);
    assert_non_null(code);
    memset(code, 'x', n);
    memcpy(code, head, sizeof head - 1);
    const struct ckpt_text data[] = {CKPT_TEXT("\x80\x02"
                                               "c__torch__\nM\n)\x81}U\1tNsb."),
                                     CKPT_TEXT("\x80\x02)."),
                                     {code, n}};
    for (size_t i = 0; i < 3; i++) {
        put_central(&directory, name[i], data[i].n, out.n);
        put_local(&out, name[i], data[i]);
    }
    put_end(&out, &directory, 3);
    check_file(&out, expected);
}

static void test_code_bytes(void **state) {
    (void)state;
    check_code(CKPT_LIMIT_CODE_BYTES, NULL);
    check_code(CKPT_LIMIT_CODE_BYTES + 1, "limit of code bytes");
}

/* --- pickles ---------------------------------------------------------------------------------- */

static void repeat(struct ckpt_str *s, const char *unit, size_t n) {
    const size_t length = strlen(unit);
    for (size_t i = 0; i < n; i++)
        ckpt_str_add(s, unit, length);
}

/* The pickle in s (which is taken) as the object of an archive. */
static void check_pickle(struct ckpt_str s, const char *expected) {
    check_archive(ckpt_str_text(&s), 2, expected);
    ckpt_str_fini(&s);
}

static void test_pickle_bytes(void **state) {
    (void)state;
    struct ckpt_str most = {0};
    char *blank = calloc(1, CKPT_LIMIT_PICKLE_BYTES + 2);
    assert_non_null(blank);
    memset(blank, 'x', CKPT_LIMIT_PICKLE_BYTES + 1);
    /* a string of all the bytes there are, dropped; then the object */
    ckpt_str_puts(&most, "T");
    put(&most, CKPT_LIMIT_PICKLE_BYTES - 8, 4);
    ckpt_str_add(&most, blank, CKPT_LIMIT_PICKLE_BYTES - 8);
    ckpt_str_puts(&most, "0}.");
    assert_int_equal(most.n, CKPT_LIMIT_PICKLE_BYTES);
    check_archive(ckpt_str_text(&most), 2, NULL);
    ckpt_str_puts(&most, ".");
    check_pickle(most, "the limit is 104857600");
    free(blank);
}

static void check_name(size_t n, const char *expected) {
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, "}(U\1acm\n");
    repeat(&s, "C", n - 2); /* "m." is part of it */
    ckpt_str_puts(&s, "\nu.");
    check_pickle(s, expected);
}

static void test_pickle_name(void **state) {
    (void)state;
    check_name(CKPT_LIMIT_PICKLE_NAME_BYTES, NULL);
    check_name(CKPT_LIMIT_PICKLE_NAME_BYTES + 1, "limit of pickled names");
}

/* The arena itself is exact; what a pickle takes of it is not known to the byte. */
static void test_memory(void **state) {
    struct ckpt_arena a = {.limit = 4096};
    (void)state;
    assert_non_null(ckpt_arena_alloc(&a, 4096));
    assert_false(a.exceeded);
    assert_null(ckpt_arena_alloc(&a, 1));
    assert_true(a.exceeded);
    ckpt_arena_fini(&a);

    struct ckpt_str s = {0};
    ckpt_str_puts(&s, "}(U\1aV");
    repeat(&s, "x", 10 << 20);
    ckpt_str_puts(&s, "\np1\nU\1b](");
    repeat(&s, "c_codecs\nencode\ng1\nU\6latin1\x86R", CKPT_LIMIT_PICKLE_ARENA / (10 << 20));
    ckpt_str_puts(&s, "eu.");
    check_pickle(s, "limit of pickle memory");
}

#define TENSOR                                                                                     \
    "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nS'0'\nU\3cpuK\1tQ"       \
    "I0\n))I00\n}tR"

/* One tensor below dicts whose keys are long: each path repeats them. */
static void check_paths(size_t tensors, const char *expected) {
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, TENSOR "p1\n0}T");
    put(&s, 60000, 4);
    repeat(&s, "k", 60000);
    ckpt_str_puts(&s, "}(");
    for (size_t i = 0; i < tensors; i++)
        ckpt_str_printf(&s, "I%zu\ng1\n", i);
    ckpt_str_puts(&s, "us.");
    check_pickle(s, expected);
}

/* A header of n tensors of 50 dimensions each. */
static void check_dimensions(size_t n, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str header = {0};
    struct ckpt_arena a = {0};
    struct ckpt_st_table t;
    struct ckpt_err err = {0};
    for (size_t i = 0; i < n; i++) {
        ckpt_str_printf(&header, "%s\"%zu\":{\"dtype\":\"U8\",\"shape\":[1", i ? "," : "{", i);
        repeat(&header, ",1", 49);
        ckpt_str_printf(&header, "],\"data_offsets\":[%zu,%zu]}", i, i + 1);
    }
    ckpt_str_puts(&header, "}");
    check(ckpt_st_parse(&t, &a, header.s, header.n, n, false, &err), &err, expected);
    ckpt_st_table_fini(&t);
    ckpt_arena_fini(&a);
}

static void test_dimensions(void **state) {
    (void)state;
    check_dimensions(CKPT_LIMIT_DIMENSIONS / 50, NULL);
    check_dimensions(CKPT_LIMIT_DIMENSIONS / 50 + 1, "limit of dimensions");
}

/* As much as there may be, and one byte more. */
static void test_checkpoint_memory(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct ckpt_checkpoint c = {.ntensors = 1000};
        struct ckpt_err err = {0};
        c.tensors = calloc(c.ntensors, sizeof *c.tensors);
        assert_non_null(c.tensors);
        c.arena.used = CKPT_LIMIT_MEMORY - 1000 * CKPT_MEMORY_PER_TENSOR + more;
        check(ckpt_checkpoint_check_keys(&c, &err), &err, more ? "limit of memory" : NULL);
        free(c.tensors);
    }
}

static void test_path_memory(void **state) {
    (void)state;
    check_paths(CKPT_LIMIT_KEYS_BYTES / 60100, NULL);
    check_paths(CKPT_LIMIT_WALK_ARENA / 60000, "limit of path memory");
}

/* References to lists in lists around one tensor: `eight` of 8 values each, `seven` of 7. */
static void check_walk(size_t eight, size_t seven, const char *expected) {
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, "]]]]]]" TENSOR "aaaaaap1\n]g1\nap3\n00](");
    repeat(&s, "g3\n", eight);
    repeat(&s, "g1\n", seven);
    ckpt_str_puts(&s, "e.");
    check_pickle(s, expected);
}

static void test_walk(void **state) {
    (void)state;
    check_walk(CKPT_LIMIT_WALK_NODES / 8 - 1, 1, NULL); /* the outermost list is one more */
    check_walk(CKPT_LIMIT_WALK_NODES / 8, 0, "limit of visited values");
}

/* Children of one module. */
static void check_modules(size_t n, const char *expected) {
    struct ckpt_str s = {0};
    ckpt_str_puts(&s, "cm\nC\n)\x81}(U\13_parameters}U\10_modules}ubp1\n0"
                      "cm\nM\n)\x81}(U\13_parameters}U\10_modules}(");
    for (size_t i = 0; i + 1 < n; i++)
        ckpt_str_printf(&s, "S'%zu'\ng1\n", i);
    ckpt_str_puts(&s, "uub.");
    check_pickle(s, expected);
}

static void test_modules(void **state) {
    (void)state;
    check_modules(CKPT_LIMIT_MODULES, NULL);
    check_modules(CKPT_LIMIT_MODULES + 1, "limit of modules");
}

/* --- tensors and trees ------------------------------------------------------------------------ */

/* A broadcast costs nothing, so that only the limit stands against its size. */
static void test_tensor_bytes(void **state) {
    const struct ckpt_blob byte = {.size = 1};
    const int64_t stride = 0;
    int64_t shape = (int64_t)CKPT_LIMIT_TENSOR_BYTES;
    const struct ckpt_tensor t = {.key = CKPT_TEXT("w"),
                                  .dtype = CKPT_DT_U8,
                                  .ndim = 1,
                                  .shape = &shape,
                                  .stride = &stride,
                                  .blob = (struct ckpt_blob *)(uintptr_t)&byte};
    struct ckpt_err err = {0};
    (void)state;
    check(ckpt_tensor_check(&t, &err), &err, NULL);
    shape++;
    check(ckpt_tensor_check(&t, &err), &err, "the limit for one tensor is 70368744177664");
}

static void test_folders(void **state) {
    struct ckpt_tree tree;
    struct ckpt_err err = {0};
    uint32_t node;
    char name[32];
    (void)state;
    assert_int_equal(ckpt_tree_init(&tree, false, &err), 0);
    for (unsigned i = 0; i < CKPT_LIMIT_FOLDERS; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(
            ckpt_tree_add_folder(&tree, CKPT_TREE_ROOT, ckpt_text_of(name), false, &node, &err), 0);
    }
    check(ckpt_tree_add_folder(&tree, CKPT_TREE_ROOT, CKPT_TEXT("7"), false, &node, &err), &err,
          NULL); /* is there already */
    check(ckpt_tree_add_folder(&tree, CKPT_TREE_ROOT, CKPT_TEXT("x"), false, &node, &err), &err,
          "limit of folders");
    ckpt_tree_fini(&tree);
}

/* `storages` with n names each: how many others the first name lists, and whether a warning says
 * that lists are cut. */
static void check_ties(size_t storages, size_t n, size_t listed, bool warned) {
    struct ckpt_checkpoint *c = toy_new();
    struct ckpt_model *m;
    struct ckpt_err err = {0};
    struct ckpt_blob *blob = NULL;
    for (size_t i = 0; i < storages * n; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%zu", i);
        struct ckpt_tensor *t = toy_tensor(c, name, CKPT_DT_F32, "2", 0);
        blob = i % n ? blob : t->blob;
        t->blob = blob;
    }
    if (ckpt_model_build(c, &(struct ckpt_adapt_options){0}, &m, &err) != 0)
        fail_msg("%s", err.text);
    bool found = false;
    for (size_t i = 0; i < m->nwarnings; i++)
        found = found || strstr(m->warnings[i].s, "limit of listed ties");
    assert_int_equal(m->tensor[0].ntied, listed);
    assert_int_equal(found, warned);
    ckpt_model_free(m);
    ckpt_checkpoint_close(c);
}

static void test_ties(void **state) {
    (void)state;
    check_ties(1, CKPT_LIMIT_TIES_LISTED + 1, CKPT_LIMIT_TIES_LISTED, false);
    check_ties(1, CKPT_LIMIT_TIES_LISTED + 2, CKPT_LIMIT_TIES_LISTED, true);
    /* Lists that are none too long, but too many. */
    const size_t names = CKPT_LIMIT_TIES_LISTED + 1;
    const size_t fit = CKPT_LIMIT_TIES / (names * CKPT_LIMIT_TIES_LISTED);
    check_ties(fit, names, CKPT_LIMIT_TIES_LISTED, false);
    check_ties(fit + 1, names, CKPT_LIMIT_TIES_LISTED, true);
}

/* --- not a limit, but as costly: NaN is not equal to itself, so each is a new key ---------------
 */

static void test_nan_keys(void **state) {
    struct ckpt_str s = {0};
    (void)state;
    ckpt_str_puts(&s, "}(");
    repeat(&s, "Fnan\nK\1", 200000);
    ckpt_str_puts(&s, "u.");
    check_pickle(s, NULL);
}

static int install_guard(void **state) {
    (void)state;
    return ckpt_guard_install();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_bytes), cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_index),
        cmocka_unit_test(test_zip_entries),  cmocka_unit_test(test_zip_directory),
        cmocka_unit_test(test_two_ends),     cmocka_unit_test(test_inflated_bytes),
        cmocka_unit_test(test_code_bytes),   cmocka_unit_test(test_pickle_bytes),
        cmocka_unit_test(test_pickle_name),  cmocka_unit_test(test_memory),
        cmocka_unit_test(test_dimensions),   cmocka_unit_test(test_checkpoint_memory),
        cmocka_unit_test(test_path_memory),  cmocka_unit_test(test_walk),
        cmocka_unit_test(test_modules),      cmocka_unit_test(test_tensor_bytes),
        cmocka_unit_test(test_folders),      cmocka_unit_test(test_ties),
        cmocka_unit_test(test_nan_keys),
    };
    return cmocka_run_group_tests(tests, install_guard, NULL);
}
