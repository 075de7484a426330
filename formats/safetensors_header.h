#ifndef CKPT_FORMATS_SAFETENSORS_HEADER_H
#define CKPT_FORMATS_SAFETENSORS_HEADER_H
/*
 * The header of a safetensors file, as a checked table.
 *
 *     0        8                8+n                                  end of file
 *     | n: u64 | JSON, n bytes  | data: the tensors' ranges tile it  |
 *
 * Stricter than the reference package in one point: a key that is there twice is refused, since
 * two readers could see two tensors.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "formats/header_entry.h"

/* Keys, shapes and pairs are in the arena given to read/parse; the entries are freed by fini. */
struct ckpt_st_table {
    struct ckpt_header_entry *entries; /* in the header's order */
    size_t n, cap;
    struct ckpt_pair *metadata;
    size_t nmetadata, metadata_cap;
    uint64_t data_start; /* byte of the file where the data begins */
    uint64_t unclaimed;  /* data bytes of no sound tensor (only with keep_going) */
};

/* Whether the file begins like a safetensors file: a sane length, then '{'. */
bool ckpt_st_detect(const struct ckpt_file *f);

/* Reads and checks the header of a file. With keep_going a tensor that is wrong in itself is kept
 * as an entry with its fault, instead of refusing the file. */
int ckpt_st_read(struct ckpt_st_table *t, struct ckpt_arena *a, const struct ckpt_file *f,
                 bool keep_going, struct ckpt_err *err) CKPT_CHECKED;
/* The same for n bytes of JSON, before data_size bytes of data. */
int ckpt_st_parse(struct ckpt_st_table *t, struct ckpt_arena *a, const void *json, size_t n,
                  uint64_t data_size, bool keep_going, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_st_table_fini(struct ckpt_st_table *t);

#define ckpt_auto_st_table ckpt_st_table_fini

#endif
