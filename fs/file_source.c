/*
 * .source/: the tree unadapted, in the source's own names. Hidden, and seldom looked at; but as
 * large as all the rest together. So the folder is there from the start, and what it holds is laid
 * out when somebody first looks into it.
 */
#include "fs/files.h"

int ckpt_files_add_source(struct ckpt_session *s, struct ckpt_err *err) {
    uint32_t *folder = &s->below_source.folder;
    const int rc =
        ckpt_tree_add_folder(&s->tree, CKPT_TREE_ROOT, CKPT_TEXT(".source"), true, folder, err);
    if (rc == 0)
        ckpt_tree_list(&s->tree, *folder);
    return rc;
}

bool ckpt_files_source_is_open(struct ckpt_session *s) {
    return atomic_load_explicit(&s->below_source.is_open, memory_order_acquire);
}

static int lay_out(struct ckpt_session *s, struct ckpt_err *err) {
    struct ckpt_source_files *source = &s->below_source;
    int rc = ckpt_model_build_source(s->checkpoint, &source->model, err);
    if (rc == 0)
        rc = ckpt_tree_init(&source->tree, s->options->list_all, err);
    if (rc == 0)
        rc = ckpt_files_make_folders(&source->tree, source->model, err);
    return rc < 0 ? rc : ckpt_files_make_tensors(&source->tree, source->model, NULL, err);
}

/* After a failure the next one tries again. */
int ckpt_files_open_source(struct ckpt_session *s, struct ckpt_err *err) {
    if (ckpt_files_source_is_open(s))
        return 0;
    struct ckpt_source_files *source = &s->below_source;
    pthread_mutex_lock(&source->mu);
    int rc = 0;
    if (!ckpt_files_source_is_open(s)) {
        rc = lay_out(s, err);
        if (rc < 0)
            ckpt_files_close_source(s);
        atomic_store_explicit(&source->is_open, rc == 0, memory_order_release);
    }
    pthread_mutex_unlock(&source->mu);
    return rc < 0 ? ckpt_fail_in(err, ".source") : 0;
}

void ckpt_files_close_source(struct ckpt_session *s) {
    ckpt_tree_fini(&s->below_source.tree);
    ckpt_model_free(s->below_source.model);
    s->below_source.model = NULL;
}
