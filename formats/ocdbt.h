#ifndef CKPT_FORMATS_OCDBT_H
#define CKPT_FORMATS_OCDBT_H
/*
 * OCDBT, tensorstore's database: a B+tree whose nodes and larger values lie in log files.
 *
 *     manifest.ocdbt ── newest version ──> root node ──> ... ──> leaf nodes
 *                                          "w/.zarray"  inline value
 *                                          "w/0.0"      (file, offset, length) ──> d/1f3c...
 *
 * Manifest and nodes come in the same envelope, with a checksum:
 *
 *     0             4            12                                             length-4
 *     | magic (BE)  | length LE  | version 0 | compression 0, 1 = zstd | body  | CRC-32C LE |
 *
 * Integers are LEB128 where nothing else is said. Lists are stored by columns: all values of the
 * first field, then all of the second.
 */
#include <stddef.h>
#include <stdint.h>

#include "formats/kvstore.h"

/* Whether the directory has a database's manifest. */
bool ckpt_ocdbt_is(const char *directory);

/* Adds all keys of the newest version to the store, which is empty. The directory is absolute. */
int ckpt_ocdbt_open(struct ckpt_kvstore *s, const char *directory,
                    struct ckpt_err *err) CKPT_CHECKED;

/* --- the parts, for ocdbt.c and the tests --- */

enum ckpt_ocdbt_magic {
    CKPT_OCDBT_MANIFEST = 0x0CDB3A2A,
    CKPT_OCDBT_NODE = 0x0CDB20DE,
};

/* Checks the envelope and yields the body, malloc'ed. */
int ckpt_ocdbt_unwrap(const void *bytes, size_t n, enum ckpt_ocdbt_magic magic, uint64_t limit,
                      uint8_t **body, size_t *body_n, struct ckpt_err *err) CKPT_CHECKED;

/* The files that a manifest or node refers to. */
struct ckpt_ocdbt_file {
    struct ckpt_text path; /* below the database's folder */
    struct ckpt_text base; /* its part that paths in a node of that file begin with */
};
struct ckpt_ocdbt_files {
    struct ckpt_ocdbt_file *file; /* all in the arena */
    size_t n;
};

#define CKPT_OCDBT_NOWHERE UINT64_MAX /* offset and length of an empty tree */

struct ckpt_ocdbt_ref {
    uint64_t file, offset, length;
};

struct ckpt_ocdbt_manifest {
    bool is_numbered; /* the versions are in a file manifest.<16 hexadecimal digits> */
    struct ckpt_ocdbt_files files;
    bool has_version;
    uint64_t generation, keys; /* of the newest one */
    uint8_t height;
    struct ckpt_ocdbt_ref root;
};
int ckpt_ocdbt_parse_manifest(const void *body, size_t n, struct ckpt_arena *a,
                              struct ckpt_ocdbt_manifest *out, struct ckpt_err *err) CKPT_CHECKED;

struct ckpt_ocdbt_entry {
    struct ckpt_text key; /* below the prefix of its node; without a NUL */
    size_t prefix;        /* of an inner one: so much of the key is its child's prefix */
    const uint8_t *value; /* of a leaf: inline, in the body; NULL: at ref */
    struct ckpt_ocdbt_ref ref;
};
struct ckpt_ocdbt_node {
    uint8_t height; /* 0: a leaf */
    struct ckpt_ocdbt_files files;
    struct ckpt_ocdbt_entry *entry;
    size_t n;
};
/* `base` begins all paths. The node is in the arena, but inline values, which stay in the body. */
int ckpt_ocdbt_parse_node(const void *body, size_t n, struct ckpt_text base, struct ckpt_arena *a,
                          struct ckpt_ocdbt_node *out, struct ckpt_err *err) CKPT_CHECKED;

#endif
