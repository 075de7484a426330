/* --cat: one file of the tree on stdout, without FUSE. */
#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/dentry.h"
#include "fs/files.h"

#define PIECE (4u << 20) /* about a band: written while the next is prefetched */

/* Comparing names is quadratic in their length: enough of them to find a typing error. */
#define CANDIDATES_MAX 2000

/* The path of each file, and of NAME.npy beside a tensor's. */
static size_t list_files(const struct ckpt_tree *t, const char *above, struct ckpt_arena *a,
                         struct ckpt_text *out, size_t n) {
    for (uint32_t i = 0; i < t->n && n < CANDIDATES_MAX; i++) {
        CKPT_AUTO(str) struct ckpt_str path = {0};
        if (!t->node[i].file)
            continue;
        ckpt_str_puts(&path, above);
        ckpt_tree_path(t, i, &path);
        for (int npy = 0; npy < 2 && n < CANDIDATES_MAX; npy++) {
            if (npy && !ckpt_tree_has_npy(&t->node[i]))
                break;
            ckpt_str_puts(&path, npy ? ".npy" : "");
            out[n] = ckpt_text_copy(a, ckpt_str_text(&path).s, path.n);
            n += out[n].s != NULL;
        }
    }
    return n;
}

static int fail_absent(struct ckpt_session *s, const char *path, struct ckpt_err *err) {
    struct ckpt_text candidate[CANDIDATES_MAX];
    CKPT_AUTO(arena) struct ckpt_arena arena = {0};
    size_t n = list_files(&s->tree, "", &arena, candidate, 0);
    if (ckpt_files_source_is_open(s))
        n = list_files(&s->below_source.tree, ".source/", &arena, candidate, n);
    const int near = ckpt_text_nearest(ckpt_text_of(path), candidate, n);
    if (near < 0)
        return ckpt_fail(err, -ENOENT,
                         "there is no file %s in the tree: --inspect --json lists them", path);
    return ckpt_fail(err, -ENOENT, "there is no file %s in the tree: did you mean %.*s?", path,
                     CKPT_TEXT_ARGS(candidate[near]));
}

static int find(struct ckpt_session *s, const char *path, struct ckpt_vfile **file,
                struct ckpt_err *err) {
    struct ckpt_dentry e;
    int rc = ckpt_dentry_find(s, path, &e, err);
    if (rc == 0 && !e.tree)
        return fail_absent(s, path, err);
    if (rc == 0)
        rc = ckpt_dentry_file(s, e, file, err);
    if (rc == 0 && !*file)
        rc = ckpt_fail(err, -EISDIR, "%s is a folder of the tree", path);
    return rc;
}

static int copy(struct ckpt_session *s, struct ckpt_vfile *f, struct ckpt_err *err) {
    uint64_t size;
    const int measured = ckpt_vfile_measure(f, &size, err);
    if (measured < 0)
        return measured;
    for (uint64_t off = 0; off < size; off += PIECE) {
        const uint64_t left = size - off;
        const int rc = ckpt_vfile_write(f, s->reader, off, left < PIECE ? (size_t)left : PIECE,
                                        STDOUT_FILENO, err);
        if (rc < 0)
            return rc;
    }
    return CKPT_EXIT_OK;
}

int ckpt_cmd_cat(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    struct ckpt_vfile *file = NULL;
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = find(s, c->path, &file, err);
    if (rc == 0)
        rc = ckpt_session_start(s, true, err);
    if (rc == 0)
        rc = ckpt_vfile_open(file, err);
    if (rc < 0)
        return rc;
    rc = copy(s, file, err);
    ckpt_vfile_close(file);
    return rc;
}
