#ifndef CKPT_FUZZ_GRAPH_MUTATE_H
#define CKPT_FUZZ_GRAPH_MUTATE_H
/*
 * Changes to a graph's JSON that a reader still takes: bytes changed at random are nearly always
 * refused as JSON, and what runs a graph then sees nothing. A number becomes an odd one, a name
 * another one of the document, an operation another operation of the checker's tables; and a node
 * is put in, its arguments made after the schema of some operation.
 */
#include "base/cleanup.h"
#include "verify/op_schema.h"

#include "graph_text.h"

/* ---- changes ---- */

/* The number behind "as_int": or any other. */
static bool change_number(struct mutation *m) {
    static const char *const before[] = {"\"as_int\": ", "\"as_ints\": [",
                                         "\"as_float\": ", "\"dtype\": ", ": "};
    const char *const word = before[pick(m, sizeof(before) / sizeof(before[0]))];
    size_t at = find_word(m, word, 0), end;
    if (at == SIZE_MAX)
        return false;
    at += strlen(word);
    for (end = at; end < m->text.n && is_number(m->text.s[end]); end++)
        ;
    const char *const number = odd_number(m);
    if (end > at)
        replace(m, at, end - at, number, strlen(number));
    return end > at;
}

/* A name of a value becomes another one. */
static bool change_name(struct mutation *m) {
    static const char word[] = "\"name\": \"";
    const size_t a = find_word(m, word, 0), b = find_word(m, word, 0);
    struct ckpt_text old, other;
    if (a == SIZE_MAX || !string_at(m, a + strlen(word), &old) ||
        !string_at(m, b + strlen(word), &other))
        return false;
    replace(m, (size_t)(old.s - m->text.s), old.n, other.s, other.n);
    return true;
}

static const struct ckpt_op *any_op(struct mutation *m) {
    size_t n = 0;
    while (ckpt_op_at(n))
        n++;
    return ckpt_op_at(pick(m, n));
}

/* "torch.ops.aten.max.dim", of which a third are in place. */
static void put_target(struct mutation *m, const struct ckpt_op *op, struct ckpt_str *to) {
    const char *const s = op->schema + strlen(op->name);
    ckpt_str_printf(to, "torch.ops.aten.%s%s.", op->name, pick(m, 4) ? "" : "_");
    if (*s == '.')
        ckpt_str_add(to, s + 1, strcspn(s + 1, "("));
    else
        ckpt_str_puts(to, "default");
}

static bool change_target(struct mutation *m) {
    static const char word[] = "\"target\": \"";
    const size_t at = find_word(m, word, 0);
    struct ckpt_text old;
    CKPT_AUTO(str) struct ckpt_str target = {0};
    if (at == SIZE_MAX || !string_at(m, at + strlen(word), &old))
        return false;
    put_target(m, any_op(m), &target);
    replace(m, (size_t)(old.s - m->text.s), old.n, target.s, target.n);
    return true;
}

/* A member of the document, with its key, is cut out. */
static bool drop_member(struct mutation *m) {
    const size_t at = find_word(m, "{\"target\": ", 0);
    const size_t end = at == SIZE_MAX ? at : find_word(m, "{\"target\": ", at + 1);
    if (end == SIZE_MAX)
        return false;
    replace(m, at, end - at, "", 0);
    return true;
}

/* ---- a node more ---- */

static void put_name(struct mutation *m, struct ckpt_str *to) {
    static const char word[] = "\"as_tensor\": {\"name\": \"";
    const size_t at = find_word(m, word, 0);
    struct ckpt_text name = CKPT_TEXT("x");
    if (at != SIZE_MAX)
        string_at(m, at + strlen(word), &name);
    ckpt_str_printf(to, "{\"name\": \"%.*s\"}", CKPT_TEXT_ARGS(name));
}

static void put_list(struct mutation *m, struct ckpt_str *to, bool tensors) {
    const size_t n = pick(m, 5);
    ckpt_str_puts(to, "[");
    for (size_t i = 0; i < n; i++) {
        ckpt_str_puts(to, i ? ", " : "");
        if (tensors)
            put_name(m, to);
        else
            ckpt_str_puts(to, pick(m, 9) ? odd_number(m) : "4");
    }
    ckpt_str_puts(to, "]");
}

/* The argument's JSON, after the type in the schema. */
static void put_value(struct mutation *m, struct ckpt_text type, struct ckpt_str *to) {
    static const char *const words[] = {"none", "mean", "sum", "tanh", "constant", "reflect"};
    const bool list = memchr(type.s, '[', type.n) != NULL;
    if (ckpt_text_starts(type, "Tensor")) {
        ckpt_str_puts(to, list ? "\"as_tensors\": " : "\"as_tensor\": ");
        if (list)
            put_list(m, to, true);
        else
            put_name(m, to);
    } else if (list) {
        ckpt_str_puts(to, "\"as_ints\": ");
        put_list(m, to, false);
    } else if (ckpt_text_starts(type, "bool")) {
        ckpt_str_printf(to, "\"as_bool\": %s", pick(m, 2) ? "true" : "false");
    } else if (ckpt_text_starts(type, "str")) {
        ckpt_str_printf(to, "\"as_string\": \"%s\"", words[pick(m, 6)]);
    } else if (ckpt_text_starts(type, "ScalarType")) {
        ckpt_str_printf(to, "\"as_scalar_type\": %zu", pick(m, 14));
    } else if (ckpt_text_starts(type, "float") || (ckpt_text_starts(type, "Sca") && pick(m, 2))) {
        ckpt_str_printf(to, "\"as_float\": %s", pick(m, 2) ? "0.5" : odd_number(m));
    } else {
        ckpt_str_printf(to, "\"as_int\": %s", odd_number(m));
    }
}

static void put_node(struct mutation *m, const struct ckpt_op *op, size_t name,
                     struct ckpt_str *to) {
    struct ckpt_schema_param p;
    bool first = true;
    ckpt_str_puts(to, "{\"target\": \"");
    put_target(m, op, to);
    ckpt_str_puts(to, "\", \"inputs\": [");
    for (uint32_t i = 0; ckpt_schema_param(op->schema, i, &p); i++) {
        if (p.optional && pick(m, 3))
            continue;
        ckpt_str_printf(to, "%s{\"name\": \"%.*s\", \"arg\": {", first ? "" : ", ",
                        CKPT_TEXT_ARGS(p.name));
        put_value(m, p.type, to);
        ckpt_str_puts(to, "}, \"kind\": 1}");
        first = false;
    }
    ckpt_str_printf(to,
                    "], \"outputs\": [{\"as_tensor\": {\"name\": \"m%zu\"}}], \"metadata\": {}, "
                    "\"is_hop_single_tensor_return\": null}, ",
                    name);
}

/* Before some node; and some later argument becomes its result. */
static bool add_node(struct mutation *m) {
    const size_t at = find_word(m, "{\"target\": ", 0), name = pick(m, 100000);
    CKPT_AUTO(str) struct ckpt_str node = {0};
    if (at == SIZE_MAX)
        return false;
    const size_t use = find_word(m, "\"as_tensor\": {\"name\": \"", at);
    put_node(m, any_op(m), name, &node);
    struct ckpt_text old;
    if (use == SIZE_MAX || !string_at(m, use + strlen("\"as_tensor\": {\"name\": \""), &old)) {
        replace(m, at, 0, node.s, node.n);
        return true;
    }
    m->out.n = 0;
    const size_t from = (size_t)(old.s - m->text.s);
    ckpt_str_add(&m->out, m->text.s, at);
    ckpt_str_add(&m->out, node.s, node.n);
    ckpt_str_add(&m->out, m->text.s + at, from - at);
    ckpt_str_printf(&m->out, "m%zu", name);
    ckpt_str_add(&m->out, old.s + old.n, m->text.n - from - old.n);
    return true;
}

/* ---- libFuzzer's entry ---- */

/* Of libFuzzer; not there when inputs are only replayed. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static bool (*const changes[])(struct mutation *) = {change_number, change_number, change_name,
                                                         change_target, drop_member,   add_node,
                                                         add_node,      add_node,      add_node};
    struct mutation m = {.state = seed};
    if (pick(&m, 20) == 0 && LLVMFuzzerMutate)
        return LLVMFuzzerMutate(data, size, max_size);
    for (size_t edits = 1 + pick(&m, 4); edits > 0; edits--) {
        m.text = (struct ckpt_text){(const char *)data, size};
        if (!changes[pick(&m, sizeof(changes) / sizeof(changes[0]))](&m) || m.out.failed ||
            m.out.n > max_size)
            continue;
        memcpy(data, m.out.s, m.out.n);
        size = m.out.n;
    }
    ckpt_str_fini(&m.out);
    return size;
}

#endif
