#ifndef CKPT_ADAPTERS_EXPECT_H
#define CKPT_ADAPTERS_EXPECT_H
/*
 * What burn would say to the adapted model: the parameters that a burn model has (-o expect=FILE)
 * against the tensors that it would be given, by the rules of burn's own loader, from names, shapes
 * and dtypes alone.
 *
 *     parameter  fc1.weight [4, 8] F32        tensor  fc1.weight [4, 8] F16    applied (other
 * width) fc2.weight [8, 3] F32                fc2.weight [3, 8] F32    other shape norm.gamma [8]
 * F32                norm.weight [8]   F32    missing; unused
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"
#include "formats/dtype.h"

/* A parameter of the burn model. */
struct ckpt_parameter {
    struct ckpt_text name;
    enum ckpt_dtype dtype; /* NONE: not told */
    bool has_shape;
    uint32_t ndim;
    const int64_t *shape;
};

struct ckpt_parameters {
    struct ckpt_parameter *at; /* in the file's order */
    size_t n, cap;
};

/* Reads the list: of JSON, or the header of a safetensors file or burnpack that burn saved. All but
 * the array of the list itself lives in the arena. A sentence in err does not name the file. */
int ckpt_parameters_read(struct ckpt_parameters *list, struct ckpt_arena *a, const char *path,
                         struct ckpt_err *err) CKPT_CHECKED;
/* The same for JSON text. */
int ckpt_parameters_parse(struct ckpt_parameters *list, struct ckpt_arena *a, const void *json,
                          size_t n, struct ckpt_err *err) CKPT_CHECKED;
void ckpt_parameters_fini(struct ckpt_parameters *list);
#define ckpt_auto_parameters ckpt_parameters_fini

enum ckpt_expect_outcome {
    CKPT_EXPECT_APPLIED,
    CKPT_EXPECT_WIDTH,   /* applied with another width than the model's: F16 for F32 */
    CKPT_EXPECT_MISSING, /* no tensor of its name */
    CKPT_EXPECT_SHAPE,   /* refused for its shape */
    CKPT_EXPECT_DTYPE,   /* refused for its kind: floats, integers, booleans */
    CKPT_EXPECT_OUTCOMES,
};

/* What becomes of one parameter. */
struct ckpt_expect_record {
    const struct ckpt_parameter *parameter;
    enum ckpt_expect_outcome outcome;
    size_t tensor;      /* of the model; MISSING: the one that may be meant, or CKPT_EXPECT_NONE */
    bool is_transposed; /* SHAPE: the tensor's is the parameter's, turned around */
};
#define CKPT_EXPECT_NONE SIZE_MAX

struct ckpt_expect {
    const char *file;                  /* base name of the list */
    struct ckpt_expect_record *record; /* one a parameter, in the list's order */
    size_t nrecords;
    size_t count[CKPT_EXPECT_OUTCOMES];
    size_t *unused; /* tensors of the model that no parameter takes */
    size_t nunused;
    size_t nusual; /* of these, what burn has no place for and nobody misses */
};

/* Whether a tensor that burn leaves unused is one of those: num_batches_tracked. */
bool ckpt_expect_is_usual(struct ckpt_text key);

struct ckpt_build;
/* Fills model->expect if the options ask for it; what is missing or would be refused is a warning.
 */
int ckpt_check_expected(struct ckpt_build *b) CKPT_CHECKED;

#endif
