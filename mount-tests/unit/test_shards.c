/*
 * Checkpoints of several files: sharded pytorch_model.bin directories and those of
 * torch.distributed.checkpoint. The directories are made of symbolic links, as a hub cache's are.
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
#include "formats/checkpoint.h"

#define SHARDED FIXTURES "/pt/hf_sharded/"
#define SHARD_1 "pytorch_model-00001-of-00002.bin"
#define SHARD_2 "pytorch_model-00002-of-00002.bin"
#define INDEX "pytorch_model.bin.index.json"

static char folder[] = "/tmp/test_shards.XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void link_to(const char *target, const char *name) {
    assert_int_equal(symlink(target, in_folder(name)), 0);
}

static void put(const char *name, const char *text) {
    CKPT_AUTO(fclose) FILE *f = fopen(in_folder(name), "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
}

static struct ckpt_checkpoint *open_folder(const char *path, bool keep_going) {
    const struct ckpt_open_options options = {.keep_going = keep_going};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, &options, &c, &err) != 0)
        fail_msg("refused: %s", err.text);
    return c;
}

static void expect_refusal(const char *path, const char *part) {
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    if (ckpt_checkpoint_open(path, NULL, &c, &err) == 0)
        fail_msg("accepted, expected \"%s\"", part);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not hold \"%s\"", err.text, part);
}

static void test_sharded_bin(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_folder(SHARDED, false);
    assert_string_equal(c->format, "torch-sharded");
    assert_true(c->is_torch);
    assert_int_equal(c->nfiles, 2);
    assert_string_equal(c->tensors[0].key.s, "pe");
    assert_string_equal(c->tensors[0].blob->file->name, SHARD_1);
    assert_true(c->tensors[0].blob->in_file);
    ckpt_checkpoint_close(c);
}

static void test_traps_in_the_index(void **state) {
    static const struct {
        const char *index, *part;
    } cases[] = {
        {"{\"weight_map\":{\"pe\":\"../" SHARD_1 "\"}}", "plain name"},
        {"{\"weight_map\":{\"pe\":\"/etc/hostname\"}}", "plain name"},
        {"{\"weight_map\":{\"pe\":\"" SHARD_2 "\"}}", SHARD_2 ": no such file"},
        {"{\"weight_map\":{\"other\":\"" SHARD_1 "\"}}", "tensor \"other\": it is not in " SHARD_1},
        {"{\"weight_map\":{\"pe\":\"" INDEX "\"}}", INDEX ": not a checkpoint"},
        {"{\"weight_map\":{\"pe\":\"folder\"}}", "folder: is a directory"},
    };
    (void)state;
    link_to(SHARDED SHARD_1, SHARD_1);
    link_to(SHARDED, "folder");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(INDEX, cases[i].index);
        expect_refusal(folder, cases[i].part);
    }
    unlink(in_folder("folder"));
    unlink(in_folder(INDEX));
    unlink(in_folder(SHARD_1));
}

static void test_an_absent_shard_is_left_out(void **state) {
    (void)state;
    link_to(SHARDED SHARD_1, SHARD_1);
    put(INDEX,
        "{\"weight_map\":{\"b\":\"" SHARD_2 "\",\"pe\":\"" SHARD_1 "\",\"c\":\"" SHARD_1 "\"}}");
    struct ckpt_checkpoint *c = open_folder(folder, true);
    assert_int_equal(c->ntensors, 1);
    assert_int_equal(c->nunsupported, 2);
    assert_non_null(strstr(c->unsupported[0].text.s, SHARD_2));
    assert_int_equal(c->nwarnings, 1); /* the shard's other tensors */
    ckpt_checkpoint_close(c);
    unlink(in_folder(INDEX));
    unlink(in_folder(SHARD_1));
}

static void test_a_single_bin(void **state) {
    (void)state;
    link_to(FIXTURES "/pt/a1_state.pt", "pytorch_model.bin");
    link_to(FIXTURES "/pt/hf_sharded/config.json", "training_args.bin");
    struct ckpt_checkpoint *c = open_folder(folder, false);
    assert_string_equal(c->format, "torch-zip");
    assert_string_equal(c->files[0]->name, "pytorch_model.bin");
    assert_non_null(c->directory);
    assert_true(c->ntensors > 0);
    ckpt_checkpoint_close(c);
    unlink(in_folder("pytorch_model.bin"));
    unlink(in_folder("training_args.bin"));
}

/* --- torch.distributed.checkpoint ---------------------------------------------------------------
 */

static void test_two_ranks(void **state) {
    (void)state;
    struct ckpt_checkpoint *c = open_folder(FIXTURES "/pt/dcp_two", false);
    assert_string_equal(c->format, "torch-dcp");
    assert_int_equal(c->ntensors, 2);
    assert_string_equal(c->tensors[0].key.s, "model.w");
    assert_int_equal(c->tensors[0].path.n, 2);
    assert_string_equal(c->tensors[0].blob->ops->kind, "grid"); /* two chunks */
    assert_int_equal(c->tensors[0].blob->size, 4 * 3 * sizeof(float));
    assert_string_equal(c->tensors[1].key.s, "model.b");
    assert_true(c->tensors[1].blob->in_file);
    assert_int_equal(c->nunsupported, 0);
    assert_int_equal(c->nvalues, 1);
    assert_int_equal(c->values[0].value->i, 7);
    ckpt_checkpoint_close(c);
}

static void test_a_shard_of_a_rank_is_absent(void **state) {
    (void)state;
    link_to(FIXTURES "/pt/dcp_two/.metadata", ".metadata");
    link_to(FIXTURES "/pt/dcp_two/__0_0.distcp", "__0_0.distcp");
    expect_refusal(folder, "__1_0.distcp: no such file");
    struct ckpt_checkpoint *c = open_folder(folder, true);
    assert_true(c->nunsupported > 1);
    ckpt_checkpoint_close(c);
    /* What lies there is another checkpoint's shard. */
    link_to(FIXTURES "/pt/dcp_ckpt/__0_0.distcp", "__1_0.distcp");
    expect_refusal(folder, "item \"");
    unlink(in_folder("__0_0.distcp"));
    unlink(in_folder("__1_0.distcp"));
    unlink(in_folder(".metadata"));
}

static void test_metadata_of_something_else(void **state) {
    (void)state;
    put(".metadata", "no pickle");
    expect_refusal(folder, ".metadata: the metadata at byte 0");
    put(".metadata", "(dp0\n.");
    expect_refusal(folder, "no state_dict_metadata");
    unlink(in_folder(".metadata"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharded_bin),
        cmocka_unit_test(test_traps_in_the_index),
        cmocka_unit_test(test_an_absent_shard_is_left_out),
        cmocka_unit_test(test_a_single_bin),
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_a_shard_of_a_rank_is_absent),
        cmocka_unit_test(test_metadata_of_something_else),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
