#ifndef CKPT_FORMATS_BURNPACK_HEADER_H
#define CKPT_FORMATS_BURNPACK_HEADER_H
/*
 * The header of a burnpack, the file that burn saves, as a checked table.
 *
 *     0      4          6                 10         10+n   data: a multiple of 256
 *     | NRUB | u16: 1   | n: u32, of CBOR | CBOR      | 0... | tensor | 0... | tensor |
 *
 *     {"tensors":  {name: {"dtype", "shape": [..], "data_offsets": [begin, end], "param_id"?}},
 *      "metadata": {text: text},                    may be absent, as may
 *      "scalars":  {name: {"Int"|"UInt"|"Float"|"Bool": value}}}
 *
 * Offsets count from where the data begins; burn's writer puts each tensor at a multiple of 256,
 * which no reader needs. Stricter than burn's own reader: a name that is there twice, ranges that
 * overlap, tags and text that follow the CBOR value are refused.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/header_entry.h"
#include "formats/value.h"

#define CKPT_BPK_MAGIC "NRUB" /* 0x4255524e, "BURN", as a little-endian number */
#define CKPT_BPK_HEADER 10u   /* bytes before the CBOR */
#define CKPT_BPK_ALIGNMENT 256u

/* Texts, shapes and values are in the arena given to read/parse; the lists are freed by fini. */
struct ckpt_bpk_table {
    struct ckpt_header_entry *entries; /* in the metadata's order; a quantised tensor has a fault */
    size_t n, cap;
    struct ckpt_pair *metadata;
    size_t nmetadata, metadata_cap;
    struct ckpt_bpk_scalar {
        struct ckpt_text key;
        struct ckpt_value value;
    } * scalars;
    size_t nscalars, scalars_cap;
    uint64_t data_start; /* byte of the file where the data begins */
    uint64_t unclaimed;  /* data bytes of no sound tensor, but padding */
    size_t nwide;        /* tensors of burn's 32-bit booleans */
};

/* Whether n bytes are how a burnpack begins. */
bool ckpt_bpk_detect(const void *bytes, size_t n);
/* burn's name of the dtype; "Bool" comes with how it is stored. NULL: burn has none such. */
const char *ckpt_bpk_dtype_name(enum ckpt_dtype t);
/* Where the data begins after n bytes of metadata. */
uint64_t ckpt_bpk_data_start(uint64_t n);

/* Reads and checks the header of a file. With keep_going a tensor that is wrong in itself is kept
 * as an entry with its fault, instead of refusing the file. */
int ckpt_bpk_read(struct ckpt_bpk_table *t, struct ckpt_arena *a, const struct ckpt_file *f,
                  bool keep_going, struct ckpt_err *err) CKPT_CHECKED;
/* The same for n bytes of CBOR, before data_size bytes of data. */
int ckpt_bpk_parse(struct ckpt_bpk_table *t, struct ckpt_arena *a, const void *cbor, size_t n,
                   uint64_t data_size, bool keep_going, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_bpk_table_fini(struct ckpt_bpk_table *t);

#define ckpt_auto_bpk_table ckpt_bpk_table_fini

#endif
