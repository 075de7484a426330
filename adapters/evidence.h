#ifndef CKPT_ADAPTERS_EVIDENCE_H
#define CKPT_ADAPTERS_EVIDENCE_H
/*
 * What is a module? burn's adapter asks the target model; we find out from the file. Evidence,
 * strongest first, decides:
 *
 *     "option"     -o kind=REGEX=>KIND on the module's path
 *     "graph"      what torch.export saw: the operations on its tensors, the classes it ran in
 *     "class"      its class in a whole-module pickle
 *     "structure"  its tensors: which there are, their ranks and lengths
 *     "name"       what it is called; and where shapes could not tell, what is usual
 *     "default"    nothing: a 2-D weight alone is taken for a Linear's
 *
 * Each rung is a table (evidence_graph.c, evidence_class.c, evidence_structure.c, evidence_name.c)
 * whose first row that holds decides. Decisions on the last two rungs are warnings where something
 * depends on them.
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
    CKPT_LEAF_COUNT
};

/* How near the operation was to the module whose parameter it took. */
enum ckpt_use_rank { CKPT_USE_NONE, CKPT_USE_FAR, CKPT_USE_ABOVE, CKPT_USE_OWN };

/* What the operations of a graph prove of a module; no kind: nothing, or contradictory things. */
struct ckpt_use {
    const char *kind, *rule_kind;
    enum ckpt_use_rank rank;
};

struct ckpt_facts {
    struct ckpt_text path; /* the module's, in PyTorch's names: what stands before the leaf */
    const struct ckpt_tensor *leaf[CKPT_LEAF_COUNT];
    const struct ckpt_module *record; /* of the module that registered the tensors; may be NULL */
    struct ckpt_use use;              /* in the graph, if there is one */
    struct ckpt_text graph_class;     /* what the graph says its class is; empty: nothing */
};

struct ckpt_decision {
    const char *kind;       /* of ckpt_kind_names, or NULL: unknown */
    const char *rule_kind;  /* what the rules match; `kind` but for instance norms */
    const char *decided_by; /* NULL: nothing decided */
    const struct ckpt_facts *facts;
};

/* The kinds that -o kind= takes, NULL-terminated. */
extern const char *const ckpt_kind_names[];
/* The entry of ckpt_kind_names, or NULL. */
const char *ckpt_kind_by_name(struct ckpt_text name);

/* Each sets kind, rule_kind and decided_by if it can tell, and returns whether it could. */
bool ckpt_evidence_graph(const struct ckpt_facts *f, struct ckpt_decision *d);
bool ckpt_evidence_class(const struct ckpt_facts *f, struct ckpt_decision *d);
bool ckpt_evidence_structure(const struct ckpt_facts *f, struct ckpt_decision *d);
/* A module with the same last name is known to be a Conv1D: like_conv1d. */
bool ckpt_evidence_name(const struct ckpt_facts *f, bool like_conv1d, struct ckpt_decision *d);

/* Sets kind and rule_kind by a class's full name, if it is one that we know. */
bool ckpt_kind_of_class(struct ckpt_text cls, struct ckpt_decision *d);
/* Fills use and graph_class of the facts, which by_path finds by their paths. A graph of another
 * model is a warning. 0 or negative. */
struct ckpt_build;
int ckpt_survey_graph(struct ckpt_build *b, const struct ckpt_graph *g, struct ckpt_facts *facts,
                      const struct ckpt_strmap *by_path) CKPT_CHECKED;

/* The module's last name: "fc1" of "net.fc1". */
struct ckpt_text ckpt_module_last_name(struct ckpt_text path);
/* A square 2-D weight: no shape can show that it was transposed, or was not. */
bool ckpt_facts_square(const struct ckpt_facts *f);

#endif
