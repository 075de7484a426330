/*
 * What a module is called: the last rungs of the evidence. Only asked where classes and shapes are
 * silent: a 2-D weight without a bias (Linear or Embedding), a square one with a bias (Linear or
 * Conv1D), a 1-D weight alone (RMSNorm or PReLU).
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "adapters/evidence.h"

enum weight { TABLE, VECTOR }; /* a 2-D weight without bias; a 1-D weight without bias */

static const struct name_row {
    enum weight weight;
    const char *name; /* in lower case; "*x" ends so, "x*" begins so, "*x*" holds it */
    const char *kind;
} rows[] = {
    {TABLE, "*emb", "embedding"},
    {TABLE, "*embed", "embedding"},
    {TABLE, "*embedding*", "embedding"},
    {TABLE, "embed_*", "embedding"},
    {TABLE, "wte", "embedding"},
    {TABLE, "wpe", "embedding"},
    {TABLE, "shared", "embedding"}, /* T5, BART: of encoder, decoder and head */
    {TABLE, "token_embd", "embedding"},
    {TABLE, "position_embd", "embedding"},
    {TABLE, "*norm", "norm"}, /* a LayerNorm over two dimensions, without a bias */
    {TABLE, "ln", "norm"},
    {TABLE, "lora_a*", "linear"}, /* peft's factors are Linear modules */
    {TABLE, "lora_b*", "linear"},
    {VECTOR, "*norm*", "norm"},
    {VECTOR, "ln", "norm"},
    {VECTOR, "ln_*", "norm"},
    {VECTOR, "*_ln", "norm"},
    {VECTOR, "*prelu*", "prelu"},
};

static bool matches(struct ckpt_text name, const char *row) {
    const bool open_front = row[0] == '*';
    const char *core = row + open_front;
    const size_t n = strlen(core), back = n > 0 && core[n - 1] == '*';
    char lower[64];
    if (name.n >= sizeof lower || name.n < n - back)
        return false;
    for (size_t i = 0; i < name.n; i++)
        lower[i] = (char)tolower((unsigned char)name.s[i]);
    const size_t len = n - back;
    if (open_front && back)
        return memmem(lower, name.n, core, len) != NULL;
    const char *at = open_front ? lower + name.n - len : lower;
    return (open_front || back || name.n == len) && memcmp(at, core, len) == 0;
}

struct ckpt_text ckpt_module_last_name(struct ckpt_text path) {
    const char *dot = memrchr(path.s, '.', path.n);
    const size_t skip = dot ? (size_t)(dot - path.s) + 1 : 0;
    return (struct ckpt_text){path.s + skip, path.n - skip};
}

bool ckpt_module_is_called(struct ckpt_text path, const char *word) {
    const struct ckpt_text name = ckpt_module_last_name(path);
    const size_t n = strlen(word);
    for (size_t at = 0; at + n <= name.n; at++)
        if (strncasecmp(name.s + at, word, n) == 0)
            return true;
    return false;
}

static struct ckpt_text without_last(struct ckpt_text path, struct ckpt_text last) {
    path.n = last.n < path.n ? path.n - last.n - 1 : 0;
    return path;
}

static bool is_factor(struct ckpt_text name) {
    return ckpt_text_is(name, "lora_A") || ckpt_text_is(name, "lora_B");
}

/* A number says nothing: "embed.0" is called embed; nor does the name of an adapter behind peft's
 * factors: "lora_A.default" is called lora_A. */
static struct ckpt_text telling_name(struct ckpt_text path) {
    struct ckpt_text last = ckpt_module_last_name(path);
    while (last.n > 0 && last.n < path.n) {
        const struct ckpt_text above = without_last(path, last),
                               name = ckpt_module_last_name(above);
        if (strspn(last.s, "0123456789") < last.n && !is_factor(name))
            break;
        path = above;
        last = name;
    }
    return last;
}

static bool decide(struct ckpt_decision *d, const char *kind, const char *by) {
    d->kind = d->rule_kind = kind;
    d->decided_by = by;
    return true;
}

bool ckpt_evidence_name(const struct ckpt_facts *f, bool like_conv1d, struct ckpt_decision *d) {
    const struct ckpt_tensor *w = f->leaf[CKPT_LEAF_WEIGHT], *b = f->leaf[CKPT_LEAF_BIAS];
    if (!w || w->ndim < 1 || w->ndim > 2)
        return false;
    if (b) /* the bias fits both ways, else the structure had told */
        return ckpt_facts_square(f) && b->ndim == 1 && b->shape[0] == w->shape[0] &&
               decide(d, like_conv1d ? "conv1d_hf" : "linear", "name");
    const enum weight weight = w->ndim == 2 ? TABLE : VECTOR;
    const struct ckpt_text name = telling_name(f->path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].weight == weight && matches(name, rows[i].name))
            return decide(d, rows[i].kind, "name");
    if (weight == VECTOR) /* a norm of one number would leave nothing of it */
        return w->shape[0] == 1 && decide(d, "prelu", "structure");
    return like_conv1d ? decide(d, "conv1d_hf", "name") : decide(d, "linear", "default");
}
