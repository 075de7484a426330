/* The virtual tree by itself, and the tree that a session lays out. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "fs/dentry.h"
#include "fs/session.h"
#include "fs/tree.h"

static uint32_t folder(struct ckpt_tree *t, uint32_t parent, const char *name, bool hidden) {
    struct ckpt_err err = {0};
    uint32_t out = CKPT_TREE_NONE;
    assert_int_equal(ckpt_tree_add_folder(t, parent, ckpt_text_of(name), hidden, &out, &err), 0);
    return out;
}

static struct ckpt_vfile some_file;

static uint32_t file(struct ckpt_tree *t, uint32_t parent, const char *name, bool hidden) {
    struct ckpt_err err = {0};
    uint32_t out = CKPT_TREE_NONE;
    assert_int_equal(
        ckpt_tree_add_file(t, parent, ckpt_text_of(name), &some_file, hidden, &out, &err), 0);
    return out;
}

/* The names in a folder's list, each followed by a blank. */
static void assert_listing(const struct ckpt_tree *t, uint32_t parent, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str names = {0};
    for (uint32_t i = t->node[parent].first; i != CKPT_TREE_NONE; i = t->node[i].next)
        ckpt_str_printf(&names, "%s ", t->node[i].name.s);
    assert_string_equal(ckpt_str_text(&names).s, expected);
}

static void test_order_and_hiding(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct ckpt_tree t;
        struct ckpt_err err = {0};
        assert_int_equal(ckpt_tree_init(&t, all, &err), 0);
        const uint32_t b = folder(&t, CKPT_TREE_ROOT, "b", false);
        assert_int_equal(folder(&t, CKPT_TREE_ROOT, "b", false), b);
        assert_listing(&t, CKPT_TREE_ROOT, ""); /* not listed yet */
        file(&t, CKPT_TREE_ROOT, "z", false);
        ckpt_tree_list(&t, b);
        ckpt_tree_list(&t, b);
        const uint32_t hidden = file(&t, b, "w.npy", true);
        const uint32_t w = file(&t, b, "w", false);
        assert_listing(&t, CKPT_TREE_ROOT, "z b ");
        assert_listing(&t, b, all ? "w.npy w " : "w ");
        assert_int_equal(ckpt_tree_find(&t, "b/w.npy"), hidden);
        assert_int_equal(ckpt_tree_find(&t, "//b//w"), w);
        assert_int_equal(ckpt_tree_find(&t, ""), CKPT_TREE_ROOT);
        assert_int_equal(ckpt_tree_find(&t, "b/w/x"), CKPT_TREE_NONE);
        assert_int_equal(ckpt_tree_find(&t, "c"), CKPT_TREE_NONE);
        assert_int_equal(t.node[CKPT_TREE_ROOT].nfolders, 1);
        CKPT_AUTO(str) struct ckpt_str path = {0};
        ckpt_tree_path(&t, w, &path);
        assert_string_equal(path.s, "b/w");
        ckpt_tree_fini(&t);
    }
}

static void test_names_are_taken_once(void **state) {
    (void)state;
    struct ckpt_tree t;
    struct ckpt_err err = {0};
    uint32_t who;
    assert_int_equal(ckpt_tree_init(&t, false, &err), 0);
    const uint32_t a = file(&t, CKPT_TREE_ROOT, "a", false);
    assert_int_equal(
        ckpt_tree_add_file(&t, CKPT_TREE_ROOT, CKPT_TEXT("a"), &some_file, true, &who, &err),
        -EEXIST);
    assert_int_equal(who, a);
    assert_int_equal(ckpt_tree_add_folder(&t, CKPT_TREE_ROOT, CKPT_TEXT("a"), false, &who, &err),
                     -ENOTDIR);
    char name[257];
    memset(name, 'n', sizeof name);
    assert_int_equal(ckpt_tree_add_file(&t, CKPT_TREE_ROOT, (struct ckpt_text){name, 256},
                                        &some_file, false, &who, &err),
                     -ENAMETOOLONG);
    assert_int_equal(ckpt_tree_lookup(&t, CKPT_TREE_ROOT, (struct ckpt_text){name, 256}),
                     CKPT_TREE_NONE);
    ckpt_tree_fini(&t);
}

/* 20,000 folders deep: nothing recurses. */
static void test_depth_costs_no_stack(void **state) {
    (void)state;
    struct ckpt_tree t;
    struct ckpt_err err = {0};
    assert_int_equal(ckpt_tree_init(&t, false, &err), 0);
    uint32_t at = CKPT_TREE_ROOT;
    for (int i = 0; i < 20000; i++)
        at = folder(&t, at, "d", false);
    CKPT_AUTO(str) struct ckpt_str path = {0};
    ckpt_tree_path(&t, at, &path);
    assert_int_equal(path.n, 2 * 20000 - 1);
    assert_int_equal(ckpt_tree_find(&t, path.s), at);
    ckpt_tree_fini(&t);
}

/* A safetensors file of U8 tensors of one byte with these keys; the caller unlinks it. */
static void write_checkpoint(char *path, const char *const *keys, size_t n) {
    CKPT_AUTO(str) struct ckpt_str header = {0};
    for (size_t i = 0; i < n; i++) {
        ckpt_str_puts(&header, i ? "," : "{");
        ckpt_json_quote(&header, ckpt_text_of(keys[i]));
        ckpt_str_printf(&header, ":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}", i,
                        i + 1);
    }
    ckpt_str_puts(&header, "}");
    const uint64_t length = header.n;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, &length, 8), 8);
    assert_int_equal(write(fd, header.s, header.n), header.n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(write(fd, keys[i], 1), 1);
    close(fd);
}

static struct ckpt_session *open_keys(const char *const *keys, size_t n,
                                      const struct ckpt_options *options, int expected) {
    char path[] = "/tmp/test_tree.XXXXXX";
    write_checkpoint(path, keys, n);
    struct ckpt_session *s = NULL;
    struct ckpt_err err = {0};
    const int rc = ckpt_session_open(path, options, &s, &err);
    unlink(path);
    if (rc != expected)
        fail_msg("%d: %s", rc, err.text);
    return s;
}

/* 0: there is no such file or folder. */
static uint64_t inode(struct ckpt_session *s, const char *path) {
    struct ckpt_err err = {0};
    struct ckpt_dentry e;
    assert_int_equal(ckpt_dentry_find(s, path, &e, &err), 0);
    if (!e.tree)
        return 0;
    const struct ckpt_dentry again = ckpt_dentry_of_inode(s, ckpt_dentry_inode(s, e));
    assert_true(again.tree != NULL);
    assert_int_equal(ckpt_dentry_inode(s, again), ckpt_dentry_inode(s, e));
    assert_int_equal(ckpt_dentry_is_folder(again), ckpt_dentry_is_folder(e));
    return ckpt_dentry_inode(s, e);
}

static void test_a_key_that_is_also_a_prefix(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    ckpt_options_init(&o);
    const char *const keys[] = {"a", "a.b", "model.safetensors", "index", "x..y", "c.d.e", "c.d"};
    CKPT_AUTO(session) struct ckpt_session *s = open_keys(keys, 7, &o, 0);
    const char *const paths[] = {"a.tensor", "a/b",   "model/safetensors", "index",
                                 "x/%/y",    "c/d/e", "c/d.tensor"};
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(ckpt_tree_find(&s->tree, paths[i]), s->tensor_node[i]);
        assert_string_equal(s->tree.node[s->tensor_node[i]].file->tensor->key.s, keys[i]);
    }
    assert_listing(
        &s->tree, CKPT_TREE_ROOT,
        "a.tensor a model index x c model.safetensors verify.json index.json summary.txt ");
    assert_true(ckpt_tree_find(&s->tree, "a.tensor.npy") != CKPT_TREE_NONE);
    assert_true(ckpt_tree_find(&s->tree, ".source/x") == CKPT_TREE_NONE);
    assert_true(inode(s, ".source/x/%/y") != 0);
}

static void test_inodes_are_stable(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o, all;
    ckpt_options_init(&o);
    ckpt_options_init(&all);
    all.list_all = true;
    const char *const keys[] = {"b.c", "a", "b.a"};
    CKPT_AUTO(session) struct ckpt_session *s = open_keys(keys, 3, &o, 0);
    CKPT_AUTO(session) struct ckpt_session *t = open_keys(keys, 3, &all, 0);
    assert_int_equal(s->tree.n, t->tree.n);
    for (uint32_t i = 0; i < s->tree.n; i++)
        assert_true(ckpt_text_eq(s->tree.node[i].name, t->tree.node[i].name));
    /* In one .source is asked for first, in the other last. */
    const char *const paths[] = {".source/b/a.npy", ".source", "a",   ".source/b", "b/c.npy",
                                 "index.json",      "a.npy",   "b/a", ""};
    enum { N = sizeof paths / sizeof paths[0] };
    uint64_t of_s[N];
    for (size_t i = 0; i < N; i++)
        of_s[i] = inode(s, paths[i]);
    for (size_t i = N; i-- > 0;) {
        assert_int_equal(inode(t, paths[i]), of_s[i]);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(of_s[i], of_s[k]);
    }
    assert_int_equal(of_s[N - 1], 1);
    assert_int_equal(inode(s, ".source/absent"), 0);
    assert_int_equal(inode(s, "a.npy/x"), 0);
    assert_null(ckpt_dentry_of_inode(s, 0).tree);
    assert_null(ckpt_dentry_of_inode(s, 1000000).tree);
}

/* What a folder lists, by inode: each is one that looking its name up leads to. */
static void assert_listed(struct ckpt_session *s, struct ckpt_dentry folder, const char *expected) {
    CKPT_AUTO(str) struct ckpt_str names = {0};
    for (struct ckpt_dentry e = ckpt_dentry_first(s, folder); e.tree; e = ckpt_dentry_next(e)) {
        CKPT_AUTO(str) struct ckpt_str name = {0};
        struct ckpt_dentry found;
        struct ckpt_err err = {0};
        ckpt_tree_name(e.tree, e.id, &name);
        assert_int_equal(ckpt_dentry_lookup(s, folder, ckpt_str_text(&name), &found, &err), 0);
        assert_int_equal(ckpt_dentry_inode(s, found), ckpt_dentry_inode(s, e));
        ckpt_str_printf(&names, "%s ", name.s);
    }
    assert_string_equal(ckpt_str_text(&names).s, expected);
}

static void test_list_all(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    ckpt_options_init(&o);
    o.list_all = true;
    const char *const keys[] = {"b.c", "a", "b.a"};
    CKPT_AUTO(session) struct ckpt_session *s = open_keys(keys, 3, &o, 0);
    const struct ckpt_dentry root = ckpt_dentry_of_inode(s, 1);
    const struct ckpt_dentry source = ckpt_dentry_of_inode(s, inode(s, ".source"));
    const struct ckpt_dentry b = ckpt_dentry_of_inode(s, inode(s, ".source/b"));
    assert_listed(
        s, root,
        "b a a.npy model.safetensors model.bpk verify.json .source index.json summary.txt ");
    assert_listed(s, source, "b a a.npy ");
    assert_listed(s, b, "c c.npy a a.npy ");
    assert_int_equal(ckpt_dentry_folders(s, source), 1);
    assert_int_equal(ckpt_dentry_folders(s, root), 2);
    assert_int_equal(ckpt_dentry_inode(s, ckpt_dentry_parent(s, b)), ckpt_dentry_inode(s, source));
    assert_int_equal(ckpt_dentry_inode(s, ckpt_dentry_parent(s, source)), 1);
}

#define READERS 8

struct looker {
    pthread_t thread;
    struct ckpt_session *session;
    uint64_t inodes[3];
    uint64_t size;
};

static void *look(void *arg) {
    struct looker *l = arg;
    static const char *const paths[] = {".source/b/c.npy", "b/a.npy", ".source/a"};
    for (size_t i = 0; i < 3; i++) {
        struct ckpt_err err = {0};
        struct ckpt_dentry e;
        struct ckpt_vfile *f = NULL;
        if (ckpt_dentry_find(l->session, paths[i], &e, &err) < 0 || !e.tree ||
            ckpt_dentry_file(l->session, e, &f, &err) < 0 || !f)
            return NULL;
        l->inodes[i] = ckpt_dentry_inode(l->session, e);
        l->size += ckpt_vfile_size(f);
    }
    return NULL;
}

/* Nothing below .source and no NAME.npy is there before eight threads ask for it at once. */
static void test_many_look_at_once(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    ckpt_options_init(&o);
    const char *const keys[] = {"b.c", "a", "b.a"};
    for (int round = 0; round < 20; round++) {
        CKPT_AUTO(session) struct ckpt_session *s = open_keys(keys, 3, &o, 0);
        struct looker l[READERS] = {0};
        for (size_t i = 0; i < READERS; i++) {
            l[i].session = s;
            assert_int_equal(pthread_create(&l[i].thread, NULL, look, &l[i]), 0);
        }
        for (size_t i = 0; i < READERS; i++)
            assert_int_equal(pthread_join(l[i].thread, NULL), 0);
        for (size_t i = 0; i < READERS; i++) {
            assert_memory_equal(l[i].inodes, l[0].inodes, sizeof l[0].inodes);
            assert_int_equal(l[i].size, 129 + 129 + 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_hiding),
        cmocka_unit_test(test_names_are_taken_once),
        cmocka_unit_test(test_depth_costs_no_stack),
        cmocka_unit_test(test_a_key_that_is_also_a_prefix),
        cmocka_unit_test(test_inodes_are_stable),
        cmocka_unit_test(test_list_all),
        cmocka_unit_test(test_many_look_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
