/* --verify: the report of verify.json on stdout, without its padding. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "fs/command.h"
#include "fs/session.h"

enum { EXIT_PASS = 0, EXIT_DIFF = 1, EXIT_OTHER = 2 };

int ckpt_cmd_verify(const struct ckpt_command *c, struct ckpt_err *err) {
    CKPT_AUTO(session) struct ckpt_session *s = NULL;
    CKPT_AUTO(str) struct ckpt_str text = {0};
    enum ckpt_status status = CKPT_STATUS_PENDING;
    int rc = ckpt_session_open(c->source, &c->options, &s, err);
    if (rc == 0)
        rc = ckpt_session_start(s, true, err);
    if (rc == 0)
        rc = ckpt_session_verify(s, NULL, &text, &status, err);
    if (rc < 0)
        return rc;
    if (fwrite(text.s, 1, text.n, stdout) != text.n || fflush(stdout) != 0)
        return ckpt_fail(err, -errno, "writing to stdout: %s", strerror(errno));
    return status == CKPT_STATUS_PASS   ? EXIT_PASS
           : status == CKPT_STATUS_DIFF ? EXIT_DIFF
                                        : EXIT_OTHER;
}
