/*
 * The graph of a TorchScript archive (torch.jit.save):
 *
 *     ROOT/data.pkl          the module's objects: which class, which tensors, which flags
 *     ROOT/code/ **.py       the classes' methods            ──► script_machine.h
 *     ROOT/constants.pkl     tensors that stand in the code
 *
 * It is evidence, not content: where it can't be had, checkpoint->no_graph says why. Tensors that
 * it uses and the state dict lacks are listed in checkpoint->code, after those of the state dict:
 * what both lie on is the state dict's.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/limits.h"
#include "formats/script_machine.h"
#include "formats/torch.h"
#include "formats/torch_script.h"

struct archive {
    struct torch_script_graph *kept;
    const struct ckpt_zip *zip;
    struct ckpt_text folder;
    uint64_t code_bytes; /* inflated so far */
    struct ckpt_arena *code;
};

/* script_read_fn: ROOT/code/__torch__/net.py */
static int read_source(void *user, struct ckpt_text module, struct ckpt_text *name,
                       struct ckpt_text *text, struct ckpt_err *err) {
    struct archive *const x = user;
    const struct ckpt_zip_entry *const e = torch_script_source(x->zip, x->folder, module, x->code);
    if (!e)
        return 0;
    if (e->size > CKPT_LIMIT_CODE_BYTES - x->code_bytes)
        return ckpt_fail(err, -E2BIG,
                         "more than %u bytes of TorchScript code (limit of code bytes)",
                         CKPT_LIMIT_CODE_BYTES);
    x->code_bytes += e->size;
    *name = (struct ckpt_text){e->name.s + x->folder.n + 1, e->name.n - x->folder.n - 1};
    return ckpt_zip_read(x->zip, e, CKPT_LIMIT_CODE_BYTES, x->code, text, err);
}

/* script_machine.keep */
static int keep_constant(void *user, struct ckpt_text name, const struct ckpt_value *tensor,
                         struct ckpt_err *err) {
    const struct archive *const x = user;
    struct torch_script_graph *const g = x->kept;
    const struct ckpt_text copy = ckpt_text_copy(&g->code->arena, name.s, name.n);
    if (!copy.s || !ckpt_array_grow(&g->tensor, g->n, &g->cap, sizeof *g->tensor))
        return ckpt_fail_memory(err, "listing constants");
    g->tensor[g->n++] = (struct torch_script_tensor){copy, tensor->format};
    return 0;
}

/* Of the same kind as the checkpoint that it belongs to. */
static struct ckpt_checkpoint *new_code(const struct ckpt_checkpoint *c) {
    struct ckpt_checkpoint *const code = calloc(1, sizeof *code);
    if (code) {
        code->format = c->format;
        code->name = c->name;
        code->decoded = c->decoded;
    }
    return code;
}

static int follow(struct archive *x, const struct ckpt_value *root, struct ckpt_graph **out,
                  struct ckpt_err *err) {
    struct torch_script_graph *const g = x->kept;
    CKPT_AUTO(script_machine)
    struct script_machine m = {
        .source = {.read = read_source, .user = x}, .keep = keep_constant, .user = x, .err = err};
    struct ckpt_value *constants;
    x->code = &m.arena;
    const int rc = torch_zip_pickle(&g->reader, x->zip, x->folder, "constants",
                                    CKPT_LIMIT_SCRIPT_CONSTANTS, &constants, err);
    if (rc)
        return rc;
    m.constants = constants;
    return script_follow(&m, root, out);
}

int torch_script_graph_read(struct torch_reader *r, const struct ckpt_zip *zip,
                            struct ckpt_text folder, const struct ckpt_value *root,
                            struct torch_script_graph *g, struct ckpt_err *err) {
    static const struct ckpt_open_options options = {.keep_going = true};
    struct archive x = {.kept = g, .zip = zip, .folder = folder};
    struct ckpt_err why = {0};
    g->code = new_code(r->c);
    if (!g->code)
        return ckpt_fail_memory(err, "reading a graph");
    g->reader = (struct torch_reader){.c = g->code, .options = &options, .file = r->file};
    if (follow(&x, root, &r->c->graph, &why) == 0)
        return 0;
    struct ckpt_err *const kept = ckpt_arena_alloc(&r->c->arena, sizeof *kept);
    if (!kept)
        return ckpt_fail_memory(err, "reading a graph");
    *kept = why;
    r->c->no_graph = kept;
    return 0;
}

int torch_script_graph_keep(struct torch_reader *r, struct torch_script_graph *g,
                            struct ckpt_err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && r->c->graph && i < g->n; i++) {
        struct ckpt_text *const segment = ckpt_arena_alloc(&g->code->arena, sizeof *segment);
        if (!segment)
            return ckpt_fail_memory(err, "listing constants");
        *segment = g->tensor[i].name;
        rc = torch_tensor_add(&g->reader, (struct ckpt_path){.segment = segment, .n = 1},
                              g->tensor[i].tensor, -1, err);
    }
    if (rc == 0 && r->c->graph && g->n)
        r->c->code = CKPT_STEAL(g->code);
    return rc;
}

void torch_script_graph_fini(struct torch_script_graph *g) {
    torch_reader_fini(&g->reader);
    free(g->tensor);
    ckpt_checkpoint_close(g->code);
}
