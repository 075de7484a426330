#ifndef CKPT_ADAPTERS_EVIDENCE_H
#define CKPT_ADAPTERS_EVIDENCE_H
/*
 * What is a module? burn's adapter asks the target model; we find out from the file. Evidence,
 * strongest first, decides:
 *
 *     "option"     -o kind=REGEX=>KIND on the module's path
 *     "dialect"    the dialect's file: a model of that kind has it there
 *     "graph"      what torch.export saw: the operations on its tensors, the classes it ran in
 *     "class"      its class in a whole-module pickle
 *     "structure"  its tensors: which there are, their ranks and lengths
 *     "name"       what it is called; and where shapes could not tell, what is usual
 *     "default"    nothing: a 2-D weight alone is taken for a Linear's
 *
 * Each rung is a table (evidence_graph.c, evidence_class.c, evidence_structure.c, evidence_name.c)
 * whose first row that holds decides. Decisions on the last two rungs are warnings where something
 * depends on them. A module need not have tensors of its own: what a Transformer layer is decides
 * what its children are called (evidence_layer.c), so the modules that hold others are decided too:
 *
 *     layers.0                encoder_layer:pre
 *     layers.0.self_attn      mha        in_proj_weight, in_proj_bias
 *     layers.0.self_attn.out_proj  linear  weight, bias
 */
#include "base/strmap.h"
#include "base/text.h"
#include "formats/checkpoint.h"
#include "formats/graph.h"

/* What one module's tensors are, by their last name. */
enum ckpt_leaf {
    CKPT_LEAF_WEIGHT,
    CKPT_LEAF_BIAS,
    CKPT_LEAF_RUNNING_MEAN,
    CKPT_LEAF_IN_PROJ_WEIGHT,
    CKPT_LEAF_Q_PROJ_WEIGHT,
    CKPT_LEAF_K_PROJ_WEIGHT,
    CKPT_LEAF_V_PROJ_WEIGHT,
    CKPT_LEAF_WEIGHT_HH,
    CKPT_LEAF_WEIGHT_IH,
    CKPT_LEAF_WEIGHT_HR,
    CKPT_LEAF_BIAS_K,
    CKPT_LEAF_GAMMA, /* burn's names */
    CKPT_LEAF_BETA,
    CKPT_LEAF_ALPHA,
    CKPT_LEAF_KERNEL, /* flax's */
    CKPT_LEAF_SCALE,
    CKPT_LEAF_EMBEDDING,
    CKPT_LEAF_MEAN,
    CKPT_LEAF_VAR,
    CKPT_LEAF_NEGATIVE_SLOPE,
    CKPT_LEAF_LORA_A,
    CKPT_LEAF_COUNT
};

/* Children of a torch.nn.Transformer layer that hold what they should; bits of facts.children. */
enum ckpt_child {
    CKPT_CHILD_SELF_ATTN = 1,
    CKPT_CHILD_MULTIHEAD_ATTN = 2,
    CKPT_CHILD_LINEAR1 = 4,
    CKPT_CHILD_LINEAR2 = 8,
    CKPT_CHILD_NORM1 = 16,
    CKPT_CHILD_NORM2 = 32,
    CKPT_CHILD_NORM3 = 64,
};

/* Where a Transformer layer has its norms: behind its blocks, or (norm_first) before them. */
enum ckpt_norm_order { CKPT_NORM_UNKNOWN, CKPT_NORM_PRE, CKPT_NORM_POST };

#define CKPT_MODULE_LEVELS 8u /* modules looked at above the one that has a tensor */
#define CKPT_MODULE_NONE SIZE_MAX

/* How near the operation was to the module whose parameter it took. */
enum ckpt_use_rank { CKPT_USE_NONE, CKPT_USE_FAR, CKPT_USE_ABOVE, CKPT_USE_OWN };

/* What the operations of a graph prove of a module; no kind: nothing, or contradictory things. */
struct ckpt_use {
    const char *kind, *rule_kind;
    const char *op; /* the first that proved it */
    enum ckpt_use_rank rank;
};

struct ckpt_facts {
    struct ckpt_text path; /* the module's, in PyTorch's names: what stands before the leaf */
    /* dtype and shape; of what a dialect made nothing else */
    const struct ckpt_tensor *leaf[CKPT_LEAF_COUNT];
    const struct ckpt_module *record; /* of the module that registered the tensors; may be NULL */
    struct ckpt_use use;              /* in the graph, if there is one */
    struct ckpt_text graph_class;     /* what the graph says its class is; empty: nothing */
    size_t within;    /* index of the module that holds this one, or CKPT_MODULE_NONE */
    bool owns;        /* tensors of its own */
    bool stack;       /* holds `layers` of Transformer layers */
    uint8_t children; /* enum ckpt_child */
    enum ckpt_norm_order norm_order; /* as the graph has it */
    const char *made_of; /* burn: "encoder_layer", "mha", "lstm"... by its children; or NULL */
    bool list;           /* burn: of plain layers, numbered without gaps */
};

struct ckpt_decision {
    const char *kind;       /* of ckpt_kind_names, "encoder_layer" or "decoder_layer" (norm_first
                               unknown), or NULL: unknown */
    const char *rule_kind;  /* what the rules match; `kind` but for instance norms */
    const char *decided_by; /* NULL: nothing decided */
    struct ckpt_text path;  /* as in the facts; .s NULL: of no module */
    const struct ckpt_module *record;
    struct ckpt_text graph_class;
    bool adds_one;                  /* the dialect says so: a norm that multiplies by 1 + weight */
    const char *graph_kind;         /* what the operations on its tensors say; or NULL */
    const struct ckpt_facts *facts; /* only while modules are decided: they are large */
    struct ckpt_decision *within;   /* on the module that holds this one; NULL: none does */
    struct ckpt_decision *kept;     /* layout.c: the model's copy, if it has one */
};

/* All modules of the model, while they are decided. */
struct ckpt_modules {
    struct ckpt_facts *facts;       /* end with this */
    struct ckpt_decision *decision; /* of each; live as long as the items */
    size_t n;
    size_t *of_item; /* index of the module of each item in the model */
};
void ckpt_modules_fini(struct ckpt_modules *m);
#define ckpt_auto_modules ckpt_modules_fini

/* The decision on an item's module, without the facts. */
static inline void ckpt_take_decision(const struct ckpt_modules *m, size_t item,
                                      struct ckpt_decision *out) {
    *out = m->decision[m->of_item[item]];
    out->facts = NULL;
}

/* The kinds that -o kind= takes, NULL-terminated. */
extern const char *const ckpt_kind_names[];
/* The entry of ckpt_kind_names, or NULL. */
const char *ckpt_kind_by_name(struct ckpt_text name);
/* Rules know some more. */
const char *ckpt_rule_kind_by_name(struct ckpt_text name);

/* Each sets kind, rule_kind and decided_by if it can tell, and returns whether it could. */
bool ckpt_evidence_graph(const struct ckpt_facts *f, struct ckpt_decision *d);
bool ckpt_evidence_class(const struct ckpt_facts *f, struct ckpt_decision *d);
bool ckpt_evidence_structure(const struct ckpt_facts *f, struct ckpt_decision *d);
/* A module with the same last name is known to be a Conv1D: like_conv1d. */
bool ckpt_evidence_name(const struct ckpt_facts *f, bool like_conv1d, struct ckpt_decision *d);

/* Sets kind and rule_kind by a class's full name, if it is one that we know. */
bool ckpt_kind_of_class(struct ckpt_text cls, struct ckpt_decision *d);
/* -o kind=: of those that match a module's path the last one wins. What is a stack (of flax) is
 * asked before all else is. */
struct ckpt_build;
int ckpt_decide_by_options(struct ckpt_build *b, struct ckpt_modules *m, bool stacks) CKPT_CHECKED;
/* Whether -o kind= can mean this module: only what has norm1 can be a Transformer layer, ... */
bool ckpt_facts_allow(const struct ckpt_facts *f, const char *kind);

/* --- Transformer layers (evidence_layer.c) --- */

bool ckpt_is_layer(const char *kind); /* with or without a norm order */
/* "encoder_layer" or "decoder_layer" if it has that one's children, all of them; else NULL. */
const char *ckpt_layer_by_children(const struct ckpt_facts *f);
/* Fills children, by what the modules with these names hold. */
void ckpt_note_children(struct ckpt_modules *m);
/* "encoder_layer" and "decoder_layer" get their order, if the graph or the class tells. */
void ckpt_decide_norm_order(const struct ckpt_facts *f, struct ckpt_decision *d);
/* What a child is because of what holds it: out_proj of an attention is a Linear. */
bool ckpt_evidence_holder(const struct ckpt_facts *f, struct ckpt_decision *d);
/* Marks the modules whose `layers` are Transformer layers: stack. */
void ckpt_note_stacks(struct ckpt_modules *m);

/* A plain attribute of the module's record, or NULL. */
const struct ckpt_value *ckpt_facts_attribute(const struct ckpt_facts *f, const char *name);

/* --- steps --- */

/* Decides what the modules of all items are, whose keys are burn's. */
int ckpt_decide_burn_modules(struct ckpt_build *b) CKPT_CHECKED;
/* Fills facts and of_item. */
int ckpt_gather_modules(struct ckpt_build *b, struct ckpt_modules *m) CKPT_CHECKED;
/* Fills by_path with the indices of the modules. */
int ckpt_index_modules(struct ckpt_build *b, const struct ckpt_modules *m,
                       struct ckpt_strmap *by_path) CKPT_CHECKED;
/* Fills facts and within of the decisions. */
void ckpt_link_decisions(struct ckpt_modules *m);
/* Gives each item what was decided of its module. */
void ckpt_hand_over_decisions(struct ckpt_build *b, const struct ckpt_modules *m);
/* The module NAME in module i, or CKPT_MODULE_NONE. */
size_t ckpt_module_child(const struct ckpt_modules *m, const struct ckpt_strmap *by_path, size_t i,
                         const char *name);
/* One warning for each way in which burn may load something wrongly, or miss it. */
int ckpt_warn_modules(struct ckpt_build *b, const struct ckpt_modules *m) CKPT_CHECKED;
/* One for each way in which flax's arrays may be brought to PyTorch's layout wrongly, or not. */
int ckpt_warn_flax_modules(struct ckpt_build *b, const struct ckpt_modules *m) CKPT_CHECKED;
/* Fills use, norm_order and graph_class of the facts, which by_path finds by their paths. A graph
 * of another model is a warning. 0 or negative. */
int ckpt_survey_graph(struct ckpt_build *b, const struct ckpt_graph *g, struct ckpt_facts *facts,
                      const struct ckpt_strmap *by_path) CKPT_CHECKED;

/* The module's last name: "fc1" of "net.fc1". */
struct ckpt_text ckpt_module_last_name(struct ckpt_text path);
/* Whether that holds the word, in any case. */
bool ckpt_module_is_called(struct ckpt_text path, const char *word);
/* A square 2-D weight: no shape can show that it was transposed, or was not. */
bool ckpt_facts_square(const struct ckpt_facts *f);

#endif
