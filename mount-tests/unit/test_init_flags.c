/* The INIT messages: features seen, chosen and added. */
#include <linux/fuse.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fs/init_flags.h"

#define BOTH (CKPT_INIT_ALLOW_MMAP | CKPT_INIT_PASSTHROUGH)

static void test_mmap_is_taken_whenever_offered(void **state) {
    (void)state;
    for (int direct_io = 0; direct_io < 2; direct_io++) {
        const struct ckpt_init_choice c = ckpt_init_choose(BOTH, direct_io, false);
        assert_int_equal(c.flags, CKPT_INIT_ALLOW_MMAP);
        assert_null(c.no_mmap);
        assert_null(c.no_passthrough);
    }
}

static void test_lookups_run_side_by_side_where_they_can(void **state) {
    (void)state;
    const struct ckpt_init_choice c =
        ckpt_init_choose(FUSE_PARALLEL_DIROPS | FUSE_POSIX_ACL, false, false);
    assert_int_equal(c.flags, FUSE_PARALLEL_DIROPS);
    assert_int_equal(CKPT_INIT_PARALLEL, FUSE_PARALLEL_DIROPS);
}

static void test_passthrough_is_taken_when_asked_for(void **state) {
    (void)state;
    const struct ckpt_init_choice c = ckpt_init_choose(BOTH, false, true);
    assert_int_equal(c.flags, BOTH);
    assert_null(c.no_passthrough);
}

/* An old kernel: nothing is asked of it, and who asked for something is told once what he lacks. */
static void test_old_kernels(void **state) {
    (void)state;
    const struct ckpt_init_choice direct = ckpt_init_choose(0, true, false);
    assert_int_equal(direct.flags, 0);
    assert_non_null(strstr(direct.no_mmap, "ENODEV"));
    assert_null(direct.no_passthrough);

    const struct ckpt_init_choice through = ckpt_init_choose(CKPT_INIT_ALLOW_MMAP, true, true);
    assert_int_equal(through.flags, CKPT_INIT_ALLOW_MMAP);
    assert_null(through.no_mmap);
    assert_non_null(strstr(through.no_passthrough, "6.9"));

    const struct ckpt_init_choice neither = ckpt_init_choose(0, false, false);
    assert_null(neither.no_mmap);
    assert_null(neither.no_passthrough);
}

struct request {
    struct fuse_in_header head;
    struct fuse_init_in init;
};

static void test_what_is_offered(void **state) {
    (void)state;
    struct request q = {.head = {.opcode = FUSE_INIT, .unique = 77},
                        .init = {.flags = FUSE_INIT_EXT | FUSE_ASYNC_READ, .flags2 = 0x30}};
    uint64_t unique = 0, offered = 0;
    assert_true(ckpt_init_offered(&q, sizeof q, &unique, &offered));
    assert_int_equal(unique, 77);
    assert_int_equal(offered, BOTH | FUSE_INIT_EXT | FUSE_ASYNC_READ);

    q.init.flags = FUSE_ASYNC_READ; /* flags2 means nothing without the flag */
    assert_true(ckpt_init_offered(&q, sizeof q, &unique, &offered));
    assert_int_equal(offered, FUSE_ASYNC_READ);

    /* before protocol 7.36 the request ended here; one from 7.1 ended after the version */
    q.init.flags = FUSE_INIT_EXT;
    assert_true(ckpt_init_offered(&q, sizeof q.head + 16, &unique, &offered));
    assert_int_equal(offered, FUSE_INIT_EXT);
    assert_true(ckpt_init_offered(&q, sizeof q.head + 8, &unique, &offered));
    assert_int_equal(offered, 0);
}

static void test_other_messages_are_none(void **state) {
    (void)state;
    struct request q = {.head = {.opcode = FUSE_GETATTR, .unique = 5}};
    uint64_t unique = 1, offered = 2;
    assert_false(ckpt_init_offered(&q, sizeof q, &unique, &offered));
    assert_false(ckpt_init_offered(&q, 3, &unique, &offered));
    assert_int_equal(unique, 1);
    assert_int_equal(offered, 2);
}

static void test_patch(void **state) {
    (void)state;
    struct fuse_init_out body = {.major = 7, .minor = 38, .flags = FUSE_ASYNC_READ, .max_pages = 9};
    const uint32_t *const word = (const uint32_t *)&body;
    assert_true(ckpt_init_patch(&body, sizeof body, BOTH));
    assert_int_equal(body.flags, FUSE_ASYNC_READ | FUSE_INIT_EXT);
    assert_int_equal(body.flags2, 0x30);
    assert_int_equal(word[9], 1); /* max_stack_depth */
    assert_int_equal(body.minor, 38);
    assert_int_equal(body.max_pages, 9);
}

static void test_patch_without_passthrough(void **state) {
    (void)state;
    struct fuse_init_out body = {.major = 7};
    const uint32_t *const word = (const uint32_t *)&body;
    assert_true(ckpt_init_patch(&body, sizeof body, CKPT_INIT_ALLOW_MMAP));
    assert_int_equal(body.flags2, 0x10);
    assert_int_equal(word[9], 0);
}

static void test_replies_without_room(void **state) {
    (void)state;
    struct fuse_init_out body = {.major = 7}, before = body;
    assert_false(ckpt_init_patch(&body, 24, BOTH)); /* protocol 7.22 */
    body.major = before.major = 8;
    assert_false(ckpt_init_patch(&body, sizeof body, BOTH));
    assert_memory_equal(&body, &before, sizeof body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mmap_is_taken_whenever_offered),
        cmocka_unit_test(test_lookups_run_side_by_side_where_they_can),
        cmocka_unit_test(test_passthrough_is_taken_when_asked_for),
        cmocka_unit_test(test_old_kernels),
        cmocka_unit_test(test_what_is_offered),
        cmocka_unit_test(test_other_messages_are_none),
        cmocka_unit_test(test_patch),
        cmocka_unit_test(test_patch_without_passthrough),
        cmocka_unit_test(test_replies_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
