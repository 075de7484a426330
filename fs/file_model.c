/*
 * The model in one file, as each format has it: a header of ours, then the model's tensors in the
 * checkpoint's order.
 *
 *     model.safetensors   | length | JSON, padded        | tensor | tensor | ...
 *     model.bpk           | head | CBOR | 0...           | tensor | 0... | tensor | ...
 *
 * model_offset[i] is where tensor i begins in model.safetensors.
 */
#include "fs/files.h"

#include <string.h>

#include "adapters/recorded_kinds.h"
#include "base/cleanup.h"
#include "formats/burnpack_write.h"
#include "formats/safetensors_write.h"
#include "fs/layout_name.h"

#define LAYOUT_KEY "mount.ckpt.layout"

struct container {
    const char *name;
    const char *format; /* in its metadata */
    bool has_padding;   /* tensors are aligned */
    bool (*can_hold)(enum ckpt_dtype t);
    int (*write_header)(struct ckpt_str *out, struct ckpt_header_item *items, size_t n,
                        const struct ckpt_pair *metadata, size_t nmetadata, struct ckpt_err *err);
};

static const struct container safetensors = {"model.safetensors", "pt", false, ckpt_st_can_hold,
                                             ckpt_st_write_header};
static const struct container burnpack = {"model.bpk", "burnpack", true, ckpt_bpk_can_hold,
                                          ckpt_bpk_write_header};

static int fail_memory(const struct container *c, struct ckpt_err *err) {
    return ckpt_fail(err, -ENOMEM, "out of memory writing %s", c->name);
}

static bool belongs(const struct container *c, const struct ckpt_adapted *t) {
    return ckpt_adapted_is_stored(t) && c->can_hold(t->dtype);
}

/* The source's record of kinds is about burn's names: true of them, and of nothing else. */
static bool keeps_kinds(const struct ckpt_model *m) {
    return m->layout == CKPT_LAYOUT_SOURCE ||
           (m->layout == CKPT_LAYOUT_BURN && ckpt_model_is_burn(m));
}

/* Second names, as safetensors.torch.save_model tells of them: name -> the one that is stored. */
static size_t collect_aliases(const struct ckpt_model *m, struct ckpt_pair *pair) {
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        if (m->tensor[i].alias && m->tensor[i].ntied && m->layout == CKPT_LAYOUT_TORCH)
            pair[n++] = (struct ckpt_pair){m->tensor[i].key, m->tensor[i].tied[0]};
    return n;
}

static size_t count_aliases(const struct ckpt_model *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->ntensors; i++)
        n += m->tensor[i].alias;
    return n;
}

/* Our pairs first, then the source's own but those that ours replace. With layout=source the file
 * is as it was: what it said about its layout stays true. */
static size_t collect_metadata(const struct ckpt_session *s, const struct container *to,
                               struct ckpt_pair *pair) {
    const struct ckpt_checkpoint *c = s->checkpoint;
    const struct ckpt_text layout_key = ckpt_text_of(LAYOUT_KEY);
    size_t n = 0;
    pair[n++] = (struct ckpt_pair){CKPT_TEXT("format"), ckpt_text_of(to->format)};
    pair[n++] = (struct ckpt_pair){layout_key, ckpt_text_of(ckpt_layout_name(s->model->layout))};
    if (s->model->kinds.s)
        pair[n++] = (struct ckpt_pair){CKPT_TEXT(CKPT_RECORDED_KINDS_KEY), s->model->kinds};
    n += collect_aliases(s->model, pair + n);
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

static size_t collect_items(const struct ckpt_session *s, const struct container *c,
                            struct ckpt_header_item *item) {
    size_t n = 0;
    for (size_t i = 0; i < s->model->ntensors; i++) {
        const struct ckpt_adapted *t = &s->model->tensor[i];
        if (belongs(c, t))
            item[n++] = (struct ckpt_header_item){.key = t->key,
                                                  .dtype = t->dtype,
                                                  .ndim = t->ndim,
                                                  .shape = t->shape,
                                                  .nbytes = t->nbytes};
    }
    return n;
}

/* Items for all tensors that belong, and the header in `out`, which sets their offsets. */
static int write_header(const struct ckpt_session *s, const struct container *c,
                        struct ckpt_header_item **items, struct ckpt_str *out,
                        struct ckpt_err *err) {
    *items = calloc(s->model->ntensors + 1, sizeof **items);
    CKPT_AUTO(free)
    struct ckpt_pair *pair =
        calloc(s->checkpoint->nmetadata + count_aliases(s->model) + 3, sizeof *pair);
    if (!*items || !pair)
        return fail_memory(c, err);
    const size_t npairs = collect_metadata(s, c, pair), n = collect_items(s, c, *items);
    return c->write_header(out, *items, n, pair, npairs, err);
}

/* For readers: nothing of a header is kept but its length. */
static int write_again(const struct ckpt_session *s, const struct container *c,
                       struct ckpt_str *out, struct ckpt_err *err) {
    CKPT_AUTO(free) struct ckpt_header_item *items = NULL;
    return write_header(s, c, &items, out, err);
}

static int write_safetensors(const void *session, struct ckpt_str *out, struct ckpt_err *err) {
    return write_again(session, &safetensors, out, err);
}

static int write_burnpack(const void *session, struct ckpt_str *out, struct ckpt_err *err) {
    return write_again(session, &burnpack, out, err);
}

/* The tensors behind the header, each at its offset. offset, unless NULL, gets those of all of the
 * model. */
static void add_tensors(const struct ckpt_session *s, const struct container *c,
                        const struct ckpt_header_item *item, uint64_t *offset,
                        struct ckpt_vfile *f) {
    for (size_t i = 0; i < s->model->ntensors; i++) {
        const struct ckpt_adapted *t = &s->model->tensor[i];
        const bool is_in = belongs(c, t);
        if (offset)
            offset[i] = is_in ? item->offset : CKPT_NO_OFFSET;
        if (!is_in)
            continue;
        ckpt_vfile_add_zeros(f, item->offset - ckpt_vfile_size(f));
        ckpt_vfile_add_tensor(f, t);
        item++;
    }
}

/* The file in the arena, with the header that `head` makes again for its readers. */
static int lay_out(const struct ckpt_session *s, const struct container *c, struct ckpt_made *head,
                   struct ckpt_arena *a, uint64_t *offset, struct ckpt_vfile **f,
                   struct ckpt_err *err) {
    CKPT_AUTO(free) struct ckpt_header_item *items = NULL;
    CKPT_AUTO(str) struct ckpt_str header = {.sink = ckpt_str_forget};
    const uint32_t n = (uint32_t)s->model->ntensors;
    const int rc = write_header(s, c, &items, &header, err);
    if (rc < 0)
        return rc;
    *f = ckpt_vfile_new(a, c->has_padding ? 2 * n + 1 : n + 1);
    if (!*f)
        return fail_memory(c, err);
    ckpt_vfile_add_made(*f, head, ckpt_str_total(&header));
    add_tensors(s, c, items, offset, *f);
    return 0;
}

/* --- model.safetensors ------------------------------------------------------------------------ */

static int add_safetensors(struct ckpt_session *s, struct ckpt_err *err) {
    uint32_t node;
    int rc = ckpt_made_new(&s->made, write_safetensors, s, err);
    s->model_offset = ckpt_arena_array(&s->arena, s->model->ntensors, sizeof *s->model_offset);
    if (rc == 0 && !s->model_offset)
        rc = fail_memory(&safetensors, err);
    if (rc == 0)
        rc = lay_out(s, &safetensors, s->made, &s->arena, s->model_offset, &s->model_file, err);
    return rc ? rc
              : ckpt_session_add_file(s, CKPT_TREE_ROOT, ckpt_text_of(safetensors.name),
                                      s->model_file, false, &node, err);
}

/* --- model.bpk -------------------------------------------------------------------------------- */

static int lay_out_burnpack(void *session, struct ckpt_arena *a, struct ckpt_vfile **out,
                            struct ckpt_err *err) {
    const struct ckpt_session *s = session;
    return lay_out(s, &burnpack, s->burnpack_head, a, NULL, out, err);
}

static int add_burnpack(struct ckpt_session *s, struct ckpt_err *err) {
    uint32_t node;
    int rc = ckpt_made_new(&s->made, write_burnpack, s, err);
    s->burnpack_head = s->made;
    if (rc == 0)
        rc = ckpt_later_new(lay_out_burnpack, s, &s->burnpack, err);
    struct ckpt_vfile *f = rc ? NULL : ckpt_vfile_later(&s->arena, s->burnpack);
    if (rc == 0 && !f)
        rc = fail_memory(&burnpack, err);
    return rc ? rc
              : ckpt_session_add_file(s, CKPT_TREE_ROOT, ckpt_text_of(burnpack.name), f, true,
                                      &node, err);
}

/* What burn's reader will refuse, or will not find in it. */
static int note_limits(struct ckpt_session *s, struct ckpt_err *err) {
    const struct ckpt_model *m = s->model;
    const struct ckpt_adapted *odd = NULL, *large = NULL;
    size_t n = 0, nodd = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *t = &m->tensor[i];
        const bool is_odd = ckpt_adapted_is_stored(t) && !belongs(&burnpack, t);
        odd = is_odd && !odd ? t : odd;
        nodd += is_odd;
        if (!belongs(&burnpack, t))
            continue;
        n++;
        bytes += t->nbytes;
        large = t->nbytes > CKPT_LIMIT_BURNPACK_TENSOR_BYTES ? t : large;
    }
    int rc = 0;
    if (odd)
        rc = ckpt_session_note(
            s, err, "model.bpk: %zu tensors of dtypes that burn lacks, %s '%.*s'%s", nodd,
            ckpt_dtype_info(odd->dtype)->name, CKPT_TEXT_ARGS(odd->key), nodd > 1 ? "..." : "");
    if (rc == 0 &&
        (large || n > CKPT_LIMIT_BURNPACK_TENSORS || bytes > CKPT_LIMIT_BURNPACK_FILE_BYTES))
        rc = ckpt_session_note(s, err,
                               "model.bpk: beyond what burn's reader takes (%u tensors, 10 GiB of "
                               "one, 100 GiB of all)%s%.*s",
                               CKPT_LIMIT_BURNPACK_TENSORS, large ? ": " : "",
                               large ? (int)large->key.n : 0, large ? large->key.s : "");
    return rc;
}

int ckpt_files_add_model(struct ckpt_session *s, struct ckpt_err *err) {
    int rc = add_safetensors(s, err);
    if (rc == 0)
        rc = add_burnpack(s, err);
    return rc ? rc : note_limits(s, err);
}
