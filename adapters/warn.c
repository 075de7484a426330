/* Warnings about a model in the making, and the nearest name for an option that matched nothing. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "adapters/build.h"

/* Comparing names is quadratic in their length: enough of them to find a typing error. */
#define CANDIDATES_MAX 20000

static int push(struct ckpt_build *b, struct ckpt_text text) {
    struct ckpt_model *m = b->model;
    if (m->nwarnings == b->warnings_cap) {
        const size_t cap = b->warnings_cap ? 2 * b->warnings_cap : 16;
        struct ckpt_text *bigger = ckpt_arena_array(&m->arena, cap, sizeof *bigger);
        if (!bigger)
            return ckpt_fail_memory(b->err, "collecting warnings");
        for (size_t i = 0; i < m->nwarnings; i++)
            bigger[i] = m->warnings[i];
        m->warnings = bigger;
        b->warnings_cap = cap;
    }
    m->warnings[m->nwarnings++] = text;
    return 0;
}

int ckpt_build_warn(struct ckpt_build *b, const char *fmt, ...) {
    char raw[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    if (b->options->strict)
        return ckpt_fail(b->err, -EINVAL, "%s (strict: a warning is an error)", raw);
    struct ckpt_err line; /* escapes control bytes: keys come from files */
    (void)ckpt_fail(&line, -EINVAL, "%s", raw);
    const size_t n = strlen(line.text);
    const struct ckpt_text text = ckpt_text_copy(&b->model->arena, line.text, n);
    return text.s ? push(b, text) : ckpt_fail_memory(b->err, "collecting warnings");
}

const char *ckpt_build_did_you_mean(struct ckpt_build *b, struct ckpt_text name,
                                    const struct ckpt_text *candidates, size_t n) {
    const int i = ckpt_text_nearest(name, candidates, n < CANDIDATES_MAX ? n : CANDIDATES_MAX);
    if (i < 0)
        return "";
    const char *s = ckpt_arena_printf(&b->model->arena, "; did you mean '%.*s'?",
                                      CKPT_TEXT_ARGS(candidates[i]));
    return s ? s : "";
}
