/*
 * Plain pickles whose arrays are long: their bytes stay in the file, and only the rest counts
 * towards the limit. The pickle is put together here, as numpy writes it with protocol 3.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "formats/checkpoint.h"
#include "formats/pickle.h"

static char path[] = "/tmp/test_plain_pickle.XXXXXX";

static void add(struct ckpt_str *s, const void *data, size_t n) {
    ckpt_str_add(s, data, n);
}
#define ADD(s, literal) add(s, literal, sizeof(literal) - 1)

static void add_u32(struct ckpt_str *s, uint32_t v) {
    add(s, &v, sizeof v);
}

/* BINBYTES of n bytes i, i+1, ... */
static void add_bytes(struct ckpt_str *s, uint32_t n) {
    ADD(s, "B");
    add_u32(s, n);
    for (uint32_t i = 0; i < n; i++)
        add(s, (const char[]){(char)(i * 7 >> 3)}, 1);
}

/* 'name': array of n float32 */
static void add_array(struct ckpt_str *s, char name, uint32_t n) {
    ADD(s, "X\1\0\0\0");
    add(s, &name, 1);
    ADD(s, "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
           "C\1b\x87R(K\1J");
    add_u32(s, n);
    ADD(s, "\x85"
           "cnumpy\ndtype\nX\2\0\0\0f4K\0K\1\x87R\x89");
    add_bytes(s, 4 * n);
    ADD(s, "tbs");
}

static void put(const struct ckpt_str *s) {
    CKPT_AUTO(fclose) FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_false(s->failed);
    assert_int_equal(fwrite(s->s, 1, s->n, f), s->n);
}

static struct ckpt_checkpoint *open_it(void) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, NULL, &c, &err) != 0)
        fail_msg("refused: %s", err.text);
    return c;
}

static void test_long_arrays_stay_in_the_file(void **state) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    const uint32_t n = CKPT_PICKLE_LONG_BYTES / 4;
    (void)state;
    ADD(&s, "\x80\3}");
    add_array(&s, 'a', n);
    add_array(&s, 'b', n - 1);
    ADD(&s, "X\1\0\0\0c");
    add_bytes(&s, CKPT_PICKLE_LONG_BYTES);
    ADD(&s, "s.");
    put(&s);
    struct ckpt_checkpoint *c = open_it();
    assert_int_equal(c->ntensors, 2);
    assert_true(c->tensors[0].blob->in_file);  /* just long enough */
    assert_false(c->tensors[1].blob->in_file); /* just not */
    for (size_t i = 0; i < 2; i++) {
        struct ckpt_blob *b = c->tensors[i].blob;
        struct ckpt_pin pin;
        assert_int_equal(b->ops->pin(b, 0, b->size, &pin, NULL, NULL), 0);
        for (uint32_t k = 0; k < b->size; k++)
            assert_int_equal(pin.data[k], (uint8_t)(k * 7 >> 3));
        b->ops->unpin(b, &pin);
    }
    assert_int_equal(c->nopaque, 1); /* long bytes that are no array's are named, not shown */
    assert_string_equal(c->opaque[0].text.s, "bytes");
    ckpt_checkpoint_close(c);
}

/* 160 MiB of arrays, more than the limit for what is parsed. */
static void test_arrays_do_not_count(void **state) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    (void)state;
    assert_true(CKPT_LIMIT_PICKLE_BYTES < 160u << 20);
    ADD(&s, "\x80\3}X\1\0\0\0aB");
    add_u32(&s, 160u << 20);
    put(&s);
    assert_int_equal(truncate(path, (off_t)(s.n + (160u << 20))), 0);
    CKPT_AUTO(fclose) FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite("s.", 1, 2, f), 2);
    assert_int_equal(fflush(f), 0);
    struct ckpt_checkpoint *c = open_it();
    assert_int_equal(c->nopaque, 1);
    ckpt_checkpoint_close(c);
}

static void test_what_is_parsed_counts(void **state) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    (void)state;
    ADD(&s, "\x80\3X");
    add_u32(&s, CKPT_LIMIT_PICKLE_BYTES);
    put(&s);
    assert_int_equal(truncate(path, (off_t)(s.n + CKPT_LIMIT_PICKLE_BYTES)), 0);
    assert_int_equal(ckpt_checkpoint_open(path, NULL, &c, &err), -E2BIG);
    assert_non_null(strstr(err.text, "arrays not counted"));
}

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_arrays_stay_in_the_file),
        cmocka_unit_test(test_arrays_do_not_count),
        cmocka_unit_test(test_what_is_parsed_counts),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
