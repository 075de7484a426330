/* --inspect: what is in SOURCE and what would be shown. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/inspect_table.h"
#include "fs/session.h"

static bool print(const struct ckpt_str *s) {
    const struct ckpt_text text = ckpt_str_text(s);
    return fwrite(text.s, 1, text.n, stdout) == text.n;
}

int ckpt_cmd_inspect(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    const int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc < 0)
        return rc;
    CKPT_AUTO(str) struct ckpt_str table = {0};
    if (!c->json)
        ckpt_inspect_table(s, ckpt_terminal_of(STDOUT_FILENO), &table);
    if (table.failed)
        return ckpt_fail_memory(err, "writing the table");
    const struct ckpt_str *rest = c->json ? &s->index : &s->summary;
    if (!print(&table) || !print(rest) || fflush(stdout) != 0)
        return ckpt_fail(err, -errno, "writing to stdout: %s", strerror(errno));
    return CKPT_EXIT_OK;
}
