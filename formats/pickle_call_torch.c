#include "formats/pickle_vm.h"

#include <stdarg.h>
#include <stdio.h>

#include "formats/torch.h"

/*
 * torch's own constructors. A constructor that we know with arguments that it can't have makes a
 * tensor that bears the reason (torch.h); so do kinds without dense bytes.
 */

static int new_tensor(struct pickle_vm *vm, struct torch_tensor **t, struct ckpt_value **out) {
    *t = ckpt_arena_alloc(vm->arena, sizeof **t);
    return *t ? pickle_make_private(vm, CKPT_PICKLE_TENSOR, *t, out) : pickle_fail_memory(vm);
}

/* The reason as text in the arena; "out of memory" if even that fails. */
static const char *CKPT_PRINTF(2, 3) reason(struct pickle_vm *vm, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *copy = ckpt_arena_printf(vm->arena, "%s", text);
    return copy ? copy : "out of memory";
}

static int bad_tensor(struct pickle_vm *vm, const char *why, struct ckpt_value **out) {
    struct torch_tensor *t;
    const int rc = new_tensor(vm, &t, out);
    if (rc == 0)
        t->error = why;
    return rc;
}

static int unsupported_tensor(struct pickle_vm *vm, const char *why, struct ckpt_value **out) {
    struct torch_tensor *t;
    const int rc = new_tensor(vm, &t, out);
    if (rc == 0)
        t->unsupported = why;
    return rc;
}

/* A tuple of sizes or strides. NULL, or what is wrong with it. */
static const char *take_ints(struct pickle_vm *vm, const struct ckpt_value *tuple, const char *what,
                             const int64_t **out) {
    if (!pickle_is_seq(tuple))
        return reason(vm, "its %s is not a tuple", what);
    if (tuple->seq.n > CKPT_NDIM_MAX)
        return reason(vm, "its %s has %zu entries, more than %d dimensions are not supported", what,
                      tuple->seq.n, CKPT_NDIM_MAX);
    int64_t *v = ckpt_arena_array(vm->arena, tuple->seq.n, sizeof *v);
    if (!v)
        return "out of memory";
    for (size_t i = 0; i < tuple->seq.n; i++) {
        const struct ckpt_value *item = tuple->seq.item[i];
        if (item->kind != CKPT_VALUE_INT)
            return reason(vm, "entry %zu of its %s is not a 64-bit integer", i, what);
        if (item->i < 0)
            return reason(vm, "entry %zu of its %s is negative (%lld)", i, what,
                          (long long)item->i);
        v[i] = item->i;
    }
    *out = v;
    return NULL;
}

/* (storage, offset, size, stride): what all the dense constructors begin with. */
static const char *take_geometry(struct pickle_vm *vm, const struct ckpt_value *args,
                                 struct torch_tensor *t) {
    const struct ckpt_value *storage = pickle_arg_at(args, 0), *offset = pickle_arg_at(args, 1);
    const struct ckpt_value *size = pickle_arg_at(args, 2), *stride = pickle_arg_at(args, 3);
    if (!stride)
        return reason(vm, "its constructor has %zu arguments, expected at least 4", args->seq.n);
    if (!pickle_is(storage, CKPT_PICKLE_STORAGE))
        return "its first argument is not a storage";
    if (!pickle_is(offset, CKPT_VALUE_INT) || offset->i < 0)
        return "its storage offset is not an integer that is 0 or more";
    t->storage = storage->format;
    const char *wrong = t->storage->error;
    if (!wrong)
        wrong = take_ints(vm, size, "shape", &t->shape);
    if (!wrong)
        wrong = take_ints(vm, stride, "stride", &t->stride);
    if (wrong)
        return wrong;
    if (size->seq.n != stride->seq.n)
        return reason(vm, "it has %zu sizes and %zu strides", size->seq.n, stride->seq.n);
    t->dtype = t->storage->dtype;
    t->ndim = (uint32_t)size->seq.n;
    t->offset = offset->i;
    return NULL;
}

static bool flag(const struct ckpt_value *dict, const char *name) {
    const struct ckpt_value *v = pickle_dict_get(dict, name);
    return pickle_is(v, CKPT_VALUE_BOOL) && v->b;
}

/* {'conj': True, 'neg': True}: bits that apply on reading. */
static void take_metadata(struct torch_tensor *t, const struct ckpt_value *metadata) {
    if (!pickle_is(metadata, CKPT_VALUE_DICT))
        return;
    t->conj = flag(metadata, "conj");
    t->neg = flag(metadata, "neg");
}

/* _rebuild_tensor(storage, offset, size, stride)
 * _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static int call_rebuild_tensor(struct pickle_vm *vm, const struct ckpt_value *args,
                               struct ckpt_value **out) {
    struct torch_tensor *t;
    const int rc = new_tensor(vm, &t, out);
    if (rc)
        return rc;
    t->error = take_geometry(vm, args, t);
    if (!t->error && t->dtype == CKPT_DT_NONE)
        t->unsupported = reason(vm, "a tensor over a quantised storage (%s)", t->storage->cls);
    take_metadata(t, pickle_arg_at(args, 6));
    return 0;
}

/* torch.float8_e5m2 and so on -> dtype; NULL or the name of one that we do not serve. */
static const char *take_dtype(struct pickle_vm *vm, const struct ckpt_value *v,
                              enum ckpt_dtype *out) {
    if (!pickle_is(v, CKPT_VALUE_GLOBAL) ||
        !ckpt_text_is(((const struct pickle_global *)v)->module, "torch"))
        return "a tensor whose dtype argument is not one of torch's";
    const struct ckpt_text name = ((const struct pickle_global *)v)->name;
    *out = ckpt_dtype_by_torch(name);
    return *out == CKPT_DT_NONE ? reason(vm, "a tensor of dtype %.*s, which is not supported",
                                         CKPT_TEXT_ARGS(v->text))
                                : NULL;
}

/* _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata]): bytes
 * of an untyped storage, with offset and strides in elements of the dtype. */
static int call_rebuild_tensor_v3(struct pickle_vm *vm, const struct ckpt_value *args,
                                  struct ckpt_value **out) {
    struct torch_tensor *t;
    const int rc = new_tensor(vm, &t, out);
    if (rc)
        return rc;
    t->error = take_geometry(vm, args, t);
    if (!t->error && args->seq.n < 7)
        t->error = "its constructor has no dtype argument";
    if (!t->error)
        t->unsupported = take_dtype(vm, pickle_arg_at(args, 6), &t->dtype);
    take_metadata(t, pickle_arg_at(args, 7));
    return 0;
}

/* _rebuild_parameter(tensor, ...): the tensor itself. */
static int call_rebuild_parameter(struct pickle_vm *vm, const struct ckpt_value *args,
                                  struct ckpt_value **out) {
    struct ckpt_value *tensor = pickle_arg_at(args, 0);
    if (!pickle_is(tensor, CKPT_PICKLE_TENSOR))
        return bad_tensor(vm, "a parameter whose first argument is not a tensor", out);
    *out = tensor;
    return 0;
}

/* _rebuild_parameter_with_state(tensor, requires_grad, hooks, state): the same; of its Python
 * attributes only what is lost matters. */
static int call_rebuild_with_state(struct pickle_vm *vm, const struct ckpt_value *args,
                                   struct ckpt_value **out) {
    const int rc = call_rebuild_parameter(vm, args, out);
    if (rc == 0)
        (*out)->attributes = pickle_state_dict(pickle_arg_at(args, 3));
    return rc;
}

static pickle_call_fn call_rebuild_from_type;

/* _rebuild_from_type_v2(function, type, arguments, state): applies the function if it is one of
 * torch's constructors. */
static int call_rebuild_from_type(struct pickle_vm *vm, const struct ckpt_value *args,
                                  struct ckpt_value **out) {
    const struct ckpt_value *function = pickle_arg_at(args, 0), *inner = pickle_arg_at(args, 2);
    if (!pickle_is(function, CKPT_VALUE_GLOBAL) || !pickle_is(inner, CKPT_VALUE_TUPLE))
        return 0;
    const struct pickle_call *call = ((const struct pickle_global *)function)->call;
    if (!call || call->run == call_rebuild_from_type ||
        !ckpt_text_is(ckpt_text_of(call->module), "torch._utils"))
        return 0;
    const int rc = call->run(vm, inner, out);
    if (rc == 0 && pickle_is(*out, CKPT_PICKLE_TENSOR) && !(*out)->attributes)
        (*out)->attributes = pickle_state_dict(pickle_arg_at(args, 3));
    return rc;
}

/* _rebuild_qtensor(storage, offset, size, stride, quantiser, ...) */
static int call_rebuild_qtensor(struct pickle_vm *vm, const struct ckpt_value *args,
                                struct ckpt_value **out) {
    const int rc = call_rebuild_tensor(vm, args, out);
    if (rc)
        return rc;
    struct torch_tensor *t = (*out)->format;
    const struct ckpt_value *q = pickle_arg_at(args, 4);
    if (!t->error && !pickle_is(q, CKPT_VALUE_TUPLE))
        t->error = "a quantised tensor without its quantiser";
    if (t->error)
        return 0;
    const struct ckpt_value *scheme = pickle_arg_at(q, 0);
    const bool named = pickle_is(scheme, CKPT_VALUE_GLOBAL);
    t->unsupported = reason(vm, "a quantised tensor (%s, %s)", t->storage->cls,
                            named ? scheme->text.s : "unknown scheme");
    return 0;
}

/* torch.serialization._get_layout('torch.sparse_coo'): the name. */
static int call_get_layout(struct pickle_vm *vm, const struct ckpt_value *args,
                           struct ckpt_value **out) {
    struct ckpt_value *name = pickle_arg_at(args, 0);
    (void)vm;
    if (pickle_is(name, CKPT_VALUE_STR))
        *out = name;
    return 0;
}

/* torch.jit._pickle.restore_type_tag(value, type), build_intlist(list) ...: the value, whose type
 * only TorchScript needs to be told. */
static int call_tagged(struct pickle_vm *vm, const struct ckpt_value *args,
                       struct ckpt_value **out) {
    (void)vm;
    *out = pickle_arg_at(args, 0);
    return 0;
}

/* _rebuild_sparse_tensor(layout, parts) */
static int call_rebuild_sparse(struct pickle_vm *vm, const struct ckpt_value *args,
                               struct ckpt_value **out) {
    const struct ckpt_value *layout = pickle_arg_at(args, 0);
    const bool named = pickle_is(layout, CKPT_VALUE_STR) || pickle_is(layout, CKPT_VALUE_GLOBAL);
    return unsupported_tensor(
        vm, reason(vm, "a sparse tensor (%s)", named ? layout->text.s : "unknown layout"), out);
}

static int call_rebuild_nested(struct pickle_vm *vm, const struct ckpt_value *args,
                               struct ckpt_value **out) {
    (void)args;
    return unsupported_tensor(vm, "a nested tensor", out);
}

static int call_rebuild_meta(struct pickle_vm *vm, const struct ckpt_value *args,
                             struct ckpt_value **out) {
    (void)args;
    return unsupported_tensor(vm, "a tensor on the meta device: the file holds no bytes of it",
                              out);
}

/* Tensors of devices that torch saves through the CPU: the array or tensor in the first argument.
 */
static int call_rebuild_device(struct pickle_vm *vm, const struct ckpt_value *args,
                               struct ckpt_value **out) {
    struct ckpt_value *content = pickle_arg_at(args, 0);
    if (!pickle_is(content, CKPT_PICKLE_TENSOR))
        return unsupported_tensor(vm, "a device tensor without an array", out);
    *out = content;
    return 0;
}

static int call_unknown_rebuild(struct pickle_vm *vm, const struct ckpt_value *args,
                                struct ckpt_value **out) {
    (void)args;
    return unsupported_tensor(vm, "a kind of tensor that is not supported", out);
}

/* torch.storage._load_from_bytes(bytes): a whole legacy stream whose object is a storage. All calls
 * together may read no more bytes than the stream has, so repeating one can't multiply work. */
static int call_load_from_bytes(struct pickle_vm *vm, const struct ckpt_value *args,
                                struct ckpt_value **out) {
    const struct ckpt_value *bytes = pickle_arg_at(args, 0);
    if (!pickle_is_bytes(bytes) || !vm->hooks || !vm->hooks->nested_storage)
        return 0;
    vm->nested_bytes += bytes->text.n;
    if (vm->nested_bytes > vm->in.n)
        return pickle_fail(vm, "reads the same nested bytes again and again");
    return vm->hooks->nested_storage(vm->hooks->user, bytes->text, out, vm->err);
}

/* OptimizedModule(module, context): what torch.compile wraps around a module, which is shown. */
static int call_compiled(struct pickle_vm *vm, const struct ckpt_value *args,
                         struct ckpt_value **out) {
    struct ckpt_value *module = pickle_arg_at(args, 0);
    (void)vm;
    if (pickle_is(module, CKPT_VALUE_MODULE))
        *out = module;
    return 0;
}

const struct pickle_call pickle_calls_torch[] = {
    {"torch._dynamo.eval_frame", "OptimizedModule", call_compiled},
    {"torch._utils", "_rebuild_tensor", call_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v2", call_rebuild_tensor},
    {"torch._utils", "_rebuild_tensor_v3", call_rebuild_tensor_v3},
    {"torch._utils", "_rebuild_parameter", call_rebuild_parameter},
    {"torch._utils", "_rebuild_parameter_with_state", call_rebuild_with_state},
    {"torch._utils", "_rebuild_qtensor", call_rebuild_qtensor},
    {"torch._utils", "_rebuild_sparse_tensor", call_rebuild_sparse},
    {"torch._utils", "_rebuild_sparse_csr_tensor", call_rebuild_sparse},
    {"torch._utils", "_rebuild_nested_tensor", call_rebuild_nested},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", call_rebuild_meta},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", call_rebuild_device},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", call_rebuild_device},
    {"torch._utils", "_rebuild_xla_tensor", call_rebuild_device},
    {"torch._tensor", "_rebuild_from_type_v2", call_rebuild_from_type},
    {"torch._tensor", "_rebuild_from_type", call_rebuild_from_type},
    {"torch._utils", "_rebuild_from_type", call_rebuild_from_type},
    {"torch.serialization", "_get_layout", call_get_layout},
    {"torch.storage", "_load_from_bytes", call_load_from_bytes},
    {"torch.jit._pickle", "restore_type_tag", call_tagged},
    {"torch.jit._pickle", "build_intlist", call_tagged},
    {"torch.jit._pickle", "build_doublelist", call_tagged},
    {"torch.jit._pickle", "build_boollist", call_tagged},
    {"torch.jit._pickle", "build_tensorlist", call_tagged},
    {NULL, NULL, NULL},
};

const struct pickle_call pickle_call_unknown_rebuild = {"torch._utils", "_rebuild",
                                                        call_unknown_rebuild};
