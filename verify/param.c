/* Parameters as such, and those that are arrays already. */
#include "verify/param.h"

#include <string.h>

int64_t ckpt_param_count(const struct ckpt_param *p) {
    int64_t n = 1;
    for (uint32_t d = 0; d < p->ndim; d++)
        n *= p->shape[d];
    return n;
}

static int read_array(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                      struct ckpt_err *err) {
    (void)err;
    if (n > 0)
        memcpy(out, ckpt_array_f32(p->from) + first, (size_t)n * sizeof(*out));
    return 0;
}

struct ckpt_param ckpt_param_of_array(const struct ckpt_array *a, struct ckpt_text name) {
    struct ckpt_param p = {.name = name, .ndim = a->ndim, .read = read_array, .from = a};
    memcpy(p.shape, a->shape, sizeof(p.shape));
    return p;
}

static int read_rows(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                     struct ckpt_err *err) {
    const struct ckpt_param_rows *const r = p->from;
    return r->of->read(r->of, r->skip + first, n, out, err);
}

void ckpt_param_rows_init(struct ckpt_param_rows *r, const struct ckpt_param *of, int64_t first,
                          int64_t n) {
    *r = (struct ckpt_param_rows){.param = *of, .of = of, .skip = first};
    for (uint32_t d = 1; d < of->ndim; d++)
        r->skip *= of->shape[d];
    r->param.shape[0] = n;
    r->param.read = read_rows;
    r->param.from = r;
}

static int read_picked(const struct ckpt_param *p, int64_t first, int64_t n, float *out,
                       struct ckpt_err *err) {
    const struct ckpt_param_pick *const pick = p->from;
    const int64_t row = ckpt_param_count(&pick->of) / pick->of.shape[0];
    int rc = 0;
    while (rc == 0 && n > 0) {
        const int64_t within = first % row, left = row - within, part = n < left ? n : left;
        rc = pick->of.read(&pick->of, pick->id[first / row] * row + within, part, out, err);
        first += part;
        out += part;
        n -= part;
    }
    return rc;
}

void ckpt_param_pick_init(struct ckpt_param_pick *p, const struct ckpt_param *of, const int64_t *id,
                          int64_t n) {
    *p = (struct ckpt_param_pick){.param = *of, .of = *of, .id = id};
    p->param.shape[0] = n;
    p->param.read = read_picked;
    p->param.from = p;
}

struct ckpt_param ckpt_param_transpose(const struct ckpt_param *p) {
    struct ckpt_param turned = *p;
    turned.in_out = !p->in_out;
    return turned;
}

int ckpt_param_load(const struct ckpt_param *p, struct ckpt_memory *memory, struct ckpt_array *out,
                    struct ckpt_err *err) {
    int rc = ckpt_array_new(out, memory, CKPT_DT_F32, p->shape, p->ndim, err);
    if (rc == 0)
        rc = p->read(p, 0, ckpt_param_count(p), ckpt_array_f32(out), err);
    if (rc < 0)
        ckpt_array_fini(out);
    return rc;
}

int ckpt_param_array(const struct ckpt_param *p, struct ckpt_memory *memory, struct ckpt_array *out,
                     struct ckpt_err *err) {
    static const uint32_t turned[] = {1, 0};
    const int rc = ckpt_param_load(p, memory, out, err);
    if (rc < 0 || !p->in_out || p->ndim != 2)
        return rc;
    struct ckpt_array stored = *out;
    *out = ckpt_array_permute(&stored, turned);
    ckpt_array_fini(&stored);
    return 0;
}
