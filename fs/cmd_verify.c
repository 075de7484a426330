/*
 * --verify: the report of verify.json on stdout, without its padding. With --verbose, a text for
 * people on stderr; the report goes only to a stdout that is no terminal, where it would drown it.
 */
#include <unistd.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/print.h"
#include "fs/session.h"
#include "fs/verify_text.h"

enum { EXIT_PASS = 0, EXIT_DIFF = 1, EXIT_OTHER = 2 };

int ckpt_cmd_verify(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    CKPT_AUTO(str) struct ckpt_str report = {0}, text = {0};
    enum ckpt_status status = CKPT_STATUS_PENDING;
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = ckpt_session_start(s, true, err);
    if (rc == 0 && c->verbose) {
        s->verify.tell = ckpt_verify_text;
        s->verify.tell_arg = &text;
    }
    if (rc == 0)
        rc = ckpt_session_verify(s, NULL, &report, &status, err);
    if (rc == 0)
        rc = ckpt_print(stderr, "stderr", text.s, text.n, err);
    if (rc == 0 && !(c->verbose && isatty(STDOUT_FILENO)))
        rc = ckpt_print(stdout, "stdout", report.s, report.n, err);
    if (rc < 0)
        return rc;
    return status == CKPT_STATUS_PASS   ? EXIT_PASS
           : status == CKPT_STATUS_DIFF ? EXIT_DIFF
                                        : EXIT_OTHER;
}
