/*
 * model.safetensors: a header of ours, then the model's tensors in the checkpoint's order.
 *
 *     | length | JSON, padded | tensor | tensor | ...       model_offset[i] is where tensor i
 * begins
 */
#include "fs/files.h"

#include <string.h>

#include "adapters/recorded_kinds.h"
#include "base/cleanup.h"
#include "formats/safetensors_write.h"
#include "fs/layout_name.h"

#define LAYOUT_KEY "mount.ckpt.layout"

static bool belongs(const struct ckpt_adapted *t) {
    return t->in_model && ckpt_st_can_hold(t->dtype);
}

/* The source's record of kinds is about burn's names: true of them, and of nothing else. */
static bool keeps_kinds(const struct ckpt_model *m) {
    return m->layout == CKPT_LAYOUT_SOURCE ||
           (m->layout == CKPT_LAYOUT_BURN && strcmp(m->dialect, "burn") == 0);
}

/* Our pairs first, then the source's own but those that ours replace. With layout=source the file
 * is as it was: what it said about its layout stays true. */
static size_t collect_metadata(const struct ckpt_session *s, struct ckpt_pair *pair) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    const struct ckpt_text layout_key = ckpt_text_of(LAYOUT_KEY);
    size_t n = 0;
    pair[n++] = (struct ckpt_pair){CKPT_TEXT("format"), CKPT_TEXT("pt")};
    pair[n++] = (struct ckpt_pair){layout_key, ckpt_text_of(ckpt_layout_name(s->model->layout))};
    if (s->model->kinds.s)
        pair[n++] = (struct ckpt_pair){CKPT_TEXT(CKPT_RECORDED_KINDS_KEY), s->model->kinds};
    for (size_t i = 0; i < c->nmetadata; i++) {
        const struct ckpt_pair *own = &c->metadata[i];
        if (ckpt_text_is(own->key, CKPT_RECORDED_KINDS_KEY) && !keeps_kinds(s->model))
            continue;
        if (ckpt_text_eq(own->key, layout_key) && s->model->layout == CKPT_LAYOUT_SOURCE)
            pair[1].value = own->value;
        else if (!ckpt_text_is(own->key, "format") && !ckpt_text_eq(own->key, layout_key))
            pair[n++] = *own;
    }
    return n;
}

static size_t collect_items(const struct ckpt_session *s, struct ckpt_st_item *item) {
    size_t n = 0;
    for (size_t i = 0; i < s->model->ntensors; i++) {
        const struct ckpt_adapted *t = &s->model->tensor[i];
        if (belongs(t))
            item[n++] = (struct ckpt_st_item){.key = t->key,
                                              .dtype = t->dtype,
                                              .ndim = t->ndim,
                                              .shape = t->shape,
                                              .nbytes = t->nbytes};
    }
    return n;
}

static void add_tensors(struct ckpt_session *s, const struct ckpt_st_item *item,
                        struct ckpt_vfile *f) {
    for (size_t i = 0, k = 0; i < s->model->ntensors; i++) {
        const struct ckpt_adapted *t = &s->model->tensor[i];
        s->model_offset[i] = belongs(t) ? item[k++].offset : CKPT_NO_OFFSET;
        if (belongs(t))
            ckpt_vfile_add_tensor(f, t);
    }
}

static int write_header(const struct ckpt_session *s, struct ckpt_st_item *item, size_t n,
                        struct ckpt_str *out, struct ckpt_err *err) {
    CKPT_AUTO(free)
    struct ckpt_pair *pair = calloc(s->checkpoint->nmetadata + 3, sizeof *pair);
    if (!pair)
        return ckpt_fail_memory(err, "writing model.safetensors");
    const size_t npairs = collect_metadata(s, pair);
    return ckpt_st_write_header(out, item, n, pair, npairs, err);
}

static struct ckpt_st_item *new_items(const struct ckpt_session *s) {
    return calloc(s->model->ntensors + 1, sizeof(struct ckpt_st_item));
}

/* For readers: nothing of the header is kept but its length. */
static int write_again(const void *session, struct ckpt_str *out, struct ckpt_err *err) {
    const struct ckpt_session *s = session;
    CKPT_AUTO(free) struct ckpt_st_item *item = new_items(s);
    if (!item)
        return ckpt_fail_memory(err, "writing model.safetensors");
    return write_header(s, item, collect_items(s, item), out, err);
}

int ckpt_files_add_model(struct ckpt_session *s, struct ckpt_err *err) {
    const size_t most = s->model->ntensors;
    CKPT_AUTO(free) struct ckpt_st_item *item = new_items(s);
    CKPT_AUTO(str) struct ckpt_str header = {.sink = ckpt_str_forget};
    s->model_offset = ckpt_arena_array(&s->arena, most, sizeof *s->model_offset);
    s->model_file = ckpt_vfile_new(&s->arena, (uint32_t)most + 1);
    if (!item || !s->model_offset || !s->model_file)
        return ckpt_fail_memory(err, "writing model.safetensors");
    int rc = write_header(s, item, collect_items(s, item), &header, err);
    if (rc == 0)
        rc = ckpt_made_new(&s->made, write_again, s, err);
    if (rc < 0)
        return rc;
    ckpt_vfile_add_made(s->model_file, s->made, ckpt_str_total(&header));
    add_tensors(s, item, s->model_file);
    uint32_t node;
    return ckpt_session_add_file(s, CKPT_TREE_ROOT, CKPT_TEXT("model.safetensors"), s->model_file,
                                 false, &node, err);
}
