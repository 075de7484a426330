#ifndef CKPT_VERIFY_VERIFY_H
#define CKPT_VERIFY_VERIFY_H
/*
 * The forward checker: does the adapted model compute what the source model computes? One call runs
 * the byte check, the layer probes, the whole model both ways (by its graph, an nn.Sequential's
 * order or `chain=`) and the comparison with a recorded reference, and writes the report
 * (docs/verification.md). Reads adapted bytes only through the reader that the mount serves from.
 * One thread at a time.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "adapters/reader.h"

/* Worst first, as the report ranks them. */
enum ckpt_status {
    CKPT_STATUS_LOAD_FAIL,
    CKPT_STATUS_CONVERT_FAIL,
    CKPT_STATUS_TEST_FAIL,
    CKPT_STATUS_DIFF,
    CKPT_STATUS_TEST_SKIP,
    CKPT_STATUS_PASS,
    CKPT_STATUS_SKIP,
    CKPT_STATUS_PENDING,
};
const char *ckpt_status_name(enum ckpt_status s);

/* What probes are always held to, and whole models by default. */
#define CKPT_ATOL 1e-4
#define CKPT_RTOL 1e-3

struct ckpt_verification; /* verify/run.h */

struct ckpt_verify_options {
    const char *chain; /* "fc1:relu:fc2" or NULL */
    const char
        *reference;    /* path given by the user, or NULL: STEM.reference.safetensors if there */
    const char *graph; /* path given by the user or of the sidecar, or NULL */
    bool graph_given;  /* by the user */
    const struct ckpt_graph *opened; /* what is at that path; or NULL */
    const char *graph_error;         /* why it is of no use, or NULL */
    const char *source;              /* the path given on the command line, for sidecars */
    double atol, rtol;               /* of whole models and recorded outputs */
    bool tolerance_given;            /* by the user: no other defaults for half precision */
    uint64_t memory;                 /* bytes; 0: half of RAM */
    const atomic_bool *cancel;       /* may be NULL; true: stop soon with -EINTR */
    /* Called when all is done, for what the report does not tell; NULL: nobody wants to know. */
    int (*tell)(void *arg, const struct ckpt_verification *v, struct ckpt_err *err);
    void *tell_arg;
};

/* Appends the report (one JSON document, a newline at its end) and gives the whole status. 0 even
 * when the status is bad; negative only if no report could be made (-ENOMEM, -EINTR). */
int ckpt_verify_run(struct ckpt_reader *r, const struct ckpt_model *m,
                    const struct ckpt_verify_options *options, struct ckpt_str *report,
                    enum ckpt_status *status, struct ckpt_err *err) CKPT_CHECKED;

/* An upper bound of the report's bytes for this model and these options, without computing. The
 * report is never longer (its lists end after 1,000 entries, its texts after 512 bytes). */
size_t ckpt_verify_bound(const struct ckpt_model *m, const struct ckpt_verify_options *options);

#endif
