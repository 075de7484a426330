/* --inspect: what is in SOURCE and what would be shown. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/session.h"

int ckpt_cmd_inspect(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    const int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc < 0)
        return rc;
    const struct ckpt_text text = ckpt_str_text(c->json ? &s->index : &s->summary);
    if (fwrite(text.s, 1, text.n, stdout) != text.n || fflush(stdout) != 0)
        return ckpt_fail(err, -errno, "writing to stdout: %s", strerror(errno));
    return CKPT_EXIT_OK;
}
