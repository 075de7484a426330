/* The forward checker's order of work: bytes, layers, the whole model; then the report. */
#include "verify/verify.h"

#include <errno.h>
#include <malloc.h> /* malloc_trim */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "verify/run.h"
#include "verify/blas.h"

/* More than glibc ever takes from its heap, which keeps what was freed: 32 MiB cost 96. */
#define BAND_MAX ((uint64_t)40 << 20)

/* What a check took from malloc, it gives back: the daemon lives on. glibc keeps up to twice its
 * largest piece, once that was freed. */
static void trim_memory(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

static void verification_fini(struct ckpt_verification *v) {
    free(v->layer.at);
    ckpt_graph_result_fini(&v->graph);
    free(v->chain.found);
    ckpt_bytes_fini(&v->bytes);
    ckpt_reference_close(&v->reference);
    ckpt_layers_fini(&v->layers);
    trim_memory();
}
CKPT_DEFINE_AUTO(verification, struct ckpt_verification, verification_fini)

static uint64_t half_of_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 2 : (uint64_t)1 << 30;
}

static void start_exec(struct ckpt_verification *v) {
    struct ckpt_exec *const e = &v->exec;
    e->memory.limit = v->options->memory ? v->options->memory : half_of_memory();
    e->band = e->memory.limit / 8 < BAND_MAX ? e->memory.limit / 8 : BAND_MAX;
    e->cancel = v->options->cancel;
}

/* ---- stages ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

uint32_t ckpt_stage_begin(struct ckpt_verification *v, const char *name) {
    if (v->nstages == CKPT_STAGES_MAX)
        return CKPT_STAGES_MAX;
    v->stage[v->nstages] = (struct ckpt_stage){name, -now()};
    return v->nstages++;
}

void ckpt_stage_end(struct ckpt_verification *v, uint32_t stage) {
    if (stage < CKPT_STAGES_MAX)
        v->stage[stage].seconds += now();
}

static int find_layers(struct ckpt_verification *v, struct ckpt_err *err) {
    return ckpt_layers_find(v->model, &v->layers, err);
}

static int open_reference(struct ckpt_verification *v, struct ckpt_err *err) {
    return ckpt_reference_open(v->options, &v->reference, err);
}

static int check_bytes(struct ckpt_verification *v, struct ckpt_err *err) {
    return ckpt_bytes_check(v->reader, v->model, &v->exec, &v->bytes, err);
}

static int run_parts(struct ckpt_verification *v, struct ckpt_err *err) {
    static const struct {
        const char *name;
        int (*run)(struct ckpt_verification *v, struct ckpt_err *err);
    } stages[] = {{"finding layers", find_layers}, {"opening the reference", open_reference},
                  {"bytes", check_bytes},          {"layers", ckpt_verify_layers},
                  {"chain", ckpt_verify_chain},    {"graph", ckpt_verify_graph}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof(stages) / sizeof(stages[0]); i++) {
        const uint32_t stage = ckpt_stage_begin(v, stages[i].name);
        rc = stages[i].run(v, err);
        ckpt_stage_end(v, stage);
    }
    ckpt_verify_reference(v);
    return rc;
}

/* What was read of a file that changes is neither the old model nor the new one. */
static void note_changed_source(struct ckpt_verification *v) {
    const struct ckpt_file *const file = ckpt_checkpoint_changed(v->model->checkpoint);
    if (!file || v->bytes.status == CKPT_STATUS_LOAD_FAIL)
        return;
    v->bytes.status = CKPT_STATUS_LOAD_FAIL;
    ckpt_reason_set(&v->bytes.reason, "%s has changed since it was opened: open it again",
                    file->name);
}

int ckpt_verify_run(struct ckpt_reader *r, const struct ckpt_model *m,
                    const struct ckpt_verify_options *options, struct ckpt_str *report,
                    enum ckpt_status *status, struct ckpt_err *err) {
    CKPT_AUTO(verification)
    struct ckpt_verification v = {.model = m, .options = options, .reader = r};
    int rc = ckpt_blas_load(err);
    if (rc < 0)
        return rc;
    start_exec(&v);
    rc = run_parts(&v, err);
    if (rc < 0)
        return rc;
    note_changed_source(&v);
    v.status = ckpt_status_worst(v.bytes.status, v.layer.status);
    v.status = ckpt_status_worst(v.status, v.chain.status);
    if (!v.graph.own || v.graph.status != CKPT_STATUS_TEST_SKIP)
        v.status = ckpt_status_worst(v.status, v.graph.status); /* an own graph is a gift */
    if (v.reference.status == CKPT_STATUS_TEST_FAIL)
        v.status = ckpt_status_worst(v.status, CKPT_STATUS_TEST_FAIL);
    ckpt_report_write(&v, report);
    *status = v.status;
    if (report->failed)
        return ckpt_fail_memory(err, "writing the report");
    return options->tell ? options->tell(options->tell_arg, &v, err) : 0;
}
