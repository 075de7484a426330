/*
 * NAME.npy: a numpy header and the tensor's bytes, for np.load(..., mmap_mode="r"). Not listed.
 * Models repeat a dozen shapes over thousands of tensors, so a header is made once a dtype and
 * shape.
 */
#include "fs/files.h"

#include <string.h>

#include "base/cleanup.h"
#include "formats/npy_write.h"

static int make_header(struct ckpt_session *s, const struct ckpt_adapted *t,
                       struct ckpt_text *header, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str out = {0};
    const int rc = ckpt_npy_write_header(&out, t->dtype, t->shape, t->ndim, err);
    if (rc < 0)
        return rc;
    *header = ckpt_text_copy(&s->arena, out.s, out.n);
    return header->s ? 0 : ckpt_fail_memory(err, "building the tree");
}

/* The map's key is dtype and shape as they lie in memory; its value points to the header's text. */
static int find_header(struct ckpt_session *s, const struct ckpt_adapted *t,
                       const struct ckpt_text **header, struct ckpt_err *err) {
    char key[1 + sizeof(int64_t) * CKPT_NDIM_MAX];
    const size_t n = 1 + sizeof(int64_t) * t->ndim;
    key[0] = (char)t->dtype;
    if (t->ndim)
        memcpy(key + 1, t->shape, n - 1);
    const size_t there = ckpt_strmap_get(&s->npy_headers, (struct ckpt_text){key, n});
    if (there != CKPT_STRMAP_ABSENT) {
        *header = (const struct ckpt_text *)(uintptr_t)there;
        return 0;
    }
    struct ckpt_text *text = ckpt_arena_alloc(&s->arena, sizeof *text);
    const struct ckpt_text kept = ckpt_text_copy(&s->arena, key, n);
    if (!text || !kept.s)
        return ckpt_fail_memory(err, "building the tree");
    const int rc = make_header(s, t, text, err);
    if (rc < 0)
        return rc;
    *header = text;
    return ckpt_strmap_add(&s->npy_headers, kept, (size_t)(uintptr_t)text, NULL) < 0
               ? ckpt_fail_memory(err, "building the tree")
               : 0;
}

int ckpt_files_add_npy(struct ckpt_session *s, const struct ckpt_adapted *t, uint32_t tensor_node,
                       struct ckpt_err *err) {
    if (!ckpt_dtype_info(t->dtype)->numpy)
        return 0;
    const struct ckpt_text *header;
    const int rc = find_header(s, t, &header, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(str) struct ckpt_str name = {0};
    const struct ckpt_node *node = &s->tree.node[tensor_node];
    ckpt_str_add(&name, node->name.s, node->name.n);
    ckpt_str_puts(&name, ".npy");
    struct ckpt_vfile *f = ckpt_vfile_new(&s->arena, 2);
    if (name.failed || !f)
        return ckpt_fail_memory(err, "building the tree");
    ckpt_vfile_add_bytes(f, header->s, header->n);
    ckpt_vfile_add_tensor(f, t);
    uint32_t npy;
    return ckpt_session_add_file(s, node->parent, ckpt_str_text(&name), f, true, &npy, err);
}
