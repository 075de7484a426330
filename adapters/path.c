/*
 * Where a tensor's file lies below the mount.
 *
 *     in the model     the root's container segments, then the adapted key's dotted parts
 *     outside          its own container segments, then the dotted parts of its last one
 */
#include <errno.h>
#include <string.h>

#include "adapters/build.h"

static size_t count_parts(struct ckpt_text key) {
    size_t n = 1;
    for (size_t i = 0; i < key.n; i++)
        n += key.s[i] == '.';
    return n;
}

static uint32_t split(struct ckpt_text key, struct ckpt_text *out) {
    uint32_t n = 0;
    for (size_t begin = 0, end; begin <= key.n; begin = end + 1) {
        const char *dot = memchr(key.s + begin, '.', key.n - begin);
        end = dot ? (size_t)(dot - key.s) : key.n;
        out[n++] = (struct ckpt_text){key.s + begin, end - begin};
    }
    return n;
}

/* keep: whole segments of the source's path; then each of texts, split at its dots. */
static int lay_out(struct ckpt_build *b, struct ckpt_adapted *t, uint32_t keep,
                   struct ckpt_text middle, struct ckpt_text last) {
    const size_t most = keep + (middle.n ? count_parts(middle) : 0) + count_parts(last);
    struct ckpt_text *segment = ckpt_arena_array(&b->model->arena, most, sizeof *segment);
    if (!segment)
        return ckpt_fail_memory(b->err, "laying out the tree");
    uint32_t n = 0;
    for (; n < keep; n++)
        segment[n] = t->source->path.segment[n];
    if (middle.n)
        n += split(middle, segment + n);
    n += split(last, segment + n);
    t->path = (struct ckpt_path){.segment = segment, .n = n};
    return 0;
}

/* What the root takes of a dotted key beyond its whole container segments: "encoder" of the one
 * segment "encoder.fc1.weight". */
static struct ckpt_text rest_of_root(const struct ckpt_path *p, uint32_t keep,
                                     struct ckpt_text root) {
    size_t used = 0;
    for (uint32_t i = 0; i < keep; i++)
        used += p->segment[i].n + 1;
    return used < root.n ? (struct ckpt_text){root.s + used, root.n - used} : CKPT_TEXT("");
}

/* The whole segments that the root takes of this path; it may end inside one. */
static uint32_t whole_segments(const struct ckpt_path *p, struct ckpt_text root) {
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        n += p->segment[i].n + (i ? 1 : 0);
        if (n > root.n || root.n == 0)
            return i;
    }
    return p->n;
}

int ckpt_lay_out_paths(struct ckpt_build *b) {
    const struct ckpt_text none = CKPT_TEXT(""), root = b->model->root;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < b->model->ntensors; i++) {
        struct ckpt_adapted *t = &b->model->tensor[i];
        const struct ckpt_path *p = &t->source->path;
        if (t->in_model) {
            const uint32_t keep = whole_segments(p, root);
            rc = lay_out(b, t, keep, rest_of_root(p, keep, root), t->key);
        } else if (p->n > 0) {
            rc = lay_out(b, t, p->n - 1, none, p->segment[p->n - 1]);
        } else {
            rc = lay_out(b, t, 0, none, t->key);
        }
    }
    return rc;
}
