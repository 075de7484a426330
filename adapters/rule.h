#ifndef CKPT_ADAPTERS_RULE_H
#define CKPT_ADAPTERS_RULE_H
/*
 * Rules: an adapter as data. A rule file is JSON (docs/adapters.md describes it for its writers):
 *
 *     {"rules": [{"match": "(.*\\.)?weight", "kind": "linear", "rank": 2,
 *                 "ops": [["permute", [1, 0]]]},
 *                {"match": "(.*)in_proj_bias", "name": ["$1q.bias", "$1k.bias", "$1v.bias"],
 *                 "ops": [["split", 0, 3]]}]}
 *
 * The first rule that matches a key takes it and makes its targets of it; a key that no rule takes
 * stays as it is, or is an error in a closed file. Our own adapters are such files, built in.
 *
 * Two kinds of rules act before these, and take nothing: those that compute (rule_merge.c), and
 * those that say what is inside a module, `within` (rule_within.c).
 */
#include "adapters/build.h"
#include "adapters/regex.h"

#define CKPT_RULE_FILE_BYTES (1u << 20)
#define CKPT_RULES_MAX 10000u /* rules of one file */
#define CKPT_RULE_OPS_MAX 16u /* operations of one target */
#define CKPT_RULE_LIST_MAX 64u
#define CKPT_RULE_PIECES_MAX 4096u /* sources joined in one tensor */

enum ckpt_rule_op_kind {
    CKPT_RULE_PERMUTE,   /* list: the order */
    CKPT_RULE_RESHAPE,   /* list: -1 is inferred, 0 keeps the dimension */
    CKPT_RULE_SLICE,     /* axis, start, stop, step */
    CKPT_RULE_INDEX,     /* axis, start: one element, without the axis */
    CKPT_RULE_FLIP,      /* axis */
    CKPT_RULE_SQUEEZE,   /* axis */
    CKPT_RULE_UNSQUEEZE, /* axis */
    CKPT_RULE_SPLIT,     /* axis, count blocks, of which `which`: equal, or list: their lengths */
    CKPT_RULE_UNSTACK, /* axis, element `which`, without the axis; count 0: as many as there are */
    CKPT_RULE_CONCAT,  /* this source, then those of `join`, along axis */
    CKPT_RULE_ZEROS,   /* list: the shape; alike: the one that the source has by then */
    CKPT_RULE_WEIGHT_NORM, /* of this source as v and the one of `join` as g: rule_merge.c */
    CKPT_RULE_LORA,        /* this source, and those of `join` as its factors; b is added up along
                              axis, if that is not CKPT_LORA_NO_SUM */
};

#define CKPT_RULE_EACH (-1) /* `which`: one target for each block or element */

/* What a concat appends: a source by its key (captures of the match put in), or zeros. */
struct ckpt_rule_join {
    struct ckpt_text key; /* .s NULL: zeros */
    const int64_t *shape; /* of zeros; NULL: as the source's by then */
    uint32_t ndim;
};

struct ckpt_rule_op {
    enum ckpt_rule_op_kind kind;
    uint32_t axis;
    int64_t start, stop, step, count, which;
    const int64_t *list;
    uint32_t n;
    bool alike;
    const struct ckpt_rule_join *join;
    uint32_t njoin;
};

struct ckpt_rule_target {
    struct ckpt_text name; /* with $1, ${name} and ${index}; .s NULL: the key as it is */
    const struct ckpt_rule_op *op;
    uint32_t nop;
    enum ckpt_dtype cast; /* NONE: keep */
    bool alias;           /* another name for what an earlier target is */
};

/* Keys that must, or must not, be there. */
struct ckpt_rule_when {
    const struct ckpt_text *exists, *absent;
    uint32_t nexists, nabsent;
    int32_t variant; /* index of one that must hold; -1: any */
};

struct ckpt_rule {
    struct ckpt_regex *match;
    const char *where;      /* "FILE: rule 3", from 1 */
    struct ckpt_text about; /* its author's words; .s NULL: none */
    const char *const *kind;
    uint32_t nkind;
    const char *const *within; /* kinds of a module: match is on the key below it */
    uint32_t nwithin;
    uint64_t ranks; /* bit per rank below 64; 0: any */
    struct ckpt_rule_when when;
    const struct ckpt_rule_target *target;
    uint32_t ntargets;
    size_t taken; /* tensors that it took, or renamed within a module, so far */
};

struct ckpt_rules {
    const char *name; /* of the file, for messages */
    bool builtin, closed;
    struct ckpt_rule *rule;
    size_t nrules;
    struct ckpt_rule_module *module; /* of a dialect's file: rule_modules.h */
    size_t nmodules;
    struct ckpt_rule_when *variant;
    struct ckpt_text *variant_name;
    uint32_t nvariants;
    int32_t settled; /* the variant that the dialect found; -1: each rule asks the keys */
    struct ckpt_arena arena;
};

/* name begins messages and is copied. */
int ckpt_rules_parse(const char *text, size_t n, const char *name, struct ckpt_rules **out,
                     struct ckpt_err *err) CKPT_CHECKED;
int ckpt_rules_load(const char *path, struct ckpt_rules **out, struct ckpt_err *err) CKPT_CHECKED;
/* A file that is built in: "burn-store", "burn-nn". */
int ckpt_rules_builtin(const char *name, struct ckpt_rules **out,
                       struct ckpt_err *err) CKPT_CHECKED;
void ckpt_rules_free(struct ckpt_rules *r); /* NULL is fine */

static inline void ckpt_auto_rules(struct ckpt_rules **r) {
    ckpt_rules_free(*r);
}

/* What rules made of a source: a tensor's worth of parts, not yet cast. */
struct ckpt_shaped {
    size_t item;    /* the first source */
    const char *by; /* the rule that made it, as messages name it; NULL: none */
    struct ckpt_text key;
    uint32_t ndim;
    const int64_t *shape;
    struct ckpt_part *part;
    uint32_t nparts;
    uint64_t turns;  /* as ckpt_adapted's */
    uint32_t axis;   /* along which several parts are joined */
    const char **op; /* names for index.json, in order */
    uint32_t nops;
    enum ckpt_dtype cast;
    bool alias;
};

struct ckpt_shaped_list {
    struct ckpt_shaped *at;
    size_t n, cap;
};

/* Computes a new source from two; does nothing else, and acts before modules are looked at. */
static inline bool ckpt_rule_computes(const struct ckpt_rule *rule) {
    return rule->target[0].nop == 1 && rule->target[0].op[0].kind >= CKPT_RULE_WEIGHT_NORM;
}

/* A rule that renames what is inside a module, for the rules that follow. */
static inline bool ckpt_rule_is_within(const struct ckpt_rule *rule) {
    return rule->nwithin > 0;
}

/* Applies the build's files to the items, the first that takes a key has it; appends the results.
 */
int ckpt_rules_apply(struct ckpt_build *b, struct ckpt_shaped_list *out) CKPT_CHECKED;
/* The source as it is. */
int ckpt_shape_identity(struct ckpt_build *b, size_t item, struct ckpt_shaped *out) CKPT_CHECKED;
int ckpt_shaped_add(struct ckpt_build *b, struct ckpt_shaped_list *list,
                    const struct ckpt_shaped *shaped) CKPT_CHECKED;

/* --- between the files of the engine --- */

/* The rank of what the item is by now. */
static inline uint32_t ckpt_item_rank(const struct ckpt_item *item) {
    return item->made ? item->made->ndim : item->tensor->ndim;
}

/* The template with the groups of the rule's match on key, and ${index}, put in. */
int ckpt_rule_expand(struct ckpt_build *b, struct ckpt_rule *rule, struct ckpt_text key,
                     struct ckpt_text template, int64_t index, struct ckpt_text *out) CKPT_CHECKED;
/* The name becomes prefix and name. */
int ckpt_rule_put_before(struct ckpt_build *b, struct ckpt_text prefix,
                         struct ckpt_text *name) CKPT_CHECKED;
/* Whether a rule fits an item: 1, 0 or negative. keys: of the model's items, to their indices. */
int ckpt_rule_takes(struct ckpt_build *b, const struct ckpt_strmap *keys,
                    const struct ckpt_rules *file, struct ckpt_rule *rule,
                    const struct ckpt_item *item) CKPT_CHECKED;
/* Whether it fits the end of the item's key; prefix is what stands before that. */
int ckpt_rule_takes_below(struct ckpt_build *b, const struct ckpt_strmap *keys,
                          const struct ckpt_rules *file, struct ckpt_rule *rule,
                          const struct ckpt_item *item, struct ckpt_text below,
                          struct ckpt_text prefix) CKPT_CHECKED;
/* The same with every condition asked, for whoever wants to know why. */
struct ckpt_rule_verdict {
    bool match, kind, rank, when; /* each: it fits. when is only asked if the key matches */
    struct ckpt_text key;         /* of `when`: the first that does not hold */
    bool key_is_there;            /* though it must not be; else it is absent */
};
int ckpt_rule_judge(struct ckpt_build *b, const struct ckpt_strmap *keys,
                    const struct ckpt_rules *file, struct ckpt_rule *rule,
                    const struct ckpt_item *item, struct ckpt_rule_verdict *v) CKPT_CHECKED;
/* Renames the item as the file's `within` rules say; keys: as they are before any of them. */
int ckpt_rule_rename_within(struct ckpt_build *b, const struct ckpt_strmap *keys,
                            const struct ckpt_rules *file, struct ckpt_item *item) CKPT_CHECKED;
/* Fills keys. */
int ckpt_rule_index_keys(struct ckpt_build *b, struct ckpt_strmap *keys) CKPT_CHECKED;

/* Tensors that map= hid from the rules which would have changed them. */
struct ckpt_rule_lost {
    struct ckpt_str names;
    size_t n;
};
/* Notes an item that no rule took, if it is one. */
int ckpt_rule_note_lost(struct ckpt_build *b, const struct ckpt_strmap *keys,
                        const struct ckpt_item *item, struct ckpt_rule_lost *lost) CKPT_CHECKED;
/* Warns of the rules in a file of the user's that took no tensor. */
int ckpt_rule_warn_unused(struct ckpt_build *b, const struct ckpt_rules *file) CKPT_CHECKED;
int ckpt_rule_warn_lost(struct ckpt_build *b, const struct ckpt_rule_lost *lost) CKPT_CHECKED;

/* ${index} of a name template becomes the number. 0 or -ENOMEM. */
int ckpt_rule_put_index(struct ckpt_text text, int64_t index, struct ckpt_arena *a,
                        struct ckpt_text *out) CKPT_CHECKED;
bool ckpt_rule_has_index(struct ckpt_text text);

/* A source on its way through the operations. */
struct ckpt_piece {
    const struct ckpt_tensor *tensor; /* NULL: zeros */
    struct ckpt_view view;
    struct ckpt_view_op op[CKPT_RULE_OPS_MAX];
    uint32_t nop, ntorch; /* the first ntorch are the dialect's */
};

/* Pieces that follow one another along an axis. */
struct ckpt_pieces {
    struct ckpt_piece *at;
    size_t n, cap;
    uint32_t axis;            /* means something if there are several */
    struct ckpt_arena *arena; /* of lists that live on */
    int64_t fan;              /* blocks or elements that a split or unstack found; 1: none */
};

int ckpt_pieces_start(struct ckpt_pieces *p, const struct ckpt_tensor *t,
                      struct ckpt_err *err) CKPT_CHECKED;
/* The same with what an earlier stage made: rule_resume.c. */
int ckpt_pieces_resume(struct ckpt_pieces *p, const struct ckpt_shaped *made, enum ckpt_dtype dtype,
                       struct ckpt_err *err) CKPT_CHECKED;
int ckpt_pieces_add_zeros(struct ckpt_pieces *p, const int64_t *shape, uint32_t ndim,
                          enum ckpt_dtype dtype, struct ckpt_err *err) CKPT_CHECKED;
/* Appends another's pieces along the axis; refused unless the shapes fit. */
int ckpt_pieces_join(struct ckpt_pieces *p, const struct ckpt_pieces *more, uint32_t axis,
                     struct ckpt_err *err) CKPT_CHECKED;
/* Any operation but concat and zeros. index: which target of a fan. */
int ckpt_pieces_apply(struct ckpt_pieces *p, const struct ckpt_rule_op *op, int64_t index,
                      struct ckpt_err *err) CKPT_CHECKED;
void ckpt_pieces_fini(struct ckpt_pieces *p);
#define ckpt_auto_pieces ckpt_pieces_fini

/* The name in index.json's ops. */
const char *ckpt_rule_op_name(const struct ckpt_rule_op *op);

#endif
