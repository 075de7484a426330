/* verify.json: the forward check, computed at first read. Its size is the report's upper bound. */
#include "fs/files.h"

static int make_report(void *arg, const atomic_bool *cancel, struct ckpt_str *out,
                       struct ckpt_err *err) {
    struct ckpt_session *s = arg;
    enum ckpt_status status;
    return ckpt_session_verify(s, cancel, out, &status, err);
}

int ckpt_files_add_verify(struct ckpt_session *s, struct ckpt_err *err) {
    const size_t size = ckpt_verify_bound(s->model, &s->verify);
    int rc = ckpt_computed_new(make_report, s, size, &s->report, err);
    if (rc < 0)
        return rc;
    struct ckpt_vfile *f = ckpt_vfile_computed(&s->arena, s->report);
    uint32_t node;
    return f ? ckpt_session_add_file(s, CKPT_TREE_ROOT, CKPT_TEXT("verify.json"), f, false, &node,
                                     err)
             : ckpt_fail_memory(err, "building the tree");
}
