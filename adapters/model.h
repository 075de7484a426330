#ifndef CKPT_ADAPTERS_MODEL_H
#define CKPT_ADAPTERS_MODEL_H
/*
 * The adapted model: what the mount shows. Made from a checkpoint by
 *
 *     choose the part -> dialect -> compute -> map -> contiguous -> layout -> cast -> in/exclude
 *
 * at mount time, from metadata alone. Immutable afterwards; any thread may read it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "adapters/view.h"
#include "formats/checkpoint.h"

struct ckpt_explain;

enum ckpt_layout { CKPT_LAYOUT_BURN, CKPT_LAYOUT_TORCH, CKPT_LAYOUT_SOURCE };
enum ckpt_tristate { CKPT_AUTO_, CKPT_ON, CKPT_OFF };

/* `pattern=>value` of -o map= and kind=, in the order given. */
struct ckpt_mapping {
    struct ckpt_text pattern, value;
    const char *where; /* "map=" or "names.map:3: ", begins messages */
};

struct ckpt_adapt_options {
    enum ckpt_layout layout;
    const char *dialect; /* NULL: auto */
    const char *root;    /* NULL: by rule */
    bool prefix_keep;
    const struct ckpt_mapping *map;
    size_t nmap;
    const struct ckpt_mapping *kind;
    size_t nkind;
    enum ckpt_tristate contiguous;
    const char *contiguous_except; /* regex or NULL */
    enum ckpt_dtype cast;          /* NONE: what a rule or the dialect asks for */
    bool cast_keep;                /* not even that */
    bool lora_refuse;              /* LoRA's factors are an error; else merged into weights */
    bool modules_store;            /* modules=store */
    const char *const *include;    /* regexes */
    size_t ninclude;
    const char *const *exclude;
    size_t nexclude;
    const char *rules; /* path of a rule file or NULL */
    const struct ckpt_graph
        *graph;                   /* evidence of what the modules are; NULL: the checkpoint's own */
    const char *expect;           /* path of a burn model's list of parameters, or NULL */
    bool strict;                  /* warnings are errors */
    struct ckpt_explain *explain; /* tensors to explain (explain.h); NULL: none */
};

/* One operation on a tensor's shape as a rule asked for it, never simplified. The walk says the
 * same in another way; the byte check evaluates this list backwards, element by element, without
 * it. */
enum ckpt_view_op_kind {
    CKPT_VIEW_PERMUTE,   /* list: the order */
    CKPT_VIEW_RESHAPE,   /* list: the new shape, no -1 left */
    CKPT_VIEW_SLICE,     /* dim, start, len, step */
    CKPT_VIEW_INDEX,     /* dim, start */
    CKPT_VIEW_FLIP,      /* dim */
    CKPT_VIEW_SQUEEZE,   /* dim */
    CKPT_VIEW_UNSQUEEZE, /* dim */
    CKPT_VIEW_EXPAND,    /* dim, len */
};

struct ckpt_view_op {
    enum ckpt_view_op_kind kind;
    uint32_t dim;
    int64_t start, len, step;
    const int64_t *list;
    uint32_t n; /* of list */
};

/* One step of one tensor along an axis, nearly always all of it. */
struct ckpt_part {
    const struct ckpt_tensor *source; /* NULL: zeros */
    const struct ckpt_walk *walk;     /* NULL with zeros */
    uint64_t nbytes;                  /* of output, after the cast */
    const struct ckpt_view_op *op;    /* from the source's shape to this part's, in order */
    uint32_t nop;
    uint32_t ntorch; /* the first so many are the dialect's: they lead to PyTorch's layout */
};

/* What PyTorch has under a key, where the dialect joined it of several tensors, or of zeros. */
struct ckpt_joined {
    struct ckpt_joined_part {
        const struct ckpt_tensor *source; /* NULL: zeros */
        const struct ckpt_view_op *op;    /* from the source's shape to this part's */
        uint32_t nop;
        int64_t units;
    } * part;
    uint32_t nparts;
    uint64_t turns; /* as ckpt_adapted's */
    uint32_t ndim;
    const int64_t *shape;
};

/* What happens to each element while it is copied: swap, then conj and neg, then the cast. */
struct ckpt_element_map {
    enum ckpt_dtype from, to;
    bool swap, conj, neg;
};

struct ckpt_decision;

struct ckpt_adapted {
    struct ckpt_text key;  /* name in model.safetensors; outside the model the full dotted path */
    struct ckpt_path path; /* raw segments of the file's path below the mount: container segments
                              outside and around the model, then the key's dotted parts */
    enum ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;
    uint64_t nbytes;
    const struct ckpt_tensor *source; /* the first; of zeros the one that they stand in for */
    struct ckpt_part *part;
    uint32_t nparts;
    uint64_t turns; /* parts take turns: this often, each part's next 1/turns. 0 or 1: they follow
                       one another, joined along the first axis; else along another */
    struct ckpt_element_map map;
    bool in_model;  /* belongs to model.safetensors (which may still be unable to hold its dtype) */
    bool alias;     /* a second name for a tensor of the model: a file, not in model.safetensors */
    bool mapped;    /* map= has changed its name */
    bool untouched; /* the source's own bytes in order: one part, contiguous walk, no element map */
    /* What was done, in order, NULL-terminated: "weight_norm" (computed); "rename" (by map= or a
     * rule), "renumber"; a rule's "transpose" (the permute of a matrix), "permute", "reshape",
     * "slice", "flip", "squeeze", "unsqueeze", "split", "unstack", "concat", "zeros"; "contiguous"
     * (the source is strided); "swap", "conj", "neg"; "cast:f16|bf16|f32|f64". */
    const char *const *ops;
    struct {
        struct ckpt_text path; /* of the module in the PyTorch names before map and renumbering */
        const char *kind; /* "linear", "norm", "conv" ... of the kinds in DESIGN; NULL unknown */
        const char *decided_by; /* "option", "record", "graph", "class", "structure", "name",
                                   "default"; NULL */
        const struct ckpt_module *record;   /* class and attributes, where the file has them */
        const struct ckpt_decision *within; /* what holds it (adapters/evidence.h); or NULL */
    } module;
    const struct ckpt_joined *joined; /* what PyTorch has under torch_key; NULL: one source */
    struct ckpt_text torch_key; /* the PyTorch name inside the model: after root and prefix, before
                                   map, renumbering and layout */
    const struct ckpt_text *tied; /* adapted keys that show the same storage range */
    size_t ntied;
};

/* Whether model.safetensors has it, if that can hold its dtype. */
static inline bool ckpt_adapted_is_stored(const struct ckpt_adapted *t) {
    return t->in_model && !t->alias;
}

struct ckpt_model {
    const struct ckpt_checkpoint *checkpoint;
    enum ckpt_layout layout;
    bool modules_store;          /* no rules but burn-store's own act */
    const char *dialect;         /* "torch", "burn", ... */
    struct ckpt_text root;       /* dotted source path of the model's part; "" the whole */
    struct ckpt_text prefix;     /* stripped from every key; "" none */
    struct ckpt_adapted *tensor; /* in the checkpoint's order */
    size_t ntensors;
    struct ckpt_text *warnings; /* of the adaptation; the checkpoint has its own */
    size_t nwarnings;
    struct ckpt_text *candidates; /* other parts that could have been the model */
    size_t ncandidates;
    struct ckpt_text suggested_prefix; /* common, not stripped: only suggested; "" none */
    struct ckpt_blob **computed;       /* tensors' blobs that no checkpoint holds */
    size_t ncomputed;
    struct ckpt_text *list; /* the lists that were renumbered: "net: 0, 2 are now 0 to 1" */
    size_t nlists;
    struct ckpt_text kinds; /* what burn's names cannot say, for the file's metadata; .s NULL: none
                               (adapters/recorded_kinds.h) */
    size_t nrenamed, nrenumbered, ntransposed, ncast;
    const struct ckpt_expect *expect; /* what burn would say (adapters/expect.h); NULL: not asked */
    struct ckpt_arena arena;
};

/* Whether the source is in burn's names and layout: all else is in PyTorch's once its dialect has
 * acted. */
static inline bool ckpt_model_is_burn(const struct ckpt_model *m) {
    return strcmp(m->dialect, "burn") == 0;
}

/* -EINVAL with a sentence if there is no such dialect. */
int ckpt_dialect_check(const char *name, struct ckpt_err *err) CKPT_CHECKED;
/* The model outlives neither the checkpoint nor the strings of the options. */
int ckpt_model_build(const struct ckpt_checkpoint *c, const struct ckpt_adapt_options *options,
                     struct ckpt_model **out, struct ckpt_err *err) CKPT_CHECKED;
/* The source tree, unadapted, every tensor under its own full path: what `.source/` shows. */
int ckpt_model_build_source(const struct ckpt_checkpoint *c, struct ckpt_model **out,
                            struct ckpt_err *err) CKPT_CHECKED;
void ckpt_model_free(struct ckpt_model *m); /* NULL is fine */

#endif
