/* --cat: one file of the tree on stdout, without FUSE. */
#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/session.h"

#define PIECE (4u << 20) /* about a band: written while the next is prefetched */

/* Comparing names is quadratic in their length: enough of them to find a typing error. */
#define CANDIDATES_MAX 2000

static int fail_absent(const struct ckpt_session *s, const char *path, struct ckpt_err *err) {
    struct ckpt_text candidate[CANDIDATES_MAX];
    struct ckpt_arena arena = {0};
    size_t n = 0;
    for (uint32_t i = 0; i < s->tree.n && n < CANDIDATES_MAX; i++) {
        CKPT_AUTO(str) struct ckpt_str name = {0};
        if (!s->tree.node[i].file)
            continue;
        ckpt_tree_path(&s->tree, i, &name);
        candidate[n] = ckpt_text_copy(&arena, ckpt_str_text(&name).s, name.n);
        n += candidate[n].s != NULL;
    }
    const int near = ckpt_text_nearest(ckpt_text_of(path), candidate, n);
    const int rc =
        near >= 0 ? ckpt_fail(err, -ENOENT, "there is no file %s in the tree: did you mean %.*s?",
                              path, CKPT_TEXT_ARGS(candidate[near]))
                  : ckpt_fail(err, -ENOENT,
                              "there is no file %s in the tree: --inspect --json lists them", path);
    ckpt_arena_fini(&arena);
    return rc;
}

static int find(const struct ckpt_session *s, const char *path, struct ckpt_vfile **file,
                struct ckpt_err *err) {
    const uint32_t node = ckpt_tree_find(&s->tree, path);
    if (node == CKPT_TREE_NONE)
        return fail_absent(s, path, err);
    *file = s->tree.node[node].file;
    return *file ? 0 : ckpt_fail(err, -EISDIR, "%s is a folder of the tree", path);
}

static int copy(struct ckpt_session *s, struct ckpt_vfile *f, struct ckpt_err *err) {
    for (uint64_t off = 0; off < f->size; off += PIECE) {
        const uint64_t left = f->size - off;
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
