#include "formats/pickle_vm.h"

#include <inttypes.h>

#include "base/size.h"
#include "formats/pickle_numpy.h"
#include "formats/torch.h"

/*
 * numpy arrays, dtypes and scalars. An array comes as _reconstruct(ndarray, (0,), b'b') and then
 * BUILD(version, shape, dtype, fortran order, bytes); a dtype as dtype('f4', ...) and BUILD(3, '<',
 * ...). Both modules' names are known: numpy.core until 1.26, numpy._core since 2.0.
 */

static enum ckpt_dtype dtype_of_code(char kind, unsigned size) {
    static const struct {
        char kind;
        unsigned char size, dtype;
    } codes[] = {
        {'b', 1, CKPT_DT_BOOL}, {'u', 1, CKPT_DT_U8},    {'u', 2, CKPT_DT_U16},
        {'u', 4, CKPT_DT_U32},  {'u', 8, CKPT_DT_U64},   {'i', 1, CKPT_DT_I8},
        {'i', 2, CKPT_DT_I16},  {'i', 4, CKPT_DT_I32},   {'i', 8, CKPT_DT_I64},
        {'f', 2, CKPT_DT_F16},  {'f', 4, CKPT_DT_F32},   {'f', 8, CKPT_DT_F64},
        {'c', 8, CKPT_DT_C64},  {'c', 16, CKPT_DT_C128},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].kind == kind && codes[i].size == size)
            return (enum ckpt_dtype)codes[i].dtype;
    return CKPT_DT_NONE;
}

/* "f4", "<i8", "b1", "?": optional byte order, kind, size. */
static struct numpy_dtype parse_dtype(struct ckpt_text t) {
    struct numpy_dtype d = {.dtype = CKPT_DT_NONE};
    if (t.n && memchr("<>|=", t.s[0], 4)) {
        d.swap = t.s[0] == '>';
        t.s++;
        t.n--;
    }
    if (ckpt_text_is(t, "?"))
        d.dtype = CKPT_DT_BOOL;
    d.kind = t.n ? t.s[0] : '\0';
    for (size_t i = 1; i < t.n && i < 8 && t.s[i] >= '0' && t.s[i] <= '9'; i++)
        d.size = d.size * 10 + (unsigned)(t.s[i] - '0');
    if (t.n == 2 || t.n == 3)
        d.dtype = dtype_of_code(d.kind, d.size);
    return d;
}

/* dtype(code, align, copy) */
static int call_dtype(struct pickle_vm *vm, const struct ckpt_value *args,
                      struct ckpt_value **out) {
    const struct ckpt_value *code = pickle_arg_at(args, 0);
    if (!pickle_is(code, CKPT_VALUE_STR))
        return 0;
    struct numpy_dtype *d = ckpt_arena_alloc(vm->arena, sizeof *d);
    if (!d)
        return pickle_fail_memory(vm);
    *d = parse_dtype(code->text);
    return pickle_make_private(vm, CKPT_PICKLE_NUMPY_DTYPE, d, out);
}

static int call_reconstruct(struct pickle_vm *vm, const struct ckpt_value *args,
                            struct ckpt_value **out) {
    (void)args;
    struct torch_tensor *t = ckpt_arena_alloc(vm->arena, sizeof *t);
    if (!t)
        return pickle_fail_memory(vm);
    t->is_numpy = true;
    t->error = "a numpy array without content";
    return pickle_make_private(vm, CKPT_PICKLE_TENSOR, t, out);
}

/* The dimensions of t from a tuple of ints. NULL or what is wrong. */
static const char *take_shape(struct pickle_vm *vm, struct torch_tensor *t,
                              const struct ckpt_value *shape) {
    if (!pickle_is(shape, CKPT_VALUE_TUPLE) || shape->seq.n > CKPT_NDIM_MAX)
        return "a numpy array whose shape is not a tuple of at most 64 sizes";
    int64_t *size = ckpt_arena_array(vm->arena, shape->seq.n, sizeof *size);
    if (!size)
        return "out of memory";
    for (size_t i = 0; i < shape->seq.n; i++) {
        if (shape->seq.item[i]->kind != CKPT_VALUE_INT || shape->seq.item[i]->i < 0)
            return "a numpy array with an impossible size";
        size[i] = shape->seq.item[i]->i;
    }
    t->shape = size;
    t->ndim = (uint32_t)shape->seq.n;
    return NULL;
}

/* Column-major strides. The product was checked before. */
static const char *take_fortran_order(struct pickle_vm *vm, struct torch_tensor *t) {
    int64_t *stride = ckpt_arena_array(vm->arena, t->ndim, sizeof *stride);
    if (!stride)
        return "out of memory";
    int64_t step = 1;
    for (uint32_t i = 0; i < t->ndim; i++) {
        stride[i] = step;
        step *= t->shape[i];
    }
    t->stride = stride;
    return NULL;
}

#define BLOB_NAME "numpy array"

static int make_blob(struct pickle_vm *vm, const struct ckpt_value *data, struct ckpt_blob **out) {
    struct ckpt_err ignored; /* out of memory is all that can happen */
    return data->kind == CKPT_PICKLE_LEFT_BYTES
               ? vm->hooks->left_blob(vm->hooks->user, data->text, BLOB_NAME, out, &ignored)
               : ckpt_blob_owned(vm->arena, data->text.s, data->text.n, BLOB_NAME, out, &ignored);
}

static const char *take_bytes(struct pickle_vm *vm, struct torch_tensor *t,
                              const struct ckpt_value *data) {
    uint64_t count, bytes;
    if (!ckpt_shape_count(t->shape, t->ndim, &count) ||
        !ckpt_dtype_bytes(t->dtype, count, &bytes) || bytes != data->text.n)
        return "a numpy array whose bytes do not fill its shape";
    struct torch_record *record = ckpt_arena_alloc(vm->arena, sizeof *record);
    struct torch_storage *s = ckpt_arena_alloc(vm->arena, sizeof *s);
    if (!record || !s || make_blob(vm, data, &record->blob) != 0)
        return "out of memory";
    record->key = CKPT_TEXT(BLOB_NAME);
    record->nbytes = bytes;
    *s = (struct torch_storage){
        .record = record, .cls = "numpy.ndarray", .dtype = t->dtype, .nbytes = bytes};
    t->storage = s;
    return NULL;
}

/* Gives t its content. */
static const char *fill_array(struct pickle_vm *vm, struct torch_tensor *t,
                              const struct ckpt_value *shape, const struct numpy_dtype *dtype,
                              bool fortran, const struct ckpt_value *data) {
    t->dtype = dtype->dtype;
    const char *wrong = take_shape(vm, t, shape);
    if (!wrong)
        wrong = take_bytes(vm, t, data);
    if (!wrong && fortran && t->ndim > 1)
        wrong = take_fortran_order(vm, t);
    t->swap = dtype->swap && ckpt_dtype_info(t->dtype)->component_bytes > 1;
    return wrong;
}

/* Arrays of strings and objects are not tensors. */
static void become_opaque(struct ckpt_value *v) {
    v->kind = CKPT_VALUE_OPAQUE;
    v->text = CKPT_TEXT("numpy.ndarray");
}

static const struct numpy_dtype *as_dtype(const struct ckpt_value *v) {
    return pickle_is(v, CKPT_PICKLE_NUMPY_DTYPE) ? v->format : NULL;
}

static bool is_true(const struct ckpt_value *v) {
    return (pickle_is(v, CKPT_VALUE_BOOL) && v->b) || (pickle_is(v, CKPT_VALUE_INT) && v->i != 0);
}

/* (version, shape, dtype, fortran, bytes); numpy before 1.0 had no version. */
static int build_array(struct pickle_vm *vm, struct ckpt_value *target,
                       const struct ckpt_value *state) {
    struct torch_tensor *t = target->format;
    if (!t->is_numpy || t->storage || !pickle_is(state, CKPT_VALUE_TUPLE) || state->seq.n < 4)
        return 0;
    struct ckpt_value *const *item = state->seq.item + (state->seq.n > 4);
    const struct numpy_dtype *dtype = as_dtype(item[1]);
    if (!dtype || dtype->dtype == CKPT_DT_NONE) {
        bool made = false;
        const bool in_order = dtype && !is_true(item[2]); /* column-major ones are rare */
        const int rc = in_order ? pickle_numpy_list(vm, target, item[0], dtype, item[3], &made) : 0;
        if (rc == 0 && !made)
            become_opaque(target);
        return rc;
    }
    if (!pickle_is_bytes(item[3]) && item[3]->kind != CKPT_VALUE_STR) {
        t->error = "a numpy array whose content is not bytes";
        return 0;
    }
    t->error = fill_array(vm, t, item[0], dtype, is_true(item[2]), item[3]);
    return 0;
}

/* (version, byte order, ...) */
static void build_dtype(struct ckpt_value *target, const struct ckpt_value *state) {
    struct numpy_dtype *d = target->format;
    if (pickle_is(state, CKPT_VALUE_TUPLE) && state->seq.n > 1 &&
        state->seq.item[1]->kind == CKPT_VALUE_STR)
        d->swap = ckpt_text_is(state->seq.item[1]->text, ">");
}

int pickle_build_numpy(struct pickle_vm *vm, struct ckpt_value *target,
                       const struct ckpt_value *state) {
    if (target->kind != CKPT_PICKLE_NUMPY_DTYPE)
        return build_array(vm, target, state);
    build_dtype(target, state);
    return 0;
}

/* _frombuffer(bytes, dtype, shape, order): arrays in protocol 5. */
static int call_frombuffer(struct pickle_vm *vm, const struct ckpt_value *args,
                           struct ckpt_value **out) {
    const struct ckpt_value *data = pickle_arg_at(args, 0), *order = pickle_arg_at(args, 3);
    const struct numpy_dtype *dtype = as_dtype(pickle_arg_at(args, 1));
    if (!pickle_is_bytes(data) || !dtype || dtype->dtype == CKPT_DT_NONE)
        return 0;
    const int rc = call_reconstruct(vm, args, out);
    if (rc)
        return rc;
    struct torch_tensor *t = (*out)->format;
    const bool fortran = pickle_is(order, CKPT_VALUE_STR) && ckpt_text_is(order->text, "F");
    t->error = fill_array(vm, t, pickle_arg_at(args, 2), dtype, fortran, data);
    return 0;
}

static double half_to_double(uint16_t h) {
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double magnitude = exponent == 31 ? (mantissa ? __builtin_nan("") : __builtin_inf())
                             : exponent     ? __builtin_ldexp(1024 + mantissa, exponent - 25)
                                            : __builtin_ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static int make_unsigned(struct pickle_vm *vm, uint64_t u, struct ckpt_value **out) {
    if (u <= INT64_MAX)
        return pickle_make_int(vm, (int64_t)u, out);
    char *digits = ckpt_arena_printf(vm->arena, "%" PRIu64, u);
    if (!digits)
        return pickle_fail_memory(vm);
    const int rc = pickle_make(vm, CKPT_VALUE_BIGINT, out);
    if (rc == 0)
        (*out)->text = ckpt_text_of(digits);
    return rc;
}

static int64_t sign_extend(uint64_t u, unsigned bytes) {
    const unsigned shift = 64 - 8 * bytes;
    return (int64_t)(u << shift) >> shift;
}

/* The scalar whose little-endian bits are u. */
static int make_scalar(struct pickle_vm *vm, enum ckpt_dtype dtype, uint64_t u,
                       struct ckpt_value **out) {
    const struct ckpt_dtype_info *info = ckpt_dtype_info(dtype);
    const uint32_t low = (uint32_t)u;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &u, sizeof d);
    if (dtype == CKPT_DT_BOOL)
        *out = vm->boolean[u != 0];
    else if (info->cls == CKPT_CLASS_INT)
        return pickle_make_int(vm, sign_extend(u, info->unit_bytes), out);
    else if (info->cls == CKPT_CLASS_UINT)
        return make_unsigned(vm, u, out);
    else if (info->cls == CKPT_CLASS_FLOAT)
        return pickle_make_float(vm,
                                 dtype == CKPT_DT_F64   ? d
                                 : dtype == CKPT_DT_F32 ? (double)f
                                                        : half_to_double((uint16_t)u),
                                 out);
    return 0;
}

/* scalar(dtype, bytes) */
static int call_scalar(struct pickle_vm *vm, const struct ckpt_value *args,
                       struct ckpt_value **out) {
    const struct numpy_dtype *dtype = as_dtype(pickle_arg_at(args, 0));
    const struct ckpt_value *data = pickle_arg_at(args, 1);
    if (!dtype || dtype->dtype == CKPT_DT_NONE || !pickle_is(data, CKPT_VALUE_BYTES))
        return 0;
    const unsigned bytes = ckpt_dtype_info(dtype->dtype)->unit_bytes;
    if (data->text.n != bytes || bytes > 8)
        return 0;
    uint64_t u = 0;
    for (unsigned i = 0; i < bytes; i++)
        u |= (uint64_t)(unsigned char)data->text.s[i] << 8 * (dtype->swap ? bytes - 1 - i : i);
    return make_scalar(vm, dtype->dtype, u, out);
}

const struct pickle_call pickle_calls_numpy[] = {
    {"numpy", "dtype", call_dtype},
    {"numpy.core.multiarray", "_reconstruct", call_reconstruct},
    {"numpy._core.multiarray", "_reconstruct", call_reconstruct},
    {"numpy.core.multiarray", "scalar", call_scalar},
    {"numpy._core.multiarray", "scalar", call_scalar},
    {"numpy.core.numeric", "_frombuffer", call_frombuffer},
    {"numpy._core.numeric", "_frombuffer", call_frombuffer},
    {NULL, NULL, NULL},
};
