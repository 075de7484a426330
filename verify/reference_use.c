/*
 * Whether the reference could tell anything: a file of other names, or outputs without their input,
 * compares nothing, and must not look like a success.
 */
#include <string.h>

#include "verify/run.h"

static bool is_of_model(struct ckpt_text key) {
    return ckpt_text_starts(key, "input.") || ckpt_text_starts(key, "output.");
}

/* The key without ".0", ".1"...: the first of several inputs and the only one are told alike. */
static struct ckpt_text without_number(struct ckpt_text key) {
    size_t n = key.n;
    while (n > 0 && key.s[n - 1] >= '0' && key.s[n - 1] <= '9')
        n--;
    return n < key.n && n > 0 && key.s[n - 1] == '.' ? (struct ckpt_text){key.s, n - 1} : key;
}

/* "LAYER.input" or "LAYER.output" of a layer of the model; "input" of one that is a layer itself.
 */
static bool is_of_layer(const struct ckpt_verification *v, struct ckpt_text key) {
    static const char *const names[] = {"input", "output"};
    key = without_number(key);
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(names[i]);
        if (!ckpt_text_ends(key, names[i]))
            continue;
        const size_t path = key.n - n;
        if (path == 0 || key.s[path - 1] == '.')
            return ckpt_layers_get(&v->layers, (struct ckpt_text){key.s, path ? path - 1 : 0}) !=
                   NULL;
    }
    return false;
}

static size_t count_strangers(const struct ckpt_verification *v) {
    const struct ckpt_checkpoint *const c = v->reference.file;
    size_t strangers = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        strangers += !is_of_model(c->tensors[i].key) && !is_of_layer(v, c->tensors[i].key);
    return strangers;
}

static size_t count_outputs(const struct ckpt_verification *v) {
    const struct ckpt_checkpoint *const c = v->reference.file;
    size_t n = 0;
    for (size_t i = 0; i < c->ntensors; i++)
        n += ckpt_text_starts(c->tensors[i].key, "output.");
    return n;
}

size_t ckpt_graph_recorded(const struct ckpt_graph_result *g) {
    size_t n = 0;
    for (uint32_t i = 0; i < g->nruns; i++)
        n += strcmp(g->run[i].name, "torch-vs-recorded") == 0;
    return n;
}

/* Recorded outputs that the graph has not, or none where it ran on the record's input. */
static void note_outputs(struct ckpt_verification *v) {
    const size_t compared = ckpt_graph_recorded(&v->graph), recorded = count_outputs(v);
    if (v->graph.nruns && recorded == 0)
        ckpt_reason_set(&v->reference.reason, "it holds no output.N: the graph's outputs were not "
                                              "compared with PyTorch's");
    else if (v->graph.nruns && compared < recorded)
        ckpt_reason_set(&v->reference.reason,
                        "%zu of its %zu outputs were not compared: the graph has %u, and counts "
                        "them without None",
                        recorded - compared, recorded, v->graph.noutputs);
}

void ckpt_verify_reference(struct ckpt_verification *v) {
    struct ckpt_reference *const r = &v->reference;
    if (!r->file)
        return;
    const size_t strangers = count_strangers(v);
    const bool input = ckpt_reference_get(r, CKPT_TEXT(""), "input.0");
    const bool output = ckpt_reference_get(r, CKPT_TEXT(""), "output.0");
    if (strangers == r->file->ntensors) {
        r->status = CKPT_STATUS_TEST_FAIL;
        ckpt_reason_set(&r->reason,
                        "none of its %zu tensors is called input.N or output.N, or LAYER.input or "
                        "LAYER.output after a layer of this model: nothing was compared",
                        strangers);
    } else if (output && !input) {
        r->status = CKPT_STATUS_TEST_FAIL;
        ckpt_reason_set(&r->reason, "it holds output.0 without input.0, which it belongs to");
    } else if (v->chain.text && !output) {
        ckpt_reason_set(&r->reason, "it holds no output.0: the chain's output was not compared "
                                    "with PyTorch's");
    } else if (strangers) {
        ckpt_reason_set(&r->reason,
                        "%zu of its %zu tensors belong to no layer of this model and were not "
                        "compared",
                        strangers, r->file->ntensors);
    } else {
        note_outputs(v);
    }
}
