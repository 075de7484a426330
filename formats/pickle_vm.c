#include "formats/pickle_vm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/cleanup.h"

/* The machine: one table row an opcode, one loop. pickle_vm.h has the map of the parts. */

int pickle_fail(struct pickle_vm *vm, const char *fmt, ...) {
    char text[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ckpt_fail(vm->err, -EINVAL, "damaged pickle: byte %zu (%s): %s", vm->op_at,
                     vm->op && vm->op->name ? vm->op->name : "end", text);
}

int pickle_fail_memory(struct pickle_vm *vm) {
    if (vm->arena->exceeded)
        return ckpt_fail(vm->err, -E2BIG,
                         "the pickle needs more than %u bytes of memory (limit of pickle memory)",
                         CKPT_LIMIT_PICKLE_ARENA);
    return ckpt_fail_memory(vm->err, "reading the pickle");
}

int pickle_charge(struct pickle_vm *vm, uint64_t n) {
    vm->charged += n;
    if (vm->charged <= CKPT_LIMIT_PICKLE_OBJECTS)
        return 0;
    return ckpt_fail(vm->err, -E2BIG,
                     "the pickle makes more than %u values (limit of pickled objects)",
                     CKPT_LIMIT_PICKLE_OBJECTS);
}

/* Pushes what was made, if making it went well. A pointer to it, because rc and it are arguments of
 * one call. */
static int push_new(struct pickle_vm *vm, int rc, struct ckpt_value **v) {
    return rc ? rc : pickle_push(vm, *v);
}

/* --- the stream ------------------------------------------------------------------------------ */

static int op_proto(struct pickle_vm *vm, const struct pickle_arg *arg) {
    return arg->u <= 5 ? 0
                       : pickle_fail(vm, "protocol %u, the newest known is 5", (unsigned)arg->u);
}

static int op_frame(struct pickle_vm *vm, const struct pickle_arg *arg) {
    if (arg->u > ckpt_buf_left(&vm->in))
        return pickle_fail(vm, "a frame of %llu bytes where %zu are left",
                           (unsigned long long)arg->u, ckpt_buf_left(&vm->in));
    return 0;
}

static int op_stop(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    if (vm->stack.nmark)
        return pickle_fail(vm, "a MARK is still open");
    vm->stopped = true;
    return pickle_pop(vm, &vm->result);
}

static int op_refused(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return pickle_fail(vm, "this opcode needs data from outside the file");
}

/* --- stack and memo -------------------------------------------------------------------------- */

static int op_mark(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return pickle_push_mark(vm);
}

static int op_pop_mark(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items;
    size_t n;
    (void)arg;
    return pickle_pop_mark(vm, &items, &n);
}

/* POP takes the mark itself if that lies on top. */
static int op_pop(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v;
    const struct pickle_stack *s = &vm->stack;
    if (s->nmark && s->mark[s->nmark - 1] == s->n)
        return op_pop_mark(vm, arg);
    return pickle_pop(vm, &v);
}

static int op_dup(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    (void)arg;
    const int rc = pickle_top(vm, &v);
    return push_new(vm, rc, &v);
}

static int put(struct pickle_vm *vm, uint64_t index) {
    struct ckpt_value *v;
    const int rc = pickle_top(vm, &v);
    return rc ? rc : pickle_memo_put(vm, index, v);
}

static int get(struct pickle_vm *vm, uint64_t index) {
    struct ckpt_value *v = pickle_memo_get(&vm->memo, index);
    if (!v)
        return pickle_fail(vm, "memo entry %llu was never written", (unsigned long long)index);
    return pickle_push(vm, v);
}

static int op_binput(struct pickle_vm *vm, const struct pickle_arg *arg) {
    return put(vm, arg->u);
}

static int op_memoize(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return put(vm, vm->memo.count);
}

static int op_put(struct pickle_vm *vm, const struct pickle_arg *arg) {
    uint64_t index = 0;
    const int rc = pickle_parse_index(vm, arg->text, &index);
    return rc ? rc : put(vm, index);
}

static int op_binget(struct pickle_vm *vm, const struct pickle_arg *arg) {
    return get(vm, arg->u);
}

static int op_get(struct pickle_vm *vm, const struct pickle_arg *arg) {
    uint64_t index = 0;
    const int rc = pickle_parse_index(vm, arg->text, &index);
    return rc ? rc : get(vm, index);
}

/* --- plain values ---------------------------------------------------------------------------- */

static int op_none(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return pickle_push(vm, vm->none);
}

static int op_true(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return pickle_push(vm, vm->boolean[1]);
}

static int op_false(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return pickle_push(vm, vm->boolean[0]);
}

static int op_binint(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_int(vm, arg->i, &v), &v);
}

static int op_binint_unsigned(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_int(vm, (int64_t)arg->u, &v), &v);
}

/* INT also writes bools, as 00 and 01. */
static int op_int(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    if (ckpt_text_is(arg->text, "00") || ckpt_text_is(arg->text, "01"))
        return pickle_push(vm, vm->boolean[arg->text.s[1] == '1']);
    return push_new(vm, pickle_parse_int(vm, arg->text, &v), &v);
}

static int op_long(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    struct ckpt_text t = arg->text;
    t.n -= t.n > 0 && t.s[t.n - 1] == 'L';
    return push_new(vm, pickle_parse_int(vm, t, &v), &v);
}

static int op_long_bytes(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_long(vm, arg->text, &v), &v);
}

static int op_float(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_parse_float(vm, arg->text, &v), &v);
}

static int op_binfloat(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_float(vm, arg->f, &v), &v);
}

static int op_string(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_parse_quoted(vm, arg->text, &v), &v);
}

static int op_binstring(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_str2(vm, arg->text, &v), &v);
}

static int op_unicode(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_parse_raw_unicode(vm, arg->text, &v), &v);
}

static int op_binunicode(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_str(vm, arg->text, &v), &v);
}

static int op_binbytes(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    const bool is_left = vm->hooks && vm->hooks->left_blob && arg->text.n >= CKPT_PICKLE_LONG_BYTES;
    return push_new(vm, (is_left ? pickle_make_left_bytes : pickle_make_bytes)(vm, arg->text, &v),
                    &v);
}

/* --- containers ------------------------------------------------------------------------------ */

static int push_empty(struct pickle_vm *vm, int kind) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_object(vm, kind, &v), &v);
}

static int op_empty_list(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_empty(vm, CKPT_VALUE_LIST);
}

static int op_empty_dict(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_empty(vm, CKPT_VALUE_DICT);
}

static int op_empty_tuple(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_empty(vm, CKPT_VALUE_TUPLE);
}

static int op_empty_set(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_empty(vm, CKPT_VALUE_SET);
}

/* Of the items above the last mark. */
static int push_seq(struct pickle_vm *vm, int kind) {
    struct ckpt_value **items, *v = NULL;
    size_t n;
    int rc = pickle_pop_mark(vm, &items, &n);
    if (rc == 0)
        rc = pickle_make_seq(vm, kind, items, n, &v);
    return push_new(vm, rc, &v);
}

static int op_tuple(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_seq(vm, CKPT_VALUE_TUPLE);
}

static int op_list(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_seq(vm, CKPT_VALUE_LIST);
}

static int op_frozenset(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_seq(vm, CKPT_VALUE_SET);
}

static int push_short_tuple(struct pickle_vm *vm, size_t n) {
    struct ckpt_value *item[3], *v = NULL;
    int rc = 0;
    for (size_t i = n; i-- > 0 && rc == 0;)
        rc = pickle_pop(vm, &item[i]);
    if (rc == 0)
        rc = pickle_make_seq(vm, CKPT_VALUE_TUPLE, item, n, &v);
    return push_new(vm, rc, &v);
}

static int op_tuple1(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_short_tuple(vm, 1);
}

static int op_tuple2(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_short_tuple(vm, 2);
}

static int op_tuple3(struct pickle_vm *vm, const struct pickle_arg *arg) {
    (void)arg;
    return push_short_tuple(vm, 3);
}

static int op_dict(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items, *v = NULL;
    size_t n;
    (void)arg;
    int rc = pickle_pop_mark(vm, &items, &n);
    if (rc == 0)
        rc = pickle_make_object(vm, CKPT_VALUE_DICT, &v);
    if (rc == 0)
        rc = pickle_set_items(vm, v, items, n);
    return push_new(vm, rc, &v);
}

/* --- changing objects ------------------------------------------------------------------------ */

static int op_append(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v, *target;
    (void)arg;
    int rc = pickle_pop(vm, &v);
    if (rc == 0)
        rc = pickle_top(vm, &target);
    return rc ? rc : pickle_append(vm, target, &v, 1, CKPT_VALUE_LIST);
}

/* The items above the last mark go into the value below it. */
static int pop_items(struct pickle_vm *vm, struct ckpt_value **target, struct ckpt_value ***items,
                     size_t *n) {
    const int rc = pickle_pop_mark(vm, items, n);
    return rc ? rc : pickle_top(vm, target);
}

static int op_appends(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items, *target;
    size_t n;
    (void)arg;
    const int rc = pop_items(vm, &target, &items, &n);
    return rc ? rc : pickle_append(vm, target, items, n, CKPT_VALUE_LIST);
}

static int op_additems(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items, *target;
    size_t n;
    (void)arg;
    const int rc = pop_items(vm, &target, &items, &n);
    return rc ? rc : pickle_append(vm, target, items, n, CKPT_VALUE_SET);
}

static int op_setitem(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *kv[2], *target;
    (void)arg;
    int rc = pickle_pop(vm, &kv[1]);
    if (rc == 0)
        rc = pickle_pop(vm, &kv[0]);
    if (rc == 0)
        rc = pickle_top(vm, &target);
    return rc ? rc : pickle_set_items(vm, target, kv, 2);
}

static int op_setitems(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items, *target;
    size_t n;
    (void)arg;
    const int rc = pop_items(vm, &target, &items, &n);
    return rc ? rc : pickle_set_items(vm, target, items, n);
}

static int op_build(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *state, *target;
    (void)arg;
    int rc = pickle_pop(vm, &state);
    if (rc == 0)
        rc = pickle_top(vm, &target);
    return rc ? rc : pickle_build(vm, target, state);
}

/* --- names and calls ------------------------------------------------------------------------- */

static int op_global(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *v = NULL;
    return push_new(vm, pickle_make_global(vm, arg->text, arg->text2, &v), &v);
}

static int op_stack_global(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *module, *name, *v = NULL;
    (void)arg;
    int rc = pickle_pop(vm, &name);
    if (rc == 0)
        rc = pickle_pop(vm, &module);
    if (rc == 0 && (module->kind != CKPT_VALUE_STR || name->kind != CKPT_VALUE_STR))
        rc = pickle_fail(vm, "module and name are not strings");
    if (rc == 0)
        rc = pickle_make_global(vm, module->text, name->text, &v);
    return push_new(vm, rc, &v);
}

/* REDUCE and NEWOBJ: callee and argument tuple. */
static int op_reduce(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *args, *callee, *v = NULL;
    (void)arg;
    int rc = pickle_pop(vm, &args);
    if (rc == 0)
        rc = pickle_pop(vm, &callee);
    if (rc == 0)
        rc = pickle_call_apply(vm, callee, args, &v);
    return push_new(vm, rc, &v);
}

/* NEWOBJ_EX has keyword arguments too; no call that we know takes any. */
static int op_newobj_ex(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *keywords;
    const int rc = pickle_pop(vm, &keywords);
    return rc ? rc : op_reduce(vm, arg);
}

/* INST and OBJ: the old forms, whose arguments lie above the last mark. */
static int call_with_items(struct pickle_vm *vm, const struct ckpt_value *callee,
                           struct ckpt_value *const *items, size_t n) {
    struct ckpt_value *args, *v = NULL;
    int rc = pickle_make_seq(vm, CKPT_VALUE_TUPLE, items, n, &args);
    if (rc == 0)
        rc = pickle_call_apply(vm, callee, args, &v);
    return push_new(vm, rc, &v);
}

static int op_inst(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items, *callee;
    size_t n;
    int rc = pickle_pop_mark(vm, &items, &n);
    if (rc == 0)
        rc = pickle_make_global(vm, arg->text, arg->text2, &callee);
    return rc ? rc : call_with_items(vm, callee, items, n);
}

static int op_obj(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value **items;
    size_t n;
    (void)arg;
    const int rc = pickle_pop_mark(vm, &items, &n);
    if (rc)
        return rc;
    if (n == 0)
        return pickle_fail(vm, "no class above the MARK");
    return call_with_items(vm, items[0], items + 1, n - 1);
}

static int persistent(struct pickle_vm *vm, const struct ckpt_value *id) {
    struct ckpt_value *v = NULL;
    if (!vm->hooks || !vm->hooks->persistent_id)
        return pickle_fail(vm, "refers to data outside the pickle, of which this file has none");
    const int rc = pickle_charge(vm, 1);
    if (rc)
        return rc;
    if (vm->hooks->persistent_id(vm->hooks->user, id, &v, vm->err) != 0)
        return ckpt_fail_in(vm->err, "damaged pickle: byte %zu (%s)", vm->op_at, vm->op->name);
    return pickle_push(vm, v);
}

static int op_binpersid(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *id;
    (void)arg;
    const int rc = pickle_pop(vm, &id);
    return rc ? rc : persistent(vm, id);
}

static int op_persid(struct pickle_vm *vm, const struct pickle_arg *arg) {
    struct ckpt_value *id;
    const int rc = pickle_make_str(vm, arg->text, &id);
    return rc ? rc : persistent(vm, id);
}

const struct pickle_op ckpt_pickle_ops[256] = {
    [0x80] = {"PROTO", PICKLE_ARG_U8, op_proto},
    [0x95] = {"FRAME", PICKLE_ARG_U64, op_frame},
    ['.'] = {"STOP", PICKLE_ARG_NONE, op_stop},

    ['('] = {"MARK", PICKLE_ARG_NONE, op_mark},
    ['0'] = {"POP", PICKLE_ARG_NONE, op_pop},
    ['1'] = {"POP_MARK", PICKLE_ARG_NONE, op_pop_mark},
    ['2'] = {"DUP", PICKLE_ARG_NONE, op_dup},
    ['p'] = {"PUT", PICKLE_ARG_LINE, op_put},
    ['q'] = {"BINPUT", PICKLE_ARG_U8, op_binput},
    ['r'] = {"LONG_BINPUT", PICKLE_ARG_U32, op_binput},
    [0x94] = {"MEMOIZE", PICKLE_ARG_NONE, op_memoize},
    ['g'] = {"GET", PICKLE_ARG_LINE, op_get},
    ['h'] = {"BINGET", PICKLE_ARG_U8, op_binget},
    ['j'] = {"LONG_BINGET", PICKLE_ARG_U32, op_binget},

    ['N'] = {"NONE", PICKLE_ARG_NONE, op_none},
    [0x88] = {"NEWTRUE", PICKLE_ARG_NONE, op_true},
    [0x89] = {"NEWFALSE", PICKLE_ARG_NONE, op_false},
    ['I'] = {"INT", PICKLE_ARG_LINE, op_int},
    ['J'] = {"BININT", PICKLE_ARG_I32, op_binint},
    ['K'] = {"BININT1", PICKLE_ARG_U8, op_binint_unsigned},
    ['M'] = {"BININT2", PICKLE_ARG_U16, op_binint_unsigned},
    ['L'] = {"LONG", PICKLE_ARG_LINE, op_long},
    [0x8a] = {"LONG1", PICKLE_ARG_BYTES1, op_long_bytes},
    [0x8b] = {"LONG4", PICKLE_ARG_BYTES4_SIGNED, op_long_bytes},
    ['F'] = {"FLOAT", PICKLE_ARG_LINE, op_float},
    ['G'] = {"BINFLOAT", PICKLE_ARG_F64, op_binfloat},
    ['S'] = {"STRING", PICKLE_ARG_LINE, op_string},
    ['T'] = {"BINSTRING", PICKLE_ARG_BYTES4_SIGNED, op_binstring},
    ['U'] = {"SHORT_BINSTRING", PICKLE_ARG_BYTES1, op_binstring},
    ['V'] = {"UNICODE", PICKLE_ARG_LINE, op_unicode},
    ['X'] = {"BINUNICODE", PICKLE_ARG_BYTES4, op_binunicode},
    [0x8c] = {"SHORT_BINUNICODE", PICKLE_ARG_BYTES1, op_binunicode},
    [0x8d] = {"BINUNICODE8", PICKLE_ARG_BYTES8, op_binunicode},
    ['B'] = {"BINBYTES", PICKLE_ARG_BYTES4, op_binbytes},
    ['C'] = {"SHORT_BINBYTES", PICKLE_ARG_BYTES1, op_binbytes},
    [0x8e] = {"BINBYTES8", PICKLE_ARG_BYTES8, op_binbytes},
    [0x96] = {"BYTEARRAY8", PICKLE_ARG_BYTES8, op_binbytes},

    [']'] = {"EMPTY_LIST", PICKLE_ARG_NONE, op_empty_list},
    ['}'] = {"EMPTY_DICT", PICKLE_ARG_NONE, op_empty_dict},
    [')'] = {"EMPTY_TUPLE", PICKLE_ARG_NONE, op_empty_tuple},
    [0x8f] = {"EMPTY_SET", PICKLE_ARG_NONE, op_empty_set},
    ['t'] = {"TUPLE", PICKLE_ARG_NONE, op_tuple},
    [0x85] = {"TUPLE1", PICKLE_ARG_NONE, op_tuple1},
    [0x86] = {"TUPLE2", PICKLE_ARG_NONE, op_tuple2},
    [0x87] = {"TUPLE3", PICKLE_ARG_NONE, op_tuple3},
    ['l'] = {"LIST", PICKLE_ARG_NONE, op_list},
    ['d'] = {"DICT", PICKLE_ARG_NONE, op_dict},
    [0x91] = {"FROZENSET", PICKLE_ARG_NONE, op_frozenset},

    ['a'] = {"APPEND", PICKLE_ARG_NONE, op_append},
    ['e'] = {"APPENDS", PICKLE_ARG_NONE, op_appends},
    ['s'] = {"SETITEM", PICKLE_ARG_NONE, op_setitem},
    ['u'] = {"SETITEMS", PICKLE_ARG_NONE, op_setitems},
    [0x90] = {"ADDITEMS", PICKLE_ARG_NONE, op_additems},
    ['b'] = {"BUILD", PICKLE_ARG_NONE, op_build},

    ['c'] = {"GLOBAL", PICKLE_ARG_LINES, op_global},
    [0x93] = {"STACK_GLOBAL", PICKLE_ARG_NONE, op_stack_global},
    ['R'] = {"REDUCE", PICKLE_ARG_NONE, op_reduce},
    [0x81] = {"NEWOBJ", PICKLE_ARG_NONE, op_reduce},
    [0x92] = {"NEWOBJ_EX", PICKLE_ARG_NONE, op_newobj_ex},
    ['i'] = {"INST", PICKLE_ARG_LINES, op_inst},
    ['o'] = {"OBJ", PICKLE_ARG_NONE, op_obj},
    ['P'] = {"PERSID", PICKLE_ARG_LINE, op_persid},
    ['Q'] = {"BINPERSID", PICKLE_ARG_NONE, op_binpersid},

    [0x82] = {"EXT1", PICKLE_ARG_U8, op_refused},
    [0x83] = {"EXT2", PICKLE_ARG_U16, op_refused},
    [0x84] = {"EXT4", PICKLE_ARG_I32, op_refused},
    [0x97] = {"NEXT_BUFFER", PICKLE_ARG_NONE, op_refused},
    [0x98] = {"READONLY_BUFFER", PICKLE_ARG_NONE, op_refused},
};

static int step(struct pickle_vm *vm) {
    struct pickle_arg arg;
    bool negative;
    vm->op_at = vm->in.pos;
    vm->op = NULL;
    if (ckpt_buf_left(&vm->in) == 0)
        return pickle_fail(vm, "ends before its STOP opcode; the file is cut short?");
    const uint8_t code = ckpt_buf_u8(&vm->in);
    vm->op = &ckpt_pickle_ops[code];
    if (!vm->op->name)
        return ckpt_fail(vm->err, -EINVAL, "damaged pickle: byte %zu: 0x%02x is no opcode",
                         vm->op_at, code);
    if (!pickle_read_arg(&vm->in, vm->op->arg, &arg, &negative))
        return pickle_fail(vm, "its argument reaches past the end; the file is cut short?");
    if (negative)
        return pickle_fail(vm, "a negative length");
    return vm->op->run(vm, &arg);
}

static int make_constants(struct pickle_vm *vm) {
    int rc = pickle_make(vm, CKPT_VALUE_NONE, &vm->none);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = pickle_make(vm, CKPT_VALUE_BOOL, &vm->boolean[i]);
        if (rc == 0)
            vm->boolean[i]->b = i;
    }
    return rc;
}

static void vm_fini(struct pickle_vm *vm) {
    pickle_stack_fini(&vm->stack);
    pickle_memo_fini(&vm->memo);
}
CKPT_DEFINE_AUTO(pickle_vm, struct pickle_vm, vm_fini)

int ckpt_pickle_run(const uint8_t *bytes, size_t n, const struct ckpt_pickle_hooks *hooks,
                    struct ckpt_arena *arena, size_t *consumed, struct ckpt_value **value,
                    struct ckpt_err *err) {
    const size_t outer_limit = arena->limit;
    CKPT_AUTO(pickle_vm)
    struct pickle_vm vm = {.in = {.p = bytes, .n = n}, .arena = arena, .hooks = hooks, .err = err};
    if (!outer_limit)
        arena->limit = arena->used + CKPT_LIMIT_PICKLE_ARENA;
    int rc = make_constants(&vm);
    while (rc == 0 && !vm.stopped)
        rc = step(&vm);
    if (rc < 0 && arena->exceeded) /* whoever asked for the memory: a hook, too */
        rc = pickle_fail_memory(&vm);
    arena->limit = outer_limit;
    *consumed = vm.in.pos;
    *value = vm.result;
    return rc;
}
