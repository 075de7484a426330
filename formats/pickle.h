#ifndef CKPT_FORMATS_PICKLE_H
#define CKPT_FORMATS_PICKLE_H
/*
 * An inert pickle machine: it knows every opcode of protocols 0 to 5, builds plain values and never
 * looks up, imports or calls anything. A call in the stream is either one of a closed table
 * (pickle_call.c), which makes a value, or an opaque object that merely bears the callee's name.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/globals.h"
#include "formats/blob.h"
#include "formats/value.h"

/* Kinds of values that only readers of pickles know. None is left in what a checkpoint shows. */
enum ckpt_pickle_kind {
    CKPT_PICKLE_STORAGE = CKPT_VALUE_FORMAT, /* .format: struct torch_storage */
    CKPT_PICKLE_TENSOR,                      /* .format: struct torch_tensor */
    CKPT_PICKLE_NUMPY_DTYPE,                 /* .format: struct numpy_dtype */
    CKPT_PICKLE_LEFT_BYTES, /* .text: bytes of the stream whose content is only in the file */
};

/* Byte strings so long may be left in the file: ckpt_pickle_hooks.left_blob. */
#define CKPT_PICKLE_LONG_BYTES 65536u

struct ckpt_pickle_hooks {
    void *user;
    /* What a persistent id stands for. NULL: persistent ids are an error. */
    int (*persistent_id)(void *user, const struct ckpt_value *id, struct ckpt_value **out,
                         struct ckpt_err *err);
    /* The storage in the bytes that torch.storage._load_from_bytes was given; leaves *out NULL if
     * they hold none. NULL: such calls stay opaque. */
    int (*nested_storage)(void *user, struct ckpt_text bytes, struct ckpt_value **out,
                          struct ckpt_err *err);
    /* Not NULL: the stream lacks the content of long byte strings (ckpt_pickle_copy). Makes a blob
     * of one of them. */
    int (*left_blob)(void *user, struct ckpt_text bytes, const char *name, struct ckpt_blob **out,
                     struct ckpt_err *err);
    /* Counts the classes and functions that the stream names. NULL: they are not counted. */
    struct ckpt_globals *globals;
};

/* The bytes that the first pickle in [bytes, bytes + n) takes, its STOP included. Allocates nothing
 * and touches only the stream, so that it may run under the SIGBUS guard. Returns 0 if the stream
 * ends, or holds an unknown opcode, before a STOP. */
size_t ckpt_pickle_length(const uint8_t *bytes, size_t n);

/* Copies the first pickle in [from, from + n) to the same places of `to`, but not the content of
 * long byte strings; ends behind the opcode that is malformed, and once more than `most` bytes are
 * copied. Returns how many were. May run under the SIGBUS guard. */
size_t ckpt_pickle_copy(uint8_t *to, const uint8_t *from, size_t n, size_t most);

/*
 * Runs the first pickle in [bytes, bytes + n). *consumed is where it ends; what follows is not
 * looked at. Values live in the arena; byte strings refer to `bytes`, which must live as long.
 * A sentence in err names the byte and the opcode. -EINVAL malformed, -E2BIG over a limit.
 */
int ckpt_pickle_run(const uint8_t *bytes, size_t n, const struct ckpt_pickle_hooks *hooks,
                    struct ckpt_arena *arena, size_t *consumed, struct ckpt_value **value,
                    struct ckpt_err *err) CKPT_CHECKED;

#endif
