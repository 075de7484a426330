/* A directory as a key-value store: which files are its keys, what is known of each, and what is
 * passed over. */
#include "formats/kvstore.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "formats/limits.h"

struct folder {
    char path[32];
    struct ckpt_arena arena;
    struct ckpt_kvstore store;
};

static const char *in(const struct folder *f, const char *name) {
    static char path[4096];
    assert_true(snprintf(path, sizeof path, "%s/%s", f->path, name) < (int)sizeof path);
    return path;
}

static void make_folder(const struct folder *f, const char *name) {
    assert_int_equal(mkdir(in(f, name), 0700), 0);
}

static void make_file(const struct folder *f, const char *name, size_t n) {
    CKPT_AUTO(fclose) FILE *file = fopen(in(f, name), "wb");
    assert_non_null(file);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(fputc('x', file), 'x');
}

static int setup(void **state) {
    struct folder *const f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->path, "/tmp/ckpt-kvstore-XXXXXX");
    assert_non_null(mkdtemp(f->path));
    f->store.arena = &f->arena;
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static int teardown(void **state) {
    struct folder *const f = *state;
    ckpt_kvstore_fini(&f->store);
    ckpt_arena_fini(&f->arena);
    assert_int_equal(nftw(f->path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    free(f);
    return 0;
}

static const struct ckpt_kv *get(const struct folder *f, const char *key) {
    return ckpt_kvstore_get(&f->store, ckpt_text_of(key));
}

/* Keys are paths, sorted; each value is the whole file. */
static void test_files(void **state) {
    struct folder *const f = *state;
    make_folder(f, "w");
    make_folder(f, "w/c");
    make_folder(f, "empty");
    make_file(f, "w.x", 0);
    make_file(f, "w/.zarray", 5);
    make_file(f, "w/c/0", 7);
    make_file(f, "_METADATA", 3);
    assert_int_equal(ckpt_kvstore_scan(&f->store, f->path, NULL), 0);
    static const struct {
        const char *key;
        size_t size;
    } want[] = {{"_METADATA", 3}, {"w.x", 0}, {"w/.zarray", 5}, {"w/c/0", 7}};
    assert_int_equal(f->store.n, sizeof want / sizeof *want);
    for (size_t i = 0; i < f->store.n; i++) {
        const struct ckpt_kv *const kv = &f->store.entries[i];
        struct ckpt_text text;
        assert_string_equal(kv->key.s, want[i].key);
        assert_int_equal(kv->value.length, want[i].size);
        assert_string_equal(kv->value.file->name, want[i].key);
        assert_string_equal(kv->value.file->path, in(f, want[i].key));
        assert_int_equal(ckpt_kvstore_read(kv, 100, "", &f->arena, &text, NULL), 0);
        assert_int_equal(text.n, want[i].size);
    }
}

/* A link is what it leads to; one to a folder is passed over, since it may lead back. */
static void test_links(void **state) {
    struct folder *const f = *state;
    make_folder(f, "w");
    make_file(f, "blob", 9);
    assert_int_equal(symlink("../blob", in(f, "w/0")), 0);
    assert_int_equal(symlink("..", in(f, "w/up")), 0);
    assert_int_equal(ckpt_kvstore_scan(&f->store, f->path, NULL), 0);
    assert_int_equal(f->store.n, 2);
    assert_non_null(get(f, "w/0"));
    assert_int_equal(get(f, "w/0")->value.length, 9);
}

/* What can't be had is a key all the same, so that an array's chunk is not taken for one that was
 * never stored. */
static void test_what_is_no_file(void **state) {
    struct folder *const f = *state;
    struct ckpt_err err = {0};
    assert_int_equal(symlink("nowhere", in(f, "gone")), 0);
    assert_int_equal(mkfifo(in(f, "pipe"), 0600), 0);
    assert_int_equal(ckpt_kvstore_scan(&f->store, f->path, NULL), 0);
    assert_non_null(get(f, "gone"));
    assert_int_equal(ckpt_stored_check(&get(f, "gone")->value, &err), -EINVAL);
    assert_non_null(strstr(err.text, "gone is absent"));
    assert_non_null(get(f, "pipe"));
    assert_int_equal(ckpt_stored_check(&get(f, "pipe")->value, &err), -EINVAL);
    assert_non_null(strstr(err.text, "pipe cannot be read: no regular file"));
}

static void test_depth(void **state) {
    struct folder *const f = *state;
    struct ckpt_err err = {0};
    char name[2 * CKPT_LIMIT_KV_FOLDERS + 4] = "d";
    for (unsigned i = 0; i < CKPT_LIMIT_KV_FOLDERS; i++, strcat(name, "/d"))
        make_folder(f, name);
    make_file(f, name, 1);
    assert_int_equal(ckpt_kvstore_scan(&f->store, f->path, &err), 0);
    assert_int_equal(f->store.n, 1);
    assert_int_equal(unlink(in(f, name)), 0);
    make_folder(f, name);
    assert_int_equal(ckpt_kvstore_scan(&f->store, f->path, &err), -E2BIG);
    assert_non_null(strstr(err.text, "nested deeper than"));
}

static void test_no_folder(void **state) {
    struct folder *const f = *state;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_kvstore_scan(&f->store, in(f, "none"), &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot list the folder"));
}

/* What is held beside the store counts. */
static void test_memory(void **state) {
    struct folder *const f = *state;
    struct ckpt_err err = {0};
    const struct ckpt_stored value = ckpt_stored_memory("", 0);
    assert_int_equal(ckpt_kvstore_room(&f->store), CKPT_LIMIT_MEMORY);
    f->store.held = CKPT_LIMIT_MEMORY - 1 - 2 * sizeof(struct ckpt_kv);
    assert_int_equal(ckpt_kvstore_add(&f->store, CKPT_TEXT("a"), value, &err), 0);
    assert_int_equal(ckpt_kvstore_add(&f->store, CKPT_TEXT("b"), value, &err), -E2BIG);
    assert_non_null(strstr(err.text, "limit of memory"));
    f->store.held = 0;
    assert_int_equal(ckpt_kvstore_add(&f->store, CKPT_TEXT("b"), value, &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
