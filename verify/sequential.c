/*
 * A whole module that is an nn.Sequential says itself in which order its layers run: the only class
 * of which that is known, for everything else the order of registration says nothing.
 *
 *     Sequential              "0:1.0:1.1:2"
 *       0  Conv2d
 *       1  Sequential
 *            0  BatchNorm2d
 *            1  ReLU
 *       2  Linear             (what lies below a layer is the layer's own business)
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "verify/run.h"

static bool is_sequential(const struct ckpt_module *m) {
    return ckpt_text_is(m->cls, "torch.nn.modules.container.Sequential");
}

/* The module's row is the model's root. */
static bool is_root(const struct ckpt_model *m, const struct ckpt_module *row) {
    CKPT_AUTO(str) struct ckpt_str container = {0};
    for (uint32_t i = 0; i < row->container.n; i++) {
        ckpt_str_puts(&container, i ? "." : "");
        ckpt_str_add(&container, row->container.segment[i].s, row->container.segment[i].n);
    }
    return row->parent < 0 && row->path.n == 0 && !container.failed &&
           ckpt_text_eq(ckpt_str_text(&container), m->root);
}

static int64_t find_root(const struct ckpt_model *m) {
    const struct ckpt_checkpoint *const c = m->checkpoint;
    for (size_t i = 0; i < c->nmodules; i++)
        if (is_root(m, &c->modules[i]))
            return is_sequential(&c->modules[i]) ? (int64_t)i : -1;
    return -1;
}

/* Parents come before their children, and children in their order. */
static bool runs_in_order(const struct ckpt_checkpoint *c, size_t at, size_t root) {
    const struct ckpt_module *const m = &c->modules[at];
    return at > root && m->parent >= 0 && (size_t)m->parent >= root &&
           is_sequential(&c->modules[m->parent]) &&
           ((size_t)m->parent == root || runs_in_order(c, (size_t)m->parent, root));
}

static char *write_chain(const struct ckpt_checkpoint *c, size_t root) {
    CKPT_AUTO(str) struct ckpt_str s = {0};
    for (size_t i = root + 1; i < c->nmodules; i++) {
        if (is_sequential(&c->modules[i]) || !runs_in_order(c, i, root))
            continue;
        ckpt_str_puts(&s, s.n ? ":" : "");
        ckpt_str_add(&s, c->modules[i].path.s, c->modules[i].path.n);
    }
    return s.failed || s.n == 0 ? NULL : strndup(s.s, s.n);
}

void ckpt_chain_choose(struct ckpt_verification *v) {
    const struct ckpt_verify_options *const o = v->options;
    v->chain.text = o->chain;
    if (o->chain || o->graph || o->opened || v->model->checkpoint->graph || v->model->prefix.n)
        return;
    const int64_t root = find_root(v->model);
    if (root >= 0)
        v->chain.text = v->chain.found = write_chain(v->model->checkpoint, (size_t)root);
}
