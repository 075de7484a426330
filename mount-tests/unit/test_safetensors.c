/*
 * The safetensors readers against the edge files: what is valid holds exactly the tensors of
 * NAME.expected.json, what is malformed is refused with a message that names the place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sha256.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "formats/checkpoint.h"

#define FOLDER FIXTURES "/safetensors"

static struct ckpt_str read_text(const char *path) {
    struct ckpt_str text = {0};
    FILE *f = fopen(path, "rb");
    char block[4096];
    if (!f)
        fail_msg("cannot open %s", path);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        ckpt_str_add(&text, block, n);
    fclose(f);
    return text;
}

/* One tensor of an expected.json. */
struct want {
    struct ckpt_text key, dtype, sha256;
    int64_t shape[8];
    uint32_t ndim;
};

struct expected {
    struct ckpt_str text;
    struct ckpt_json json;
    struct ckpt_text outcome, name;
    struct want *want;
    size_t n;
    size_t nmetadata;
};

static int next(struct ckpt_json *j) {
    const int t = ckpt_json_next(j);
    assert_true(t >= 0);
    return t;
}

static void read_want(struct ckpt_json *j, struct want *w) {
    assert_int_equal(next(j), CKPT_JSON_OBJECT);
    while (next(j) == CKPT_JSON_KEY) {
        const struct ckpt_text key = j->text;
        const int t = next(j);
        if (ckpt_text_is(key, "dtype"))
            w->dtype = j->text;
        else if (ckpt_text_is(key, "sha256"))
            w->sha256 = j->text;
        else if (ckpt_text_is(key, "shape"))
            while (next(j) == CKPT_JSON_INT)
                w->shape[w->ndim++] = (int64_t)j->u;
        else
            assert_int_equal(ckpt_json_skip(j, t), 0);
    }
}

static void read_tensors(struct expected *e) {
    assert_int_equal(next(&e->json), CKPT_JSON_OBJECT);
    while (next(&e->json) == CKPT_JSON_KEY) {
        e->want = reallocarray(e->want, e->n + 1, sizeof *e->want);
        e->want[e->n] = (struct want){.key = e->json.text};
        read_want(&e->json, &e->want[e->n++]);
    }
}

static void read_metadata(struct expected *e) {
    if (next(&e->json) == CKPT_JSON_NULL)
        return;
    while (next(&e->json) == CKPT_JSON_KEY) {
        e->nmetadata++;
        next(&e->json);
    }
}

static void expected_read(struct expected *e, const char *path) {
    *e = (struct expected){.text = read_text(path)};
    ckpt_json_init(&e->json, e->text.s, e->text.n, 16, NULL);
    assert_int_equal(next(&e->json), CKPT_JSON_OBJECT);
    while (next(&e->json) == CKPT_JSON_KEY) {
        const struct ckpt_text key = e->json.text;
        if (ckpt_text_is(key, "tensors")) {
            read_tensors(e);
        } else if (ckpt_text_is(key, "metadata")) {
            read_metadata(e);
        } else {
            const int t = next(&e->json);
            if (ckpt_text_is(key, "outcome"))
                e->outcome = e->json.text;
            else if (ckpt_text_is(key, "name"))
                e->name = e->json.text;
            assert_int_equal(ckpt_json_skip(&e->json, t), 0);
        }
    }
}

static void expected_fini(struct expected *e) {
    ckpt_json_fini(&e->json);
    ckpt_str_fini(&e->text);
    free(e->want);
}

static void check_tensor(const struct ckpt_tensor *t, const struct want *w) {
    assert_string_equal(ckpt_dtype_info(t->dtype)->name, w->dtype.s);
    assert_int_equal(t->ndim, w->ndim);
    for (uint32_t i = 0; i < t->ndim; i++)
        assert_int_equal(t->shape[i], w->shape[i]);
    assert_int_equal(t->path.n, 1);
    assert_true(ckpt_text_eq(t->path.segment[0], t->key));
    assert_int_equal(t->blob->size, ckpt_tensor_bytes(t));
    struct ckpt_pin pin;
    assert_int_equal(t->blob->ops->pin(t->blob, 0, t->blob->size, &pin, NULL, NULL), 0);
    char sum[SHA256_DIGEST_STRING_LENGTH];
    SHA256Data(pin.data, t->blob->size, sum);
    const void *pinned = pin.data;
    t->blob->ops->unpin(t->blob, &pin);
    assert_string_equal(sum, w->sha256.s);
    assert_true(t->blob->in_file);
    if (t->blob->size)
        assert_ptr_equal(pinned, t->blob->file->data + t->blob->file_offset);
}

static void check_accepted(const char *source, const struct expected *e) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(source, NULL, &c, &err))
        fail_msg("%s: refused: %s", source, err.text);
    assert_int_equal(c->ntensors, e->n);
    assert_int_equal(c->nblobs, e->n);
    if (!c->directory)
        assert_int_equal(c->nmetadata, e->nmetadata);
    for (size_t i = 0; i < e->n; i++) {
        size_t k = 0;
        while (k < c->ntensors && !ckpt_text_eq(c->tensors[k].key, e->want[i].key))
            k++;
        if (k == c->ntensors)
            fail_msg("%s: no tensor \"%s\"", source, e->want[i].key.s);
        check_tensor(&c->tensors[k], &e->want[i]);
    }
    ckpt_checkpoint_close(c);
}

static bool is_word_byte(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool has_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p++)
        if ((p == text || !is_word_byte(p[-1])) && !is_word_byte(p[n]))
            return true;
    return false;
}

static void check_refused(const char *source, const struct expected *e) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(source, NULL, &c, &err) == 0)
        fail_msg("%s: accepted", source);
    assert_null(c);
    assert_true(err.code < 0 && err.text[0]);
    if (e->name.s && !has_word(err.text, e->name.s))
        fail_msg("%s: the message does not name \"%s\": %s", source, e->name.s, err.text);
}

static void edge_files(void **state) {
    (void)state;
    DIR *d = opendir(FOLDER);
    unsigned files = 0;
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char source[1024], path[1024];
        const size_t n = strlen(e->d_name);
        if (n < 12 || strcmp(e->d_name + n - 12, ".safetensors") != 0)
            continue;
        snprintf(source, sizeof source, FOLDER "/%s", e->d_name);
        snprintf(path, sizeof path, FOLDER "/%.*s.expected.json", (int)(n - 12), e->d_name);
        struct expected expected;
        expected_read(&expected, path);
        (ckpt_text_is(expected.outcome, "ok") ? check_accepted : check_refused)(source, &expected);
        expected_fini(&expected);
        files++;
    }
    closedir(d);
    assert_int_equal(files, 46);
}

static void sharded_directory(void **state) {
    (void)state;
    struct expected e;
    expected_read(&e, FOLDER "/sharded/expected.json");
    check_accepted(FOLDER "/sharded", &e);
    expected_fini(&e);
    struct ckpt_checkpoint *c = NULL;
    assert_int_equal(ckpt_checkpoint_open(FOLDER "/sharded/", NULL, &c, NULL), 0);
    assert_string_equal(c->name, "sharded");
    assert_string_equal(c->tensors[0].key.s, "lm_head.weight"); /* the index's order */
    assert_int_equal(c->directory[0], '/');
    size_t n = 0;
    while (c->weight_files[n])
        n++;
    assert_int_equal(n, 4); /* two shards, the index, the stray one */
    ckpt_checkpoint_close(c);
}

/* A scratch folder with files of our making. */
static char scratch[] = "/tmp/test_safetensors.XXXXXX";

static int make_scratch(void **state) {
    (void)state;
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state) {
    (void)state;
    DIR *d = opendir(scratch);
    for (const struct dirent *e; d && (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return rmdir(scratch);
}

static const char *scratch_path(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static void put(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(scratch_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void put_safetensors(const char *name, const char *json, size_t data_bytes) {
    struct ckpt_str s = {0};
    const uint64_t n = strlen(json);
    ckpt_str_add(&s, &n, sizeof n);
    ckpt_str_puts(&s, json);
    for (size_t i = 0; i < data_bytes; i++)
        ckpt_str_add(&s, "x", 1);
    put(name, s.s, s.n);
    ckpt_str_fini(&s);
}

static void expect_refusal(const char *source, const char *part) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(source, NULL, &c, &err) == 0)
        fail_msg("%s: accepted", source);
    if (!strstr(err.text, part))
        fail_msg("%s: \"%s\" does not hold \"%s\"", source, err.text, part);
}

static void other_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *part;
    } cases[] = {
        {"", 0, "empty"},
        {"<!DOCTYPE html>", 15, "HTML"},
        {"\n <?xml", 7, "XML"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"},
        {"\x1f\x8b\x08\0", 4, "gzip"},
        {"{\"a\": 1, \"b\": 2}", 16, "JSON"},
        {"\x89HDF\r\n\x1a\n", 8, "HDF5"},
        {"some other bytes", 16, "73 6f 6d 65"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("file.bin", cases[i].bytes, cases[i].n);
        expect_refusal(scratch_path("file.bin"), cases[i].part);
    }
    put("page.safetensors", "<html></html>", 13);
    expect_refusal(scratch_path("page.safetensors"), "HTML");
    put("short.safetensors", "\0\0\0", 3);
    expect_refusal(scratch_path("short.safetensors"), "3 bytes are too short");
    unlink(scratch_path("page.safetensors"));
    unlink(scratch_path("short.safetensors"));
    put_safetensors("c128.safetensors",
                    "{\"a\":{\"dtype\":\"C128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16);
    expect_refusal(scratch_path("c128.safetensors"), "unknown dtype \"C128\"");
    unlink(scratch_path("c128.safetensors"));
    expect_refusal(scratch_path("absent.pt"), "no such file");
    expect_refusal("/dev/null", "not a regular file");
    unlink(scratch_path("file.bin"));
    expect_refusal(scratch, "not a checkpoint directory");
}

static void keep_going_serves_the_sound_rest(void **state) {
    (void)state;
    put_safetensors("bad.safetensors",
                    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                    "\"dtype\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[4,8]},"
                    "\"size\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[4,8]},"
                    "\"overlap\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
                    "\"scalar\":7,"
                    "\"beyond\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
                    10);
    const struct ckpt_open_options options = {.keep_going = true};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_checkpoint_open(scratch_path("bad.safetensors"), &options, &c, &err), 0);
    assert_int_equal(c->ntensors, 1);
    assert_string_equal(c->tensors[0].key.s, "a");
    assert_int_equal(c->nunsupported, 5);
    for (size_t i = 0; i < c->nunsupported; i++)
        assert_non_null(strstr(c->unsupported[i].text.s, c->unsupported[i].path.segment[0].s));
    assert_int_equal(c->nwarnings, 1);
    assert_non_null(strstr(c->warnings[0].s, "6 bytes"));
    ckpt_checkpoint_close(c);
    expect_refusal(scratch_path("bad.safetensors"), "\"dtype\": unknown dtype \"F33\"");
    unlink(scratch_path("bad.safetensors"));
}

#define INDEX "model.safetensors.index.json"

static void put_index(const char *json) {
    put(INDEX, json, strlen(json));
}

static void shard_traps(void **state) {
    (void)state;
    put_safetensors("one", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    static const struct {
        const char *index, *part;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"../one\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":\"one\\u0000\"}}", "plain name"},
        {"{\"weight_map\":{\"a\":1}}", "an integer"},
        {"{\"weight_map\":[]}", "weight_map is an array"},
        {"{\"weight_map\":{\"a\":\"one\",\"a\":\"two\"}}", "there twice"},
        {"{\"weight_map\":{\"a\":\"two\"}}", "two: no such file"},
        {"{\"weight_map\":{\"b\":\"one\"}}", "tensor \"b\": it is not in one"},
        {"{}", "no weight_map"},
        {"[]", "the index is an array"},
        {"", INDEX ": malformed JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_index(cases[i].index);
        expect_refusal(scratch, cases[i].part);
    }
    put_index("{\"weight_map\":{\"a\":\"one\",\"b\":\"two\",\"c\":\"one\"},\"metadata\":null}");
    const struct ckpt_open_options options = {.keep_going = true};
    struct ckpt_checkpoint *c = NULL;
    assert_int_equal(ckpt_checkpoint_open(scratch, &options, &c, NULL), 0);
    assert_int_equal(c->ntensors, 1);
    assert_int_equal(c->nunsupported, 2);
    ckpt_checkpoint_close(c);
    unlink(scratch_path(INDEX));
    unlink(scratch_path("one"));
}

static void directory_without_index(void **state) {
    (void)state;
    static const char json[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    struct ckpt_checkpoint *c = NULL;
    put_safetensors("other.safetensors", json, 1);
    assert_int_equal(ckpt_checkpoint_open(scratch, NULL, &c, NULL), 0);
    assert_int_equal(c->ntensors, 1);
    assert_non_null(c->directory);
    ckpt_checkpoint_close(c);
    put_safetensors("third.safetensors", json, 1);
    expect_refusal(scratch, "several candidates");
    put_safetensors("model.safetensors", json, 2);
    expect_refusal(scratch, "model.safetensors: ");
    put_safetensors("model.safetensors", json, 1);
    assert_int_equal(ckpt_checkpoint_open(scratch, NULL, &c, NULL), 0);
    assert_string_equal(c->files[0]->name, "model.safetensors");
    ckpt_checkpoint_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edge_files),  cmocka_unit_test(sharded_directory),
        cmocka_unit_test(other_files), cmocka_unit_test(keep_going_serves_the_sound_rest),
        cmocka_unit_test(shard_traps), cmocka_unit_test(directory_without_index),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
