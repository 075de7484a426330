/*
 * A graph that is run on tiny seeded tensors, with little memory. Properties: it ends with a
 * sentence or with outputs that can be read; the run's memory is then what it was; its inputs are
 * unchanged; a second run says the same to the bit; and it ends soon after it was cancelled.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "verify/graph_program.h"
#include "verify/rng.h"

#include "graph_mutate.h"

enum { INPUTS_MAX = 128, OUTPUTS_MAX = 16, COUNT_MAX = 4096, MEMORY = 1 << 20 };

static void require(bool condition, const char *what, const char *text) {
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

struct run {
    struct ckpt_run_value value[INPUTS_MAX];
    struct ckpt_array array[INPUTS_MAX], before[INPUTS_MAX]; /* what they hold */
    struct ckpt_exec exec;
    struct ckpt_array out[OUTPUTS_MAX];
    struct ckpt_err err;
    int rc;
};

/* ---- inputs ---- */

static void fill(const struct ckpt_array *a, struct ckpt_rng *rng) {
    const int64_t count = ckpt_array_count(a);
    for (int64_t i = 0; i < count; i++) {
        const float x = ckpt_rng_float(rng);
        if (a->dtype == CKPT_DT_F32)
            ckpt_array_f32(a)[i] = x;
        else if (a->dtype == CKPT_DT_F64)
            ckpt_array_f64(a)[i] = (double)x;
        else if (a->dtype == CKPT_DT_I64)
            ckpt_array_i64(a)[i] = x < 0;
        else
            ckpt_array_bool(a)[i] = x < 0;
    }
}

static int copy_of(const struct ckpt_array *a, struct ckpt_array *out) {
    const int rc = ckpt_array_new(out, NULL, a->dtype, a->shape, a->ndim, NULL);
    return rc < 0 ? rc : ckpt_array_assign(out, a, NULL);
}

/* False: larger than what is tried here, or of a dtype without arrays. */
static bool make_input(struct run *r, const struct ckpt_graph *g, size_t i, struct ckpt_rng *rng) {
    const uint32_t v = ckpt_graph_arg_value(&g->input[i].arg);
    const struct ckpt_export_meta *const meta = v == CKPT_GRAPH_NONE ? NULL : g->value[v].meta;
    int64_t shape[CKPT_ARRAY_NDIM_MAX] = {2, 3}, count = 1;
    uint32_t ndim = meta ? meta->ndim : 2;
    if (v == CKPT_GRAPH_NONE || g->value[v].type != CKPT_GRAPH_TENSOR)
        return true; /* absent */
    if (ndim > CKPT_ARRAY_NDIM_MAX)
        return false;
    for (uint32_t d = 0; d < ndim; d++) {
        shape[d] = !meta ? shape[d] : meta->shape[d] == CKPT_SYMBOLIC ? 2 : meta->shape[d];
        if (shape[d] > COUNT_MAX || (count *= shape[d]) > COUNT_MAX)
            return false;
    }
    const enum ckpt_dtype dtype = meta ? ckpt_array_dtype(meta->dtype) : CKPT_DT_F32;
    struct ckpt_array *const a = &r->array[i];
    if (dtype == CKPT_DT_NONE || ckpt_array_new(a, &r->exec.memory, dtype, shape, ndim, NULL) != 0)
        return false;
    fill(a, rng);
    r->value[i].is_param = dtype == CKPT_DT_F32 && g->input[i].role == CKPT_GRAPH_PARAMETER;
    if (r->value[i].is_param)
        r->value[i].param = ckpt_param_of_array(a, g->input[i].name);
    else
        r->value[i].array = *a;
    return copy_of(a, &r->before[i]) == 0;
}

static bool same(const struct ckpt_array *a, const struct ckpt_array *b) {
    if (!a->store || !b->store)
        return !a->store && !b->store;
    const size_t bytes = (size_t)ckpt_array_count(a) * ckpt_dtype_info(a->dtype)->unit_bytes;
    return a->dtype == b->dtype && ckpt_array_same_shape(a, b) && ckpt_array_dense(a) &&
           ckpt_array_dense(b) && memcmp(a->data, b->data, bytes) == 0;
}

static bool make_inputs(struct run *r, const struct ckpt_graph *g) {
    struct ckpt_rng rng = ckpt_rng_seeded(CKPT_TEXT("fuzz"));
    r->exec.memory.limit = MEMORY;
    r->exec.band = MEMORY / 8;
    bool made = g->ninputs <= INPUTS_MAX;
    for (size_t i = 0; made && i < g->ninputs; i++)
        made = make_input(r, g, i, &rng);
    return made;
}

static void drop(struct run *r) {
    for (size_t i = 0; i < INPUTS_MAX; i++) {
        ckpt_array_fini(&r->array[i]);
        ckpt_array_fini(&r->before[i]);
    }
    for (size_t i = 0; i < OUTPUTS_MAX; i++)
        ckpt_array_fini(&r->out[i]);
    require(r->exec.memory.used == 0, "memory is left", r->err.text);
}

/* ---- running ---- */

static atomic_bool cancel;

static void on_alarm(int signal) {
    (void)signal;
    atomic_store(&cancel, true);
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Cancelled after half a second of computing; must then end within three. */
static void run(struct run *r, const struct ckpt_program *p) {
    const struct itimerval soon = {.it_value.tv_usec = 500000}, never = {{0}, {0}};
    const double start = cpu_seconds();
    const uint32_t n = ckpt_program_outputs(p);
    r->exec.cancel = &cancel;
    atomic_store(&cancel, false);
    setitimer(ITIMER_VIRTUAL, &soon, NULL);
    const uint64_t used = r->exec.memory.used;
    r->rc =
        ckpt_program_run(p, r->value, &r->exec, r->out, n < OUTPUTS_MAX ? n : OUTPUTS_MAX, &r->err);
    setitimer(ITIMER_VIRTUAL, &never, NULL);
    require(cpu_seconds() - start < 3.5, "it does not end when cancelled", r->err.text);
    require(r->rc == 0 || r->exec.memory.used == used, "a failed run leaves memory", r->err.text);
    require(r->rc == 0 || (r->err.text[0] && !strchr(r->err.text, '\n')), "no sentence",
            r->err.text);
    require(!r->exec.narrowed, "it still narrows", r->err.text);
}

static void check(const struct run *r, const struct run *again) {
    for (size_t i = 0; i < INPUTS_MAX; i++)
        require(same(&r->array[i], &r->before[i]), "an input changed", "");
    if (r->rc == -EINTR || again->rc == -EINTR)
        return;
    require(r->rc == again->rc, "a second run says otherwise", again->err.text);
    for (size_t i = 0; i < OUTPUTS_MAX; i++)
        require(same(&r->out[i], &again->out[i]), "a second run gives otherwise", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(graph) struct ckpt_graph *g = NULL;
    CKPT_AUTO(program) struct ckpt_program p = {0};
    static struct run first, again; /* much for a stack */
    struct ckpt_err err = {0};
    memset(&first, 0, sizeof(first));
    memset(&again, 0, sizeof(again));
    signal(SIGVTALRM, on_alarm);
    if (ckpt_graph_parse(data, size, &g, &err) != 0)
        return 0;
    if (ckpt_program_make(g, &p, &err) != 0) {
        require(err.text[0] != '\0', "no sentence", "");
        return 0;
    }
    if (make_inputs(&first, g) && make_inputs(&again, g)) {
        run(&first, &p);
        run(&again, &p);
        check(&first, &again);
    }
    drop(&first);
    drop(&again);
    return 0;
}
