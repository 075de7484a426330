/* --inspect: what is in SOURCE and what would be shown. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/files.h"
#include "fs/inspect_table.h"
#include "fs/session.h"

static bool print(void *arg, const char *text, size_t n) {
    (void)arg;
    return fwrite(text, 1, n, stdout) == n;
}

/* Nothing is held: the texts of many tensors are long. */
static int print_all(struct ckpt_session *s, bool json, struct ckpt_err *err) {
    CKPT_AUTO(str) struct ckpt_str out = {.sink = print};
    CKPT_AUTO(str) struct ckpt_str table = {0};
    if (!json)
        ckpt_inspect_table(s, ckpt_terminal_of(STDOUT_FILENO), &table);
    if (table.failed)
        return ckpt_fail_memory(err, "writing the table");
    errno = 0;
    ckpt_str_add(&out, ckpt_str_text(&table).s, table.n);
    int rc = json ? ckpt_files_write_index(s, &out, err) : ckpt_files_write_summary(s, &out, err);
    ckpt_str_flush(&out);
    if (out.failed || fflush(stdout) != 0)
        rc = ckpt_fail(err, errno ? -errno : -ENOMEM, "writing to stdout: %s",
                       strerror(errno ? errno : ENOMEM));
    return rc;
}

int ckpt_cmd_inspect(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    const int rc = ckpt_session_open(c->source, &c->options, &s, err);
    return rc < 0 ? rc : print_all(s, c->json, err);
}
