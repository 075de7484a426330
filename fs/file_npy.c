/*
 * NAME.npy: a numpy header and the tensor's bytes, for np.load(..., mmap_mode="r"). Not
 * listed, and made when somebody first asks for it. Models repeat a dozen shapes over thousands of
 * tensors, so a header is made once a dtype and shape.
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
    *header = ckpt_text_copy(&s->npy.arena, out.s, out.n);
    return header->s ? 0 : ckpt_fail_memory(err, "making a .npy file");
}

/* The map's key is dtype and shape as they lie in memory; its value points to the header's text. */
static int find_header(struct ckpt_session *s, const struct ckpt_adapted *t,
                       const struct ckpt_text **header, struct ckpt_err *err) {
    char key[1 + sizeof(int64_t) * CKPT_NDIM_MAX];
    const size_t n = 1 + sizeof(int64_t) * t->ndim;
    key[0] = (char)t->dtype;
    if (t->ndim)
        memcpy(key + 1, t->shape, n - 1);
    const size_t there = ckpt_strmap_get(&s->npy.headers, (struct ckpt_text){key, n});
    if (there != CKPT_STRMAP_ABSENT) {
        *header = (const struct ckpt_text *)(uintptr_t)there;
        return 0;
    }
    struct ckpt_text *text = ckpt_arena_alloc(&s->npy.arena, sizeof *text);
    const struct ckpt_text kept = ckpt_text_copy(&s->npy.arena, key, n);
    if (!text || !kept.s)
        return ckpt_fail_memory(err, "making a .npy file");
    const int rc = make_header(s, t, text, err);
    if (rc < 0)
        return rc;
    *header = text;
    return ckpt_strmap_add(&s->npy.headers, kept, (size_t)(uintptr_t)text, NULL) < 0
               ? ckpt_fail_memory(err, "making a .npy file")
               : 0;
}

/* With the lock held. */
static int make_file(struct ckpt_session *s, struct ckpt_vfile *tensor, struct ckpt_err *err) {
    if (atomic_load_explicit(&tensor->npy, memory_order_relaxed))
        return 0;
    const struct ckpt_text *header;
    const int rc = find_header(s, tensor->tensor, &header, err);
    if (rc < 0)
        return rc;
    struct ckpt_vfile *f = ckpt_vfile_new(&s->npy.arena, 2);
    if (!f)
        return ckpt_fail_memory(err, "making a .npy file");
    ckpt_vfile_add_bytes(f, header->s, header->n);
    ckpt_vfile_add_tensor(f, tensor->tensor);
    atomic_store_explicit(&tensor->npy, f, memory_order_release);
    return 0;
}

int ckpt_files_npy(struct ckpt_session *s, struct ckpt_vfile *tensor, struct ckpt_vfile **out,
                   struct ckpt_err *err) {
    *out = atomic_load_explicit(&tensor->npy, memory_order_acquire);
    if (*out)
        return 0;
    pthread_mutex_lock(&s->npy.mu);
    const int rc = make_file(s, tensor, err);
    pthread_mutex_unlock(&s->npy.mu);
    *out = atomic_load_explicit(&tensor->npy, memory_order_acquire);
    return rc;
}

void ckpt_files_close_npy(struct ckpt_session *s) {
    ckpt_strmap_fini(&s->npy.headers);
    ckpt_arena_fini(&s->npy.arena);
}
