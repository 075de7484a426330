#ifndef CKPT_FUZZ_CHECKPOINT_PROPERTY_H
#define CKPT_FUZZ_CHECKPOINT_PROPERTY_H
/*
 * For targets whose input is a whole checkpoint, opened from a file: what must hold of every one
 * that is accepted.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/guard.h"
#include "formats/checkpoint.h"

static char path[64];
static int fd = -1;

static void require(bool condition) {
    if (!condition)
        abort();
}

static void remove_file(void) {
    unlink(path);
}

/* One file for all inputs. */
static void write_file(const uint8_t *data, size_t size) {
    if (fd < 0) {
        snprintf(path, sizeof path, "/tmp/fuzz_torch.XXXXXX");
        fd = mkstemp(path);
        require(fd >= 0 && ckpt_guard_install() == 0);
        atexit(remove_file);
    }
    require(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
}

static void read_ends(const struct ckpt_tensor *t) {
    struct ckpt_pin pin;
    struct ckpt_err err = {0};
    const uint64_t unit = ckpt_dtype_info(t->dtype)->unit_bytes;
    uint64_t last = t->offset;
    if (ckpt_tensor_count(t) == 0 ||
        t->blob->ops->pin(t->blob, 0, t->blob->size, &pin, NULL, &err) != 0)
        return;
    for (uint32_t i = 0; t->stride && i < t->ndim; i++)
        last += (uint64_t)(t->shape[i] - 1) * (uint64_t)t->stride[i] * unit;
    if (!t->stride)
        last += ckpt_tensor_bytes(t) - unit;
    require(t->offset + unit <= t->blob->size && last + unit <= t->blob->size);
    volatile uint8_t byte = pin.data[t->offset];
    byte = pin.data[last + unit - 1];
    (void)byte;
    t->blob->ops->unpin(t->blob, &pin);
}

static void check_path(struct ckpt_path p) {
    require(p.n == 0 || p.segment != NULL);
    for (uint32_t i = 0; i < p.n; i++)
        require(p.segment[i].s != NULL);
}

static void check_checkpoint(const struct ckpt_checkpoint *c) {
    for (size_t i = 0; i < c->ntensors; i++) {
        struct ckpt_err err = {0};
        require(ckpt_tensor_check(&c->tensors[i], &err) == 0);
        require(c->tensors[i].blob->id < c->nblobs);
        require(c->tensors[i].module < (int32_t)c->nmodules);
        check_path(c->tensors[i].path);
        read_ends(&c->tensors[i]);
    }
    for (size_t i = 0; i < c->nvalues; i++) {
        CKPT_AUTO(str) struct ckpt_str json = {0};
        struct ckpt_json_out w = {.out = &json};
        check_path(c->values[i].path);
        ckpt_value_json(&w, c->values[i].value);
    }
    for (size_t i = 0; i < c->nunsupported; i++)
        check_path(c->unsupported[i].path);
    for (size_t i = 0; i < c->nopaque; i++)
        check_path(c->opaque[i].path);
}

static void compare_listings(const struct ckpt_checkpoint *a, const struct ckpt_checkpoint *b) {
    require(a->ntensors == b->ntensors && a->nvalues == b->nvalues && a->nblobs == b->nblobs);
    require(a->nunsupported == b->nunsupported && a->nopaque == b->nopaque);
    for (size_t i = 0; i < a->ntensors; i++) {
        const struct ckpt_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        require(ckpt_text_eq(x->key, y->key) && x->dtype == y->dtype && x->ndim == y->ndim);
        require(x->ndim == 0 || memcmp(x->shape, y->shape, x->ndim * sizeof *x->shape) == 0);
        require(x->offset == y->offset && x->blob->id == y->blob->id);
    }
}

static bool open_once(bool keep_going) {
    const struct ckpt_open_options options = {.keep_going = keep_going};
    struct ckpt_checkpoint *c = NULL;
    struct ckpt_err err = {0};
    const int rc = ckpt_checkpoint_open(path, &options, &c, &err);
    require(rc == 0 || (err.text[0] != '\0' && !strchr(err.text, '\n')));
    if (rc == 0)
        check_checkpoint(c);
    ckpt_checkpoint_close(c);
    return rc == 0;
}

/* Refused with a sentence, or sound; with keep_going no more is refused than without; opened again
 * it is the same. */
static void check_file_twice(const uint8_t *data, size_t size) {
    write_file(data, size);
    const bool strictly = open_once(false);
    require(open_once(true) || !strictly);
    struct ckpt_checkpoint *a = NULL, *b = NULL;
    if (strictly) {
        require(ckpt_checkpoint_open(path, NULL, &a, NULL) == 0);
        require(ckpt_checkpoint_open(path, NULL, &b, NULL) == 0);
        compare_listings(a, b);
    }
    ckpt_checkpoint_close(a);
    ckpt_checkpoint_close(b);
}

#endif
