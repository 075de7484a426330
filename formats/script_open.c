/*
 * The graph of a TorchScript archive (torch.jit.save):
 *
 *     ROOT/data.pkl          the module's objects: which class, which tensors, which flags
 *     ROOT/code/ **.py       the classes' methods            ──► script_machine.h
 *     ROOT/constants.pkl     tensors that stand in the code
 *
 * Tensors that the graph uses and the state dict lacks are kept in graph->constants.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/checkpoint.h"
#include "formats/decoded_cache.h"
#include "formats/limits.h"
#include "formats/script_machine.h"
#include "formats/torch.h"
#include "formats/torch_script.h"

struct archive {
    const struct ckpt_zip *zip;
    struct ckpt_text folder;
    struct torch_reader data, constants; /* of data.pkl, of constants.pkl */
    uint64_t code_bytes;                 /* inflated so far */
    struct script_machine machine;
};

static void archive_fini(struct archive *x) {
    torch_reader_fini(&x->data);
    torch_reader_fini(&x->constants);
    script_machine_fini(&x->machine);
}
CKPT_DEFINE_AUTO(archive, struct archive, archive_fini)

/* script_read_fn: ROOT/code/__torch__/net.py */
static int read_source(void *user, struct ckpt_text module, struct ckpt_text *name,
                       struct ckpt_text *text, struct ckpt_err *err) {
    struct archive *const x = user;
    struct ckpt_arena *const a = &x->machine.arena;
    const struct ckpt_zip_entry *const e = torch_script_source(x->zip, x->folder, module, a);
    if (!e)
        return 0;
    if (e->size > CKPT_LIMIT_CODE_BYTES - x->code_bytes)
        return ckpt_fail(err, -E2BIG,
                         "more than %u bytes of TorchScript code (limit of code bytes)",
                         CKPT_LIMIT_CODE_BYTES);
    x->code_bytes += e->size;
    *name = (struct ckpt_text){e->name.s + x->folder.n + 1, e->name.n - x->folder.n - 1};
    return ckpt_zip_read(x->zip, e, CKPT_LIMIT_CODE_BYTES, a, text, err);
}

/* script_machine.keep */
static int keep_constant(void *user, struct ckpt_text name, const struct ckpt_value *tensor,
                         struct ckpt_err *err) {
    struct archive *const x = user;
    struct ckpt_arena *const a = &x->data.c->arena;
    struct ckpt_text *const segment = ckpt_arena_alloc(a, sizeof *segment);
    if (segment)
        *segment = ckpt_text_copy(a, name.s, name.n);
    if (!segment || !segment->s)
        return ckpt_fail_memory(err, "listing constants");
    return torch_tensor_add(&x->data, (struct ckpt_path){.segment = segment, .n = 1},
                            tensor->format, -1, err);
}

static int read_pickles(struct archive *x, struct ckpt_value **root, struct ckpt_err *err) {
    struct ckpt_value *constants = NULL;
    int rc = torch_zip_pickle(&x->data, x->zip, x->folder, "data", root, err);
    if (rc == 0)
        rc = torch_zip_pickle(&x->constants, x->zip, x->folder, "constants", &constants, err);
    x->machine.constants = constants;
    return rc;
}

static int follow(struct archive *x, struct ckpt_graph *g, struct ckpt_err *err) {
    struct script_machine *const m = &x->machine;
    struct ckpt_value *root;
    const int rc = read_pickles(x, &root, err);
    if (rc)
        return rc;
    m->err = err;
    m->user = x;
    m->keep = keep_constant;
    m->graph.graph = g;
    m->graph.err = err;
    m->source =
        (struct script_source){.read = read_source, .user = x, .arena = &m->arena, .err = err};
    return script_run(m, root);
}

/* Of what the pickles hold, the graph's own tensors stay. */
static struct ckpt_checkpoint *new_holder(struct ckpt_err *err) {
    struct ckpt_checkpoint *const c = calloc(1, sizeof *c);
    if (c && ckpt_decoded_cache_new(CKPT_DECODED_DEFAULT, &c->decoded, err) == 0) {
        c->owns_decoded = true;
        c->name = c->format = "";
        return c;
    }
    free(c);
    ckpt_fail_memory(err, "reading a graph");
    return NULL;
}

bool ckpt_graph_script_root(const struct ckpt_zip *zip, struct ckpt_text *root) {
    static const char mark[] = "constants.pkl";
    for (size_t i = 0; i < zip->nentries; i++) {
        const struct ckpt_text name = zip->entry[i].name;
        const size_t n = name.n - (sizeof mark - 1);
        if (!ckpt_text_ends(name, mark) || n < 2 || memchr(name.s, '/', n) != name.s + n - 1)
            continue;
        *root = (struct ckpt_text){name.s, n};
        return true;
    }
    return false;
}

int ckpt_graph_of_script(const struct ckpt_zip *zip, struct ckpt_text root, struct ckpt_graph **out,
                         struct ckpt_err *err) {
    static const struct ckpt_open_options options = {.keep_going = true};
    CKPT_AUTO(graph) struct ckpt_graph *g = calloc(1, sizeof *g);
    CKPT_AUTO(archive) struct archive x = {.zip = zip, .folder = {root.s, root.n - 1}};
    *out = NULL;
    if (!g)
        return ckpt_fail_memory(err, "reading a graph");
    g->arena.limit = CKPT_LIMIT_GRAPH_ARENA;
    g->torch_version = CKPT_TEXT("");
    g->constants = new_holder(err);
    if (!g->constants)
        return -ENOMEM;
    x.data = x.constants = (struct torch_reader){.c = g->constants, .options = &options};
    const int rc = follow(&x, g, err);
    if (rc)
        return rc;
    if (g->constants->ntensors + g->constants->nunsupported == 0) {
        ckpt_checkpoint_close(g->constants);
        g->constants = NULL;
    }
    *out = CKPT_STEAL(g);
    return 0;
}
