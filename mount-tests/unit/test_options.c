/* The option splitter and the table of options. */
#include <errno.h>
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
#include "fs/options.h"

static int parse(struct ckpt_options *o, const char *list, struct ckpt_err *err) {
    ckpt_options_init(o);
    const int rc = ckpt_options_parse(o, list, false, err);
    return rc < 0 ? rc : ckpt_options_finish(o, err);
}

static void accept(struct ckpt_options *o, const char *list) {
    struct ckpt_err err = {0};
    if (parse(o, list, &err) != 0)
        fail_msg("%s: %s", list, err.text);
}

/* The refusal's sentence holds each of the words. */
static void refuse(const char *list, const char *word, const char *other) {
    CKPT_AUTO(options) struct ckpt_options o;
    struct ckpt_err err = {0};
    assert_int_equal(parse(&o, list, &err), -EINVAL);
    if (!strstr(err.text, word) || !strstr(err.text, other))
        fail_msg("%s: \"%s\" lacks \"%s\" or \"%s\"", list, err.text, word, other);
}

static void test_defaults(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    accept(&o, "");
    assert_int_equal(o.adapt.layout, CKPT_LAYOUT_BURN);
    assert_int_equal(o.adapt.contiguous, CKPT_AUTO_);
    assert_int_equal(o.adapt.cast, CKPT_DT_NONE);
    assert_null(o.adapt.dialect);
    assert_int_equal(o.cache, 256 << 20);
    assert_true(o.verify.atol == 1e-4 && o.verify.rtol == 1e-3);
    assert_int_equal(o.uid, getuid());
}

static void test_values(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    accept(&o, "layout=torch,cast=f32,root=model,prefix=keep,strict,keep_going,uid=12,gid=34,"
               "umask=027,atol=1e-5,verify_memory=2G,threads=3,nomt,direct_io,passthrough,list=all,"
               "cache=64M,"
               "include=^a,include=b$,exclude=c,modules=store,contiguous=off,dialect=auto");
    assert_int_equal(o.adapt.layout, CKPT_LAYOUT_TORCH);
    assert_int_equal(o.adapt.cast, CKPT_DT_F32);
    assert_string_equal(o.adapt.root, "model");
    assert_true(o.adapt.prefix_keep && o.adapt.strict && o.open.keep_going);
    assert_int_equal(o.uid, 12);
    assert_int_equal(o.gid, 34);
    assert_int_equal(o.umask, 027);
    assert_int_equal(o.verify.memory, (uint64_t)2 << 30);
    assert_int_equal(o.cache, 64 << 20);
    assert_int_equal(o.threads, 3);
    assert_true(o.single_thread && o.direct_io && o.passthrough && o.list_all &&
                o.adapt.modules_store);
    assert_int_equal(o.adapt.contiguous, CKPT_OFF);
    assert_int_equal(o.adapt.ninclude, 2);
    assert_string_equal(o.adapt.include[1], "b$");
    assert_int_equal(o.adapt.nexclude, 1);
}

static void test_escapes(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    accept(&o, "map=^net\\.0\\.=>fc1.,map=a\\,b=>c\\\\d,,map=x{1\\,2}=>y=>z,");
    assert_int_equal(o.adapt.nmap, 3);
    assert_string_equal(o.adapt.map[0].pattern.s, "^net\\.0\\.");
    assert_string_equal(o.adapt.map[0].value.s, "fc1.");
    assert_string_equal(o.adapt.map[1].pattern.s, "a,b");
    assert_string_equal(o.adapt.map[1].value.s, "c\\d");
    assert_string_equal(o.adapt.map[2].pattern.s, "x{1,2}=>y");
    assert_string_equal(o.adapt.map[2].value.s, "z");
    assert_string_equal(o.adapt.map[0].where, "map=");
}

static void test_mount_options_are_silent(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    accept(&o, "rw,ro,noauto,user,nofail,_netdev,x-systemd.automount,x-gvfs-show,comment=hello,"
               "defaults,nosuid,nodev,noexec,relatime,default_permissions");
    assert_int_equal(o.adapt.layout, CKPT_LAYOUT_BURN);
}

static void test_refusals(void **state) {
    (void)state;
    refuse("layuot=torch", "layuot", "did you mean layout");
    refuse("qqqqqqqq", "unknown option qqqqqqqq", "--help");
    refuse("layout", "layout", "needs a value");
    refuse("layout=", "layout", "needs a value");
    refuse("strict=1", "strict", "takes no value");
    refuse("layout=tensorflow", "tensorflow", "burn, torch, source");
    refuse("cast=f12", "f12", "bf16");
    refuse("cache=12Q", "12Q", "256M");
    refuse("atol=-1", "atol", "-1");
    refuse("rtol=nan", "rtol", "nan");
    refuse("threads=0", "threads", "1");
    refuse("umask=9", "umask", "octal");
    refuse("uid=no-such-user-here", "no-such-user-here", "uid");
    refuse("map=abc", "map=abc", "=>");
    refuse("map=abc", "shell", "quotes");
    refuse("map_file=/no/such/file", "/no/such/file", "map_file");
    refuse("reference=/no/such/file", "/no/such/file", "reference");
    refuse("expect=x", "expect", "cannot read");
    refuse("device=cuda", "device", "cuda is none of cpu");
    refuse("kind=.=>lienar", "lienar", "linear");
    refuse("kind=^fc1$=>lienar", "^fc1$=>lienar", "linear");
    refuse("remount", "remount", "unmount");
    refuse("root", "root", "needs a value");
    refuse("dialect=torhc", "torhc", "did you mean 'torch'");
    refuse("dialect=qqq", "qqq", "auto, burn, openpi, flax or torch");
    refuse("nousr", "nousr", "--help"); /* what does nothing is not worth a suggestion */
    refuse("map_file=/", "map_file", "directory");
}

static void test_an_empty_root_is_the_whole(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    accept(&o, "root=");
    assert_string_equal(o.adapt.root, "");
}

static void test_bad_patterns_have_their_place(void **state) {
    (void)state;
    refuse("map=(=>x", "map=", "(");
    refuse("kind=[=>linear", "kind=", "[");
    refuse("include=a)", "include=", "a)");
    refuse("contiguous_except=*", "contiguous_except=", "*");
}

static void test_sloppy(void **state) {
    (void)state;
    CKPT_AUTO(options) struct ckpt_options o;
    struct ckpt_err err = {0};
    ckpt_options_init(&o);
    assert_int_equal(ckpt_options_parse(&o, "layuot=torch,layout=torch", true, &err), 0);
    assert_int_equal(o.adapt.layout, CKPT_LAYOUT_TORCH);
    assert_int_equal(ckpt_options_parse(&o, "layout=x", true, &err), -EINVAL);
}

static void test_map_file(void **state) {
    (void)state;
    char path[] = "/tmp/test_options.XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char text[] = "# names\n\n^a=>b\r\n^c, d=>e\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    CKPT_AUTO(options) struct ckpt_options o;
    struct ckpt_err err = {0};
    ckpt_options_init(&o);
    char list[128];
    snprintf(list, sizeof list, "map=first=>1,map_file=%s,map=last=>2", path);
    assert_int_equal(ckpt_options_parse(&o, list, false, &err), 0);
    assert_int_equal(ckpt_options_finish(&o, &err), 0);
    assert_int_equal(o.adapt.nmap, 4);
    assert_string_equal(o.adapt.map[1].pattern.s, "^a");
    assert_string_equal(o.adapt.map[1].value.s, "b");
    assert_string_equal(o.adapt.map[2].pattern.s, "^c, d");
    assert_non_null(strstr(o.adapt.map[2].where, ":4"));
    assert_string_equal(o.adapt.map[3].pattern.s, "last");
    assert_int_equal(write(fd, "oops\n", 5), 5);
    snprintf(list, sizeof list, "map_file=%s", path);
    refuse(list, ":5", "oops");
    close(fd);
    unlink(path);
}

static void test_sizes(void **state) {
    (void)state;
    uint64_t n;
    assert_true(ckpt_options_size("0", &n) && n == 0);
    assert_true(ckpt_options_size("4096", &n) && n == 4096);
    assert_true(ckpt_options_size("3k", &n) && n == 3072);
    assert_true(ckpt_options_size("1T", &n) && n == (uint64_t)1 << 40);
    const char *const wrong[] = {
        "", "M", "-1", "1MB", "1 M", " 1", "18446744073709551616", "99999999999T"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (ckpt_options_size(wrong[i], &n))
            fail_msg("%s is taken for a size", wrong[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_mount_options_are_silent),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_an_empty_root_is_the_whole),
        cmocka_unit_test(test_bad_patterns_have_their_place),
        cmocka_unit_test(test_sloppy),
        cmocka_unit_test(test_map_file),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
