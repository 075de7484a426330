#ifndef CKPT_FORMATS_HEADER_ENTRY_H
#define CKPT_FORMATS_HEADER_ENTRY_H
/*
 * A tensor as a file's header describes it: a name, an element type, a shape, and a range of the
 * data that follows the header. safetensors and burnpack are such formats; here is what a reader of
 * either does with an entry once it is parsed.
 *
 * Two kinds of errors meet in a header. A broken header ends the reading. A tensor that is wrong in
 * itself (no such dtype, a shape that does not fit its range) is a *fault* of its entry: the rest
 * of the entry is still passed over, then the fault refuses the file, or, with keep_going, stays
 * with the entry.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"
#include "formats/checkpoint.h"
#include "formats/dtype.h"
#include "formats/file.h"

struct ckpt_header_entry {
    struct ckpt_text key;
    enum ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    uint64_t begin, end; /* bytes of the data */
    const char *fault;   /* NULL: sound. Otherwise why it cannot be served */
};

/* The entry that is being read, and what was found wrong with it. */
struct ckpt_header_entry_reader {
    struct ckpt_header_entry *entry;
    bool is_faulty;
    struct ckpt_err fault; /* the first of the entry */
    bool keep_going;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
};

/* Says what is wrong with the entry; the first that is said counts. */
void ckpt_header_entry_fault(struct ckpt_header_entry_reader *r, const char *fmt, ...)
    CKPT_PRINTF(2, 3);
/* What the fault of the finished entry leads to, if it has one. */
int ckpt_header_entry_settle(struct ckpt_header_entry_reader *r) CKPT_CHECKED;

/* "F32 [2, 3]", cut to fit. */
#define CKPT_HEADER_ENTRY_TEXT 200
const char *ckpt_header_entry_text(char out[static CKPT_HEADER_ENTRY_TEXT],
                                   const struct ckpt_header_entry *e);
/* Finds the fault of an entry whose range does not lie in the data, or does not hold just what its
 * shape needs (which a dtype of NONE leaves open). */
void ckpt_header_entry_check(struct ckpt_header_entry_reader *r, uint64_t data_size);
/* The sound ones of n entries by ascending range; *sound gets their count. To be freed; NULL: out
 * of memory. */
struct ckpt_header_entry **ckpt_header_by_range(struct ckpt_header_entry *entries, size_t n,
                                                size_t *sound);

/* Adds a sound entry to the checkpoint as a tensor whose blob is an extent of the file; a faulty
 * one to the unsupported. Its key and shape must live as long as the checkpoint. */
int ckpt_header_entry_add(struct ckpt_checkpoint *c, const struct ckpt_file *f, uint64_t data_start,
                          const struct ckpt_header_entry *e, struct ckpt_err *err) CKPT_CHECKED;

#endif
