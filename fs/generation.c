/*
 * The generation: what makes the same inode number of another mount another file. It is the
 * checksum of where the source is, when it was written, and all names, dtypes and operations of the
 * tree, so that it is the same when the same source is mounted again.
 */
#include "fs/generation.h"

#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"

static uint32_t add_text(uint32_t crc, struct ckpt_text t) {
    return ckpt_crc32c(ckpt_crc32c(crc, &t.n, sizeof t.n), t.s, t.n);
}

static uint32_t add_time(uint32_t crc, uint64_t size, struct timespec mtime) {
    const int64_t value[] = {(int64_t)size, mtime.tv_sec, mtime.tv_nsec};
    return ckpt_crc32c(crc, value, sizeof value);
}

static uint32_t add_source(uint32_t crc, const struct ckpt_session *s) {
    struct stat st;
    crc = add_text(crc, ckpt_text_of(s->source));
    if (stat(s->source, &st) == 0) /* a directory's files may be found as they are read */
        crc = add_time(crc, (uint64_t)st.st_size, st.st_mtim);
    for (size_t i = 0; i < s->checkpoint->nfiles; i++)
        crc = add_time(crc, s->checkpoint->files[i]->size, s->checkpoint->files[i]->mtime);
    return crc;
}

static uint32_t add_model(uint32_t crc, const struct ckpt_model *m) {
    for (size_t i = 0; i < m->ntensors; i++) {
        const struct ckpt_adapted *const t = &m->tensor[i];
        crc = ckpt_crc32c(crc, &t->dtype, sizeof t->dtype);
        crc = ckpt_crc32c(crc, &t->nbytes, sizeof t->nbytes);
        for (const char *const *op = t->ops; op && *op; op++)
            crc = add_text(crc, ckpt_text_of(*op));
    }
    return crc;
}

static uint32_t add_tree(uint32_t crc, const struct ckpt_tree *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        crc = ckpt_crc32c(crc, &t->node[i].parent, sizeof t->node[i].parent);
        crc = add_text(crc, t->node[i].name);
    }
    return crc;
}

uint32_t ckpt_session_generation(const struct ckpt_session *s) {
    const uint32_t crc = add_tree(add_model(add_source(0, s), s->model), &s->tree);
    return crc ? crc : 1; /* 0 is the root's */
}
