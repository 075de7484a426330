/*
 * lstm, gru, rnn_tanh and rnn_relu: stacked, in one or both directions. Of each layer and direction
 * the parameters are four (two without biases): w_ih [gates * h, in], w_hh [gates * h, h], b_ih,
 * b_hh, the gates being blocks of rows in the order i, f, g, o of an LSTM and r, z, n of a GRU.
 *
 *     x [T, B, in] --w_ih, b_ih--> for all steps at once [T, B, gates * h]
 *                                            | step t
 *     h [B, h]     --w_hh, b_hh--> [B, gates * h] + --> h of the step --> out[t, :, direction]
 *
 * The steps of the second direction run from the last to the first. An LSTM with projections has a
 * fifth parameter, w_hr [p, h], by which each step's h becomes a state of p elements.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/size.h"
#include "verify/op.h"
#include "verify/blas.h"

/* One unit: x and h are its gates, `gate` elements apart, from the input and from the state. */
typedef void step_fn(const float *x, const float *h, int64_t gate, float *hidden, float *cell);

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double sum(const float *x, const float *h, int64_t at) {
    return (double)x[at] + (double)h[at];
}

static void lstm_step(const float *x, const float *h, int64_t gate, float *hidden, float *cell) {
    const double in = sigmoid(sum(x, h, 0)), forget = sigmoid(sum(x, h, gate));
    const double candidate = tanh(sum(x, h, 2 * gate)), out = sigmoid(sum(x, h, 3 * gate));
    const double c = forget * (double)*cell + in * candidate;
    *cell = (float)c;
    *hidden = (float)(out * tanh(c));
}

static void gru_step(const float *x, const float *h, int64_t gate, float *hidden, float *cell) {
    (void)cell;
    const double reset = sigmoid(sum(x, h, 0)), update = sigmoid(sum(x, h, gate));
    const double fresh = tanh((double)x[2 * gate] + reset * (double)h[2 * gate]);
    *hidden = (float)((1 - update) * fresh + update * (double)*hidden);
}

static void tanh_step(const float *x, const float *h, int64_t gate, float *hidden, float *cell) {
    (void)gate;
    (void)cell;
    *hidden = (float)tanh(sum(x, h, 0));
}

static void relu_step(const float *x, const float *h, int64_t gate, float *hidden, float *cell) {
    (void)gate;
    (void)cell;
    const double s = sum(x, h, 0);
    *hidden = (float)(s > 0 || isnan(s) ? s : 0);
}

static const struct kind {
    const char *name;
    int64_t gates;
    bool cell;
    step_fn *step;
} kinds[] = {
    {"lstm", 4, true, lstm_step},
    {"gru", 3, false, gru_step},
    {"rnn_tanh", 1, false, tanh_step},
    {"rnn_relu", 1, false, relu_step},
};

struct rnn {
    struct ckpt_call *c;
    const struct kind *kind;
    const struct ckpt_arg *params; /* the list */
    int64_t steps, batch, hidden, layers, directions;
    int64_t state; /* elements of h that are kept: `hidden`, but for projections */
    bool biases;
    struct ckpt_array h, cell; /* final states [layers * directions, B, ...], initial ones before */
};

static void rnn_fini(struct rnn *r) {
    ckpt_array_fini(&r->h);
    ckpt_array_fini(&r->cell);
}
CKPT_DEFINE_AUTO(rnn, struct rnn, rnn_fini)

/* The parameters of one layer and direction. */
struct weights {
    struct ckpt_array ih, hh, bias_ih, bias_hh;
    struct ckpt_array hr; /* empty: no projection */
};

static void weights_fini(struct weights *w) {
    ckpt_array_fini(&w->ih);
    ckpt_array_fini(&w->hh);
    ckpt_array_fini(&w->bias_ih);
    ckpt_array_fini(&w->bias_hh);
    ckpt_array_fini(&w->hr);
}
CKPT_DEFINE_AUTO(weights, struct weights, weights_fini)

/* Parameter `at` of the list, whose shape must be this one. */
static int load(const struct rnn *r, int64_t at, const char *what, const int64_t *shape,
                uint32_t ndim, struct ckpt_array *out, struct ckpt_err *err) {
    struct ckpt_arg named = r->params->list.v[at];
    struct ckpt_array expected = {.ndim = ndim};
    char text[2][64];
    named.name = what;
    const struct ckpt_call one = {.arg = &named, .nargs = 1, .exec = r->c->exec};
    const int rc = ckpt_call_input(&one, what, out, err);
    memcpy(expected.shape, shape, ndim * sizeof(*shape));
    if (rc < 0 || ckpt_array_same_shape(out, &expected))
        return rc;
    return ckpt_fail(err, -EINVAL, "%s has shape %s, expected %s", what,
                     ckpt_array_shape_text(out, text[0], sizeof(text[0])),
                     ckpt_array_shape_text(&expected, text[1], sizeof(text[1])));
}

static bool projects(const struct rnn *r) {
    return r->state != r->hidden;
}

/* Parameters of a layer and direction. */
static int64_t each(const struct rnn *r) {
    return (r->biases ? 4 : 2) + (projects(r) ? 1 : 0);
}

static int weights_load(const struct rnn *r, int64_t block, int64_t in, struct weights *w,
                        struct ckpt_err *err) {
    const int64_t at = block * each(r), rows = r->kind->gates * r->hidden;
    int rc = load(r, at, "weight_ih", (int64_t[]){rows, in}, 2, &w->ih, err);
    if (rc == 0)
        rc = load(r, at + 1, "weight_hh", (int64_t[]){rows, r->state}, 2, &w->hh, err);
    if (rc == 0 && r->biases)
        rc = load(r, at + 2, "bias_ih", &rows, 1, &w->bias_ih, err);
    if (rc == 0 && r->biases)
        rc = load(r, at + 3, "bias_hh", &rows, 1, &w->bias_hh, err);
    if (rc == 0 && projects(r))
        rc = load(r, at + each(r) - 1, "weight_hr", (int64_t[]){r->state, r->hidden}, 2, &w->hr,
                  err);
    return rc;
}

/* y [rows, w's rows] = x w^T + bias */
static void affine(const float *x, int64_t rows, const struct ckpt_array *w,
                   const struct ckpt_array *bias, float *y) {
    const int n = (int)w->shape[0], in = (int)w->shape[1];
    for (int64_t r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            y[r * n + i] = bias->store ? ckpt_array_f32(bias)[i] : 0;
    if (rows > 0 && n > 0 && in > 0)
        ckpt_blas_sgemm(CKPT_BLAS_ROWS, CKPT_BLAS_COLUMNS, (int)rows, n, in, 1, x, in,
                        ckpt_array_f32(w), in, 1, y, n);
}

/* All units of all rows, one step. from_x, from_h: [B, gates * h]. */
static void step(const struct rnn *r, const float *from_x, const float *from_h, float *h,
                 float *cell) {
    const int64_t width = r->kind->gates * r->hidden;
    for (int64_t b = 0; b < r->batch; b++)
        for (int64_t u = 0; u < r->hidden; u++)
            r->kind->step(from_x + b * width + u, from_h + b * width + u, r->hidden,
                          h + b * r->hidden + u, cell ? cell + b * r->hidden + u : NULL);
}

/* Copies the state [B, s] to its columns of out [B, directions * s] of one step. */
static void store(const struct rnn *r, const float *h, int64_t direction, float *out) {
    for (int64_t b = 0; b < r->batch; b++)
        memcpy(out + (b * r->directions + direction) * r->state, h + b * r->state,
               (size_t)r->state * sizeof(*h));
}

static int run_direction(const struct rnn *r, int64_t layer, int64_t direction,
                         const struct ckpt_array *x, struct ckpt_array *out, struct ckpt_err *err) {
    static const struct ckpt_array none;
    CKPT_AUTO(weights) struct weights w = {0};
    CKPT_AUTO(array) struct ckpt_array from_x = {0}, from_h = {0}, unprojected = {0};
    const int64_t block = layer * r->directions + direction;
    const int64_t rows = r->batch * r->kind->gates * r->hidden, units = r->batch * r->hidden;
    int rc = weights_load(r, block, x->shape[2], &w, err);
    if (rc == 0)
        rc = ckpt_array_new(&from_x, &r->c->exec->memory, CKPT_DT_F32, (int64_t[]){r->steps, rows},
                            2, err);
    if (rc == 0)
        rc = ckpt_array_new(&from_h, &r->c->exec->memory, CKPT_DT_F32, &rows, 1, err);
    if (rc == 0 && projects(r))
        rc = ckpt_array_new(&unprojected, &r->c->exec->memory, CKPT_DT_F32, &units, 1, err);
    if (rc < 0)
        return rc;
    float *const h = ckpt_array_f32(&r->h) + block * r->batch * r->state;
    float *const fresh = projects(r) ? ckpt_array_f32(&unprojected) : h;
    float *const cell = r->cell.store ? ckpt_array_f32(&r->cell) + block * units : NULL;
    affine(ckpt_array_f32(x), r->steps * r->batch, &w.ih, &w.bias_ih, ckpt_array_f32(&from_x));
    for (int64_t i = 0; rc == 0 && i < r->steps; i++) {
        const int64_t t = direction ? r->steps - 1 - i : i;
        affine(h, r->batch, &w.hh, &w.bias_hh, ckpt_array_f32(&from_h));
        step(r, ckpt_array_f32(&from_x) + t * rows, ckpt_array_f32(&from_h), fresh, cell);
        if (projects(r))
            affine(fresh, r->batch, &w.hr, &none, h);
        store(r, h, direction, ckpt_array_f32(out) + t * r->batch * r->directions * r->state);
        rc = ckpt_exec_check(r->c->exec, err);
    }
    return rc;
}

static int run_layers(const struct rnn *r, struct ckpt_array *x, struct ckpt_err *err) {
    int rc = 0;
    for (int64_t layer = 0; rc == 0 && layer < r->layers; layer++) {
        struct ckpt_array out;
        rc = ckpt_array_new(&out, &r->c->exec->memory, CKPT_DT_F32,
                            (int64_t[]){r->steps, r->batch, r->directions * r->state}, 3, err);
        for (int64_t d = 0; rc == 0 && d < r->directions; d++)
            rc = run_direction(r, layer, d, x, &out, err);
        ckpt_array_fini(x);
        *x = out;
    }
    return rc;
}

/* ---- arguments ---- */

/* The initial state, copied: it becomes the final one. Zeros if there is none. */
static int state_init(const struct rnn *r, const struct ckpt_arg *given, int64_t width,
                      struct ckpt_array *out, struct ckpt_err *err) {
    const int64_t shape[3] = {r->layers * r->directions, r->batch, width};
    char text[64];
    int rc = ckpt_array_new(out, &r->c->exec->memory, CKPT_DT_F32, shape, 3, err);
    if (rc < 0 || !given)
        return rc;
    CKPT_AUTO(array) struct ckpt_array initial = {0};
    struct ckpt_arg named = *given;
    named.name = "hx";
    const struct ckpt_call one = {.arg = &named, .nargs = 1, .exec = r->c->exec};
    rc = ckpt_call_input(&one, "hx", &initial, err);
    if (rc < 0)
        return rc;
    if (!ckpt_array_same_shape(&initial, out))
        return ckpt_fail(err, -EINVAL, "hx has shape %s, expected [%lld, %lld, %lld]",
                         ckpt_array_shape_text(&initial, text, sizeof(text)), (long long)shape[0],
                         (long long)shape[1], (long long)shape[2]);
    memcpy(out->data, initial.data, (size_t)ckpt_array_count(out) * sizeof(float));
    return 0;
}

static int states_init(struct rnn *r, struct ckpt_err *err) {
    const struct ckpt_arg *const hx = ckpt_call_arg(r->c, "hx");
    const bool list = hx && hx->kind == CKPT_ARG_LIST;
    if (list && hx->list.n != (r->kind->cell ? 2 : 1))
        return ckpt_fail(err, -EINVAL, "hx has %u tensors", hx->list.n);
    int rc = state_init(r, list ? &hx->list.v[0] : hx, r->state, &r->h, err);
    if (rc == 0 && r->kind->cell)
        rc = state_init(r, list ? &hx->list.v[1] : NULL, r->hidden, &r->cell, err);
    return rc;
}

/* Size of dimension d of a matrix; 0 of anything else. */
static int64_t matrix_size(const struct ckpt_arg *matrix, uint32_t d) {
    if (matrix->kind == CKPT_ARG_PARAM)
        return matrix->param->ndim == 2 ? matrix->param->shape[d] : 0;
    return matrix->kind == CKPT_ARG_ARRAY && matrix->array->ndim == 2 ? matrix->array->shape[d] : 0;
}

/* Sizes, from how many parameters there are and from the first w_hh. */
static int take_params(struct rnn *r, struct ckpt_err *err) {
    const struct ckpt_arg *const params = ckpt_call_arg(r->c, "params");
    const int64_t n = params && params->kind == CKPT_ARG_LIST ? params->list.n : 0;
    const int64_t least = r->biases ? 4 : 2;
    const bool known = r->layers >= 1 && r->layers <= n;
    const int64_t blocks = known ? r->layers * r->directions : 0;
    const bool projected = r->kind->cell && n == blocks * (least + 1);
    if (!known || (n != blocks * least && !projected))
        return ckpt_fail(err, -EINVAL, "%lld parameters for %lld layers", (long long)n,
                         (long long)r->layers);
    r->params = params;
    r->state = matrix_size(&params->list.v[1], 1);
    r->hidden = matrix_size(&params->list.v[1], 0) / r->kind->gates;
    if (!projected && r->hidden != r->state)
        return ckpt_fail(err, -EINVAL, "weight_hh has %lld rows for a state of %lld elements",
                         (long long)matrix_size(&params->list.v[1], 0), (long long)r->state);
    if (projected && r->hidden == r->state)
        return ckpt_fail(err, -EOPNOTSUPP, "a projection that keeps the size");
    return 0;
}

static int take_arguments(struct rnn *r, const struct ckpt_array *x, struct ckpt_err *err) {
    const struct ckpt_call *const c = r->c;
    r->biases = ckpt_call_bool(c, "has_biases", true);
    r->layers = ckpt_call_int(c, "num_layers", 1);
    r->directions = ckpt_call_bool(c, "bidirectional", false) ? 2 : 1;
    if (ckpt_call_bool(c, "train", false) && ckpt_call_float(c, "dropout", 0) > 0)
        return ckpt_fail(err, -EOPNOTSUPP, "runs in training mode; save the model after eval()");
    if (x->ndim != 3)
        return ckpt_fail(err, -EOPNOTSUPP, "an input of %u dimensions, expected 3", x->ndim);
    const int rc = take_params(r, err);
    if (rc < 0)
        return rc;
    r->steps = x->shape[0];
    r->batch = x->shape[1];
    int64_t rows = 0;
    const bool fits = ckpt_blas_fits(r->hidden, r->batch, x->shape[2]) &&
                      ckpt_mul_i64(r->steps, r->batch, &rows) &&
                      ckpt_blas_fits(rows, r->steps, r->kind->gates * r->hidden);
    return fits ? 0 : ckpt_fail(err, -EOVERFLOW, "a dimension beyond 2^31");
}

/* Swaps the first two dimensions if batch_first: sequences are walked step by step. */
static int by_steps(const struct ckpt_call *c, const struct ckpt_array *a, struct ckpt_array *out,
                    struct ckpt_err *err) {
    if (a->ndim != 3 || !ckpt_call_bool(c, "batch_first", false)) {
        *out = ckpt_array_ref(a);
        return 0;
    }
    CKPT_AUTO(array) struct ckpt_array turned = ckpt_array_permute(a, (uint32_t[]){1, 0, 2});
    return ckpt_array_contiguous(&turned, &c->exec->memory, out, err);
}

static int recurrent(struct ckpt_call *c, struct ckpt_err *err) {
    CKPT_AUTO(array) struct ckpt_array given = {0}, x = {0};
    CKPT_AUTO(rnn) struct rnn r = {.c = c, .kind = kinds};
    while (strcmp(r.kind->name, c->op->name) != 0)
        r.kind++;
    int rc = ckpt_call_input(c, "input", &given, err);
    if (rc == 0)
        rc = by_steps(c, &given, &x, err);
    if (rc == 0)
        rc = take_arguments(&r, &x, err);
    if (rc == 0)
        rc = states_init(&r, err);
    if (rc == 0)
        rc = run_layers(&r, &x, err);
    if (rc == 0)
        rc = by_steps(c, &x, &c->out[0], err);
    if (rc == 0 && c->nout > 1)
        c->out[1] = ckpt_array_ref(&r.h);
    if (rc == 0 && c->nout > 2 && r.kind->cell)
        c->out[2] = ckpt_array_ref(&r.cell);
    return rc;
}

static int packed(struct ckpt_call *c, struct ckpt_err *err) {
    (void)c;
    return ckpt_fail(err, -EOPNOTSUPP, "packed sequences; export the model with padded ones");
}

#define INPUT(name, hx, results)                                                                   \
    {                                                                                              \
        name,                                                                                      \
            name ".input(Tensor input, " hx " hx, Tensor[] params, bool has_biases, "              \
                 "int num_layers, float dropout, bool train, bool bidirectional, "                 \
                 "bool batch_first) -> (" results ")",                                             \
            recurrent                                                                              \
    }
#define DATA(name, hx, results)                                                                    \
    {                                                                                              \
        name,                                                                                      \
            name ".data(Tensor data, Tensor batch_sizes, " hx " hx, Tensor[] params, "             \
                 "bool has_biases, int num_layers, float dropout, bool train, "                    \
                 "bool bidirectional) -> (" results ")",                                           \
            packed                                                                                 \
    }

static const struct ckpt_op ops[] = {
    INPUT("lstm", "Tensor[]", "Tensor, Tensor, Tensor"),
    INPUT("gru", "Tensor", "Tensor, Tensor"),
    INPUT("rnn_tanh", "Tensor", "Tensor, Tensor"),
    INPUT("rnn_relu", "Tensor", "Tensor, Tensor"),
    DATA("lstm", "Tensor[]", "Tensor, Tensor, Tensor"),
    DATA("gru", "Tensor", "Tensor, Tensor"),
    DATA("rnn_tanh", "Tensor", "Tensor, Tensor"),
    DATA("rnn_relu", "Tensor", "Tensor, Tensor"),
};

const struct ckpt_op_family ckpt_family_rnn = CKPT_OP_FAMILY(ops);
