/*
 * --inspect --explain KEY: why a tensor becomes what it does. Two builds: by the first, KEY is
 * found among the names of the result, too; the second is explained while it is made. A model that
 * cannot be built is explained as far as it came: that is when one wants to know.
 */
#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/explain_show.h"
#include "fs/print.h"
#include "fs/session.h"

static void auto_model(struct ckpt_model **m) {
    ckpt_model_free(*m);
}
#define ckpt_auto_model auto_model

static int print(const struct ckpt_str *s, struct ckpt_err *err) {
    if (s->failed)
        return ckpt_fail_memory(err, "explaining");
    return ckpt_print(stdout, "stdout", s->s, s->n, err);
}

static int find(const struct ckpt_command *c, const struct ckpt_session *s,
                const struct ckpt_adapt_options *adapt, struct ckpt_explain *e, size_t *more,
                struct ckpt_err *err) {
    CKPT_AUTO(model) struct ckpt_model *model = NULL;
    struct ckpt_err ignored = {0}; /* the second build fails alike */
    struct ckpt_adapt_options all = *adapt;
    all.ninclude = all.nexclude = 0; /* of what is left out one may ask, too */
    (void)!ckpt_model_build(s->checkpoint, &all, &model, &ignored);
    return ckpt_explain_find(e, s->checkpoint, model, ckpt_text_of(c->explain), more, err);
}

int ckpt_cmd_explain(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    CKPT_AUTO(explain) struct ckpt_explain e = {0};
    CKPT_AUTO(model) struct ckpt_model *model = NULL;
    CKPT_AUTO(str) struct ckpt_str out = {0};
    struct ckpt_adapt_options adapt = c->options.adapt;
    size_t more = 0;
    int rc = ckpt_session_open_source(c->source, &c->options, &s, err);
    if (rc < 0)
        return rc;
    adapt.graph = s->graph;
    rc = find(c, s, &adapt, &e, &more, err);
    if (rc < 0)
        return rc;
    adapt.explain = &e;
    const int built = ckpt_model_build(s->checkpoint, &adapt, &model, err);
    (c->json ? ckpt_explain_json : ckpt_explain_text)(&e, model, more, &out);
    rc = print(&out, err);
    return built < 0 ? built : rc < 0 ? rc : CKPT_EXIT_OK;
}
