/* NAME.npy: a numpy header and the tensor's bytes, for np.load(..., mmap_mode="r"). Not listed. */
#include "fs/files.h"

#include "base/cleanup.h"
#include "formats/npy_write.h"

int ckpt_files_add_npy(struct ckpt_session *s, const struct ckpt_adapted *t, uint32_t tensor_node,
                       struct ckpt_err *err) {
    if (!ckpt_dtype_info(t->dtype)->numpy)
        return 0;
    CKPT_AUTO(str) struct ckpt_str header = {0}, name = {0};
    int rc = ckpt_npy_write_header(&header, t->dtype, t->shape, t->ndim, err);
    if (rc < 0)
        return rc;
    const struct ckpt_node *node = &s->tree.node[tensor_node];
    ckpt_str_add(&name, node->name.s, node->name.n);
    ckpt_str_puts(&name, ".npy");
    const struct ckpt_text text = ckpt_text_copy(&s->arena, ckpt_str_text(&header).s, header.n);
    struct ckpt_vfile *f = ckpt_vfile_new(&s->arena, 2);
    if (name.failed || !text.s || !f)
        return ckpt_fail_memory(err, "building the tree");
    ckpt_vfile_add_bytes(f, text.s, text.n);
    ckpt_vfile_add_tensor(f, t);
    uint32_t npy;
    return ckpt_session_add_file(s, node->parent, ckpt_str_text(&name), f, true, &npy, err);
}
