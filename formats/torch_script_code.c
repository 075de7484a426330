#include "formats/torch_script.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"

/*
 * The lines of TorchScript's source that say what a class is:
 *
 *     class NAME(BASE):
 *       __parameters__ = ["a", "b", ]
 *       __buffers__ = ["c", ]
 *       NAME : Final[TYPE] = LITERAL
 *
 * torch writes each of them as one line, so nothing needs to be parsed but lines.
 */

#define CONSTANTS_MAX 64 /* of a class: torch.nn has none with 20 */

struct scanner {
    struct ckpt_text text;
    size_t at; /* where the current line begins */
    struct torch_script_code *code;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
};

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading TorchScript code");
}

static struct ckpt_text line_at(const struct scanner *s) {
    const char *from = s->text.s + s->at;
    const char *end = memchr(from, '\n', s->text.n - s->at);
    return (struct ckpt_text){from, end ? (size_t)(end - from) : s->text.n - s->at};
}

/* What follows the prefix, or .s NULL. */
static struct ckpt_text after(struct ckpt_text line, const char *prefix) {
    const size_t n = strlen(prefix);
    return ckpt_text_starts(line, prefix) ? (struct ckpt_text){line.s + n, line.n - n}
                                          : (struct ckpt_text){NULL, 0};
}

static int add_class(struct scanner *s, struct ckpt_text head) {
    struct torch_script_code *c = s->code;
    const char *open = memchr(head.s, '(', head.n);
    if (!open || !ckpt_text_ends(head, "):"))
        return 0; /* an enumeration or an interface */
    if (!ckpt_array_grow(&c->classes, c->n, &c->cap, sizeof *c->classes))
        return fail_memory(s->err);
    const size_t n = (size_t)(open - head.s);
    const struct ckpt_text base = {open + 1, head.n - n - 3};
    c->classes[c->n++] =
        (struct torch_script_class){.name = {head.s, n}, .is_module = ckpt_text_is(base, "Module")};
    return 0;
}

/* The quoted name that `list` begins with, unescaped; the list then goes on behind its quote. */
static struct ckpt_text take_name(struct scanner *s, struct ckpt_text *list) {
    char *out = ckpt_arena_alloc(s->arena, list->n);
    size_t i = 1, n = 0;
    for (; out && i < list->n && list->s[i] != '"'; i++) {
        i += list->s[i] == '\\' && i + 1 < list->n;
        out[n++] = list->s[i];
    }
    if (!out || i >= list->n)
        return (struct ckpt_text){NULL, 0};
    list->s += i + 1;
    list->n -= i + 1;
    return (struct ckpt_text){out, n};
}

static int fail_list(const struct scanner *s) {
    return ckpt_fail(s->err, -EINVAL,
                     "TorchScript code, byte %zu: expected a list of quoted names on this line",
                     s->at);
}

/* "a", "b", ] */
static int add_names(struct scanner *s, struct ckpt_text list, enum torch_script_role role) {
    struct torch_script_code *c = s->code;
    if (c->n == 0)
        return fail_list(s);
    while (list.n && *list.s == '"') {
        const struct ckpt_text name = take_name(s, &list);
        if (!name.s)
            return fail_list(s);
        const int rc = ckpt_strmap_add(&c->classes[c->n - 1].role, name, role, NULL);
        if (rc == -EEXIST)
            return ckpt_fail(s->err, -EINVAL, "TorchScript code, byte %zu: \"%.*s\" is named twice",
                             s->at, CKPT_TEXT_ARGS(name));
        if (rc)
            return fail_memory(s->err);
        for (; list.n && (*list.s == ',' || *list.s == ' '); list.n--)
            list.s++;
    }
    return ckpt_text_is(list, "]") ? 0 : fail_list(s);
}

/* "eps : Final[float] = 1.0000000000000001e-05", where a class's attributes stand. What isn't
 * understood is left out: nothing but evidence is lost. Names that begin with "_" are torch's own.
 */
static int add_constant(struct scanner *s, struct ckpt_text line) {
    static const char final[] = " : Final[", equals[] = "] = ";
    struct torch_script_code *c = s->code;
    const char *const colon = memmem(line.s, line.n, final, sizeof final - 1);
    const char *const end =
        colon ? memmem(colon, (size_t)(line.s + line.n - colon), equals, sizeof equals - 1) : NULL;
    if (!end || c->n == 0 || line.s[0] == '_' || line.s[0] == ' ')
        return 0;
    struct torch_script_class *const cls = &c->classes[c->n - 1];
    if (cls->nconstants == 2 * CONSTANTS_MAX)
        return 0;
    const char *const from = end + sizeof equals - 1;
    struct ckpt_value *const name = ckpt_arena_alloc(s->arena, sizeof *name);
    struct ckpt_value *value = NULL;
    const int rc = torch_script_constant(
        s->arena, (struct ckpt_text){from, (size_t)(line.s + line.n - from)}, &value, s->err);
    if (rc || !value)
        return rc;
    if (!name ||
        !ckpt_array_grow(&cls->constant, cls->nconstants, &cls->constants_cap,
                         sizeof *cls->constant) ||
        !ckpt_array_grow(&cls->constant, cls->nconstants + 1, &cls->constants_cap,
                         sizeof *cls->constant))
        return fail_memory(s->err);
    name->kind = CKPT_VALUE_STR;
    name->text = (struct ckpt_text){line.s, (size_t)(colon - line.s)};
    cls->constant[cls->nconstants++] = name;
    cls->constant[cls->nconstants++] = value;
    return 0;
}

static int read_line(struct scanner *s, struct ckpt_text line) {
    struct ckpt_text rest = after(line, "class ");
    if (rest.s)
        return add_class(s, rest);
    rest = after(line, "  __parameters__ = [");
    if (rest.s)
        return add_names(s, rest, TORCH_SCRIPT_PARAMETER);
    rest = after(line, "  __buffers__ = [");
    if (rest.s)
        return add_names(s, rest, TORCH_SCRIPT_BUFFER);
    rest = after(line, "  ");
    return rest.n ? add_constant(s, rest) : 0;
}

int torch_script_parse(struct torch_script_code *code, struct ckpt_arena *a, struct ckpt_text text,
                       struct ckpt_err *err) {
    struct scanner s = {.text = text, .code = code, .arena = a, .err = err};
    *code = (struct torch_script_code){0};
    int rc = 0;
    while (rc == 0 && s.at < text.n) {
        const struct ckpt_text line = line_at(&s);
        rc = read_line(&s, line);
        s.at += line.n + 1;
    }
    if (rc)
        torch_script_code_fini(code);
    return rc;
}

void torch_script_code_fini(struct torch_script_code *code) {
    for (size_t i = 0; i < code->n; i++) {
        ckpt_strmap_fini(&code->classes[i].role);
        free(code->classes[i].constant);
    }
    free(code->classes);
    *code = (struct torch_script_code){0};
}
