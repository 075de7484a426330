/* Files that are laid out when somebody asks for them. */
#include "fs/later.h"

#include <pthread.h>
#include <stdlib.h>

struct ckpt_later {
    ckpt_later_make *make;
    void *arg;
    pthread_mutex_t mu;
    struct ckpt_vfile *file; /* NULL: not yet. This and the arena are guarded by mu */
    struct ckpt_arena arena;
};

int ckpt_later_new(ckpt_later_make *make, void *arg, struct ckpt_later **out,
                   struct ckpt_err *err) {
    struct ckpt_later *l = calloc(1, sizeof *l);
    if (!l)
        return ckpt_fail_memory(err, "building the tree");
    l->make = make;
    l->arg = arg;
    pthread_mutex_init(&l->mu, NULL);
    *out = l;
    return 0;
}

void ckpt_later_free(struct ckpt_later *l) {
    if (!l)
        return;
    ckpt_arena_fini(&l->arena);
    pthread_mutex_destroy(&l->mu);
    free(l);
}

int ckpt_later_file(struct ckpt_later *l, struct ckpt_vfile **out, struct ckpt_err *err) {
    pthread_mutex_lock(&l->mu);
    const int rc = l->file ? 0 : l->make(l->arg, &l->arena, &l->file, err);
    *out = l->file;
    pthread_mutex_unlock(&l->mu);
    return rc;
}
