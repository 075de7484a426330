/* Statements, and calls of what the code defines: both are followed, none is ever left to run. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/limits.h"
#include "formats/script_machine.h"
#include "formats/torch_script.h"

int script_fail(const struct script_machine *m, int code, const char *fmt, ...) {
    char what[CKPT_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (!m->function)
        return ckpt_fail(m->err, code, "%s", what);
    return ckpt_fail(m->err, code, "%.*s, line %u: %s", CKPT_TEXT_ARGS(m->function->file->name),
                     m->line, what);
}

int script_fail_memory(const struct script_machine *m) {
    return script_fail(m, -E2BIG,
                       "it needs more memory than there is, or than the %u bytes that a script may "
                       "take (limit of a script's memory)",
                       CKPT_LIMIT_SCRIPT_ARENA);
}

int script_step(struct script_machine *m, uint64_t n) {
    m->steps += n;
    if (m->steps > CKPT_LIMIT_SCRIPT_STEPS)
        return script_fail(m, -E2BIG, "more than %u steps (limit of a script's steps)",
                           CKPT_LIMIT_SCRIPT_STEPS);
    return 0;
}

int script_enter(struct script_machine *m) {
    if (m->depth == CKPT_LIMIT_SCRIPT_DEPTH)
        return script_fail(m, -E2BIG,
                           "calls and expressions nested more than %u deep (limit of a script's "
                           "depth)",
                           CKPT_LIMIT_SCRIPT_DEPTH);
    m->depth++;
    return 0;
}

static int run_block(struct script_machine *m, struct script_frame *f,
                     const struct script_block *block);

/* --- conditions ------------------------------------------------------------------------------- */

static bool is_raise(const struct script_stmt *s) {
    char name[SCRIPT_DOTTED_MAX];
    if (s->kind == SCRIPT_STMT_OTHER)
        return ckpt_text_is(s->text, "raise");
    return s->kind == SCRIPT_STMT_EXPR && s->value->kind == SCRIPT_EXPR_CALL &&
           script_eval_dotted(NULL, s->value->base, name) &&
           strcmp(name, "ops.prim.RaiseException") == 0;
}

/* Whether the block always ends in an exception. */
static bool always_raises(const struct script_block *block) {
    const struct script_stmt *const last = block->n ? &block->stmt[block->n - 1] : NULL;
    if (last && last->kind == SCRIPT_STMT_IF)
        return always_raises(&last->body) && always_raises(&last->otherwise);
    return last && is_raise(last);
}

/* What only a run can decide. A model whose output is at hand did not raise, so where one side does
 * nothing else, the other is the one. */
static int run_undecided(struct script_machine *m, struct script_frame *f,
                         const struct script_stmt *s) {
    if (always_raises(&s->body))
        return run_block(m, f, &s->otherwise);
    if (always_raises(&s->otherwise))
        return run_block(m, f, &s->body);
    return script_fail(m, -EOPNOTSUPP, "\"if\" on what only a run of the model knows");
}

static int run_if(struct script_machine *m, struct script_frame *f, const struct script_stmt *s) {
    struct script_value condition;
    const int rc = script_eval(m, f, s->value, &condition);
    if (rc)
        return rc;
    if (condition.kind == SCRIPT_VALUE_GRAPH)
        return run_undecided(m, f, s);
    if (condition.kind != SCRIPT_VALUE_BOOL)
        return script_fail(m, -EINVAL, "\"if\" on what is no truth value");
    return run_block(m, f, condition.b ? &s->body : &s->otherwise);
}

/* --- loops ------------------------------------------------------------------------------------ */

/* The numbers of range(n), or -1: it is something else. */
static int loop_count(struct script_machine *m, const struct script_frame *f,
                      const struct script_expr *e, int64_t *n) {
    char name[SCRIPT_DOTTED_MAX];
    struct script_value v;
    *n = -1;
    if (e->kind != SCRIPT_EXPR_CALL || e->n != 1 || !script_eval_dotted(f, e->base, name) ||
        strcmp(name, "range") != 0)
        return 0;
    const int rc = script_eval(m, f, e->arg[0].value, &v);
    if (rc == 0 && v.kind == SCRIPT_VALUE_INT)
        *n = v.i > 0 ? v.i : 0;
    return rc;
}

static int run_for(struct script_machine *m, struct script_frame *f, const struct script_stmt *s) {
    int64_t n;
    int rc = loop_count(m, f, s->value, &n);
    if (rc == 0 && n < 0)
        return script_fail(m, -EOPNOTSUPP, "\"for\" over what only a run of the model knows");
    for (int64_t i = 0; rc == 0 && i < n && !f->returned; i++) {
        f->slot[s->target[0]] = script_int(i);
        rc = script_step(m, 1);
        if (rc == 0)
            rc = run_block(m, f, &s->body);
    }
    return rc;
}

/* --- statements ------------------------------------------------------------------------------- */

static int run_assign(struct script_machine *m, struct script_frame *f,
                      const struct script_stmt *s) {
    struct script_value v;
    const bool many = s->ntargets > 1 || s->unpacks, returns = many && !s->unpacks;
    int rc = returns && s->value->kind == SCRIPT_EXPR_CALL
                 ? script_eval_call(m, f, s->value, s->ntargets, &v)
                 : script_eval(m, f, s->value, &v);
    if (rc)
        return rc;
    if (!many) {
        f->slot[s->target[0]] = v;
        return 0;
    }
    rc = script_list_expect(m, &v, s->ntargets);
    for (uint32_t i = 0; rc == 0 && i < s->ntargets; i++)
        f->slot[s->target[i]] = v.list->item[i];
    return rc;
}

static int run_return(struct script_machine *m, struct script_frame *f,
                      const struct script_stmt *s) {
    f->returned = true;
    return s->value ? script_eval(m, f, s->value, &f->result) : 0;
}

static int run_statement(struct script_machine *m, struct script_frame *f,
                         const struct script_stmt *s) {
    struct script_value ignored;
    switch ((enum script_stmt_kind)s->kind) {
    case SCRIPT_STMT_ASSIGN:
        return run_assign(m, f, s);
    case SCRIPT_STMT_EXPR:
        return script_eval(m, f, s->value, &ignored);
    case SCRIPT_STMT_RETURN:
        return run_return(m, f, s);
    case SCRIPT_STMT_IF:
        return run_if(m, f, s);
    case SCRIPT_STMT_FOR:
        return run_for(m, f, s);
    case SCRIPT_STMT_OTHER:
        break;
    }
    return script_fail(m, -EOPNOTSUPP, "\"%.*s\": what it does only a run of the model would tell",
                       CKPT_TEXT_ARGS(s->text));
}

static int run_block(struct script_machine *m, struct script_frame *f,
                     const struct script_block *block) {
    int rc = script_enter(m);
    if (rc)
        return rc;
    for (size_t i = 0; rc == 0 && i < block->n && !f->returned; i++) {
        m->line = block->stmt[i].line;
        rc = script_step(m, 1);
        if (rc == 0)
            rc = run_statement(m, f, &block->stmt[i]);
    }
    m->depth--;
    return rc;
}

/* --- calls ------------------------------------------------------------------------------------ */

static const struct script_param *find_param(const struct script_function *f,
                                             struct ckpt_text name) {
    for (uint32_t i = 0; i < f->nparams; i++)
        if (ckpt_text_eq(f->param[i].name, name))
            return &f->param[i];
    return NULL;
}

/* Into the parameters' slots: `first` of them are taken by self. */
static int bind(struct script_machine *m, const struct script_function *f,
                const struct script_actuals *actuals, uint32_t first, struct script_frame *frame) {
    for (uint32_t i = 0; i < actuals->n; i++) {
        const struct ckpt_text name = actuals->item[i].name;
        const struct script_param *const p = name.n                   ? find_param(f, name)
                                             : first + i < f->nparams ? &f->param[first + i]
                                                                      : NULL;
        if (!p || frame->slot[p->slot].kind != SCRIPT_VALUE_UNSET)
            return script_fail(m, -EINVAL, "\"%.*s\" does not take these arguments",
                               CKPT_TEXT_ARGS(f->name));
        frame->slot[p->slot] = actuals->item[i].value;
    }
    return 0;
}

static int bind_standards(struct script_machine *m, const struct script_function *f,
                          struct script_frame *frame) {
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < f->nparams; i++) {
        const struct script_param *const p = &f->param[i];
        if (frame->slot[p->slot].kind != SCRIPT_VALUE_UNSET)
            continue;
        if (!p->standard)
            return script_fail(m, -EINVAL, "\"%.*s\" lacks its argument \"%.*s\"",
                               CKPT_TEXT_ARGS(f->name), CKPT_TEXT_ARGS(p->name));
        rc = script_eval(m, NULL, p->standard, &frame->slot[p->slot]);
    }
    return rc;
}

static int run_body(struct script_machine *m, const struct script_function *f,
                    struct script_frame *frame, struct script_value *out) {
    const struct script_function *const caller = m->function;
    const uint32_t line = m->line;
    m->function = f;
    m->line = f->line;
    const int rc = run_block(m, frame, &f->body);
    *out = frame->result;
    if (rc == 0) {
        m->function = caller;
        m->line = line;
    }
    return rc;
}

/* Inside the module whose method it is, unless that is where we are. */
static int enter_module(struct script_machine *m, const struct script_value *self) {
    const struct ckpt_graph_stack *const s = m->stack;
    if (!self || self->kind != SCRIPT_VALUE_OBJECT || !script_object_is_module(self->object))
        return 0;
    const struct script_object *const o = self->object;
    if (s && ckpt_text_eq(s->frame[s->n - 1].path, o->path))
        return 0;
    const struct ckpt_text cls = torch_script_plain_class(&m->arena, o->value->text);
    return cls.s ? script_graph_push_stack(&m->graph, s, o->path, cls, &m->stack)
                 : script_fail_memory(m);
}

int script_call(struct script_machine *m, const struct script_function *f,
                const struct script_value *self, const struct script_actuals *actuals,
                struct script_value *out) {
    CKPT_AUTO(free) struct script_value *slot = calloc(f->nslots + 1, sizeof *slot);
    struct script_frame frame = {.slot = slot, .result = {.kind = SCRIPT_VALUE_NONE}};
    const struct ckpt_graph_stack *const stack = m->stack;
    int rc = slot ? script_step(m, f->nslots) : script_fail_memory(m);
    if (rc == 0)
        rc = enter_module(m, self);
    if (rc == 0 && self && f->nparams == 0)
        rc = script_fail(m, -EINVAL, "\"%.*s\" does not take self", CKPT_TEXT_ARGS(f->name));
    if (rc)
        return rc;
    if (self)
        slot[f->param[0].slot] = *self;
    rc = bind(m, f, actuals, self ? 1 : 0, &frame);
    if (rc == 0)
        rc = bind_standards(m, f, &frame);
    if (rc == 0)
        rc = run_body(m, f, &frame, out);
    m->stack = stack;
    return rc;
}

/* --- the whole script ------------------------------------------------------------------------- */

static int take_input(struct script_machine *m, struct ckpt_text name,
                      const struct script_expr *type, struct script_value *out);

/* Tuple[Tensor, Tensor]: each of its parts is an input, as torch.export has it. */
static int take_tuple_input(struct script_machine *m, struct ckpt_text name,
                            const struct script_expr *type, struct script_value *out) {
    int rc = script_list_new(m, SCRIPT_VALUE_TUPLE, type->n, out);
    if (rc == 0)
        rc = script_enter(m);
    if (rc)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < type->n; i++)
        rc = take_input(m, name, type->arg[i].value, &out->list->item[i]);
    m->depth--;
    return rc;
}

static int take_input(struct script_machine *m, struct ckpt_text name,
                      const struct script_expr *type, struct script_value *out) {
    static const struct {
        const char *name;
        enum ckpt_graph_type type;
    } types[] = {{"Tensor", CKPT_GRAPH_TENSOR},
                 {"int", CKPT_GRAPH_SYM_INT},
                 {"float", CKPT_GRAPH_SYM_FLOAT},
                 {"bool", CKPT_GRAPH_SYM_BOOL}};
    uint32_t value;
    if (type && type->kind == SCRIPT_EXPR_INDEX && type->base->kind == SCRIPT_EXPR_NAME &&
        ckpt_text_is(type->base->text, "Tuple"))
        return take_tuple_input(m, name, type, out);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (type && !(type->kind == SCRIPT_EXPR_NAME && ckpt_text_is(type->text, types[i].name)))
            continue;
        *out = (struct script_value){.kind = SCRIPT_VALUE_NONE};
        const int rc = script_graph_add_input(&m->graph, CKPT_GRAPH_USER, "user_input", name,
                                              types[i].type, &value);
        *out = script_graph_value(value, types[i].type);
        out->integral = types[i].type == CKPT_GRAPH_SYM_INT;
        return rc;
    }
    return script_fail(m, -EOPNOTSUPP,
                       "argument \"%.*s\" of the model is neither a tensor nor a number",
                       CKPT_TEXT_ARGS(name));
}

/* The arguments of forward: inputs of the graph, but for those that have a standard. */
static int take_inputs(struct script_machine *m, const struct script_function *f,
                       struct script_actuals *actuals) {
    int rc = 0;
    for (uint32_t i = 1; rc == 0 && i < f->nparams; i++) {
        const struct script_param *const p = &f->param[i];
        if (p->standard)
            continue;
        actuals->item[actuals->n].name = p->name;
        rc = take_input(m, p->name, p->type, &actuals->item[actuals->n++].value);
    }
    return rc;
}

/* One output a leaf of what forward returns. */
static int give_outputs(struct script_machine *m, const struct script_value *v) {
    const bool is_dict = v->kind == SCRIPT_VALUE_DICT;
    struct ckpt_graph_arg arg;
    if (!script_is_list(v) && !is_dict) {
        const int rc = script_arg(m, CKPT_TEXT(""), v, &arg);
        return rc ? rc : script_graph_add_output(&m->graph, CKPT_GRAPH_USER, "user_output", arg);
    }
    int rc = is_dict ? 0 : script_list_close(m, v);
    if (rc == 0)
        rc = script_enter(m);
    if (rc)
        return rc;
    for (size_t i = is_dict; rc == 0 && i < v->list->n; i += is_dict ? 2 : 1) {
        rc = script_step(m, 1);
        if (rc == 0)
            rc = give_outputs(m, &v->list->item[i]);
    }
    m->depth--;
    return rc;
}

static int find_forward(struct script_machine *m, const struct script_value *root,
                        const struct script_function **out) {
    const struct script_object *const o = root->kind == SCRIPT_VALUE_OBJECT ? root->object : NULL;
    *out = o && o->cls ? script_class_method(o->file, o->cls, CKPT_TEXT("forward")) : NULL;
    if (!*out)
        return ckpt_fail(m->err, -EOPNOTSUPP,
                         "the archive has no source of a method \"forward\" of its module");
    if ((*out)->nparams == 0)
        return ckpt_fail(m->err, -EINVAL, "\"forward\" does not take self");
    return 0;
}

static int run(struct script_machine *m, const struct ckpt_value *root) {
    CKPT_AUTO(script_actuals) struct script_actuals actuals = {0};
    const struct script_function *forward;
    struct script_value self, result;
    int rc = script_object_root(m, root, &self);
    if (rc == 0)
        rc = find_forward(m, &self, &forward);
    if (rc)
        return rc;
    actuals.item = calloc(forward->nparams, sizeof *actuals.item);
    if (!actuals.item)
        return script_fail_memory(m);
    rc = take_inputs(m, forward, &actuals);
    if (rc == 0)
        rc = script_call(m, forward, &self, &actuals, &result);
    if (rc == 0)
        rc = give_outputs(m, &result);
    return rc ? rc : script_graph_prune(&m->graph);
}

int script_follow(struct script_machine *m, const struct ckpt_value *root,
                  struct ckpt_graph **out) {
    CKPT_AUTO(graph) struct ckpt_graph *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return ckpt_fail_memory(m->err, "reading a graph");
    g->arena.limit = CKPT_LIMIT_SCRIPT_ARENA;
    g->torch_version = CKPT_TEXT("");
    m->arena.limit = CKPT_LIMIT_SCRIPT_ARENA;
    m->graph = (struct script_graph){.graph = g, .err = m->err};
    m->source.arena = &m->arena;
    m->source.err = m->err;
    const int rc = run(m, root);
    if (rc == 0)
        *out = CKPT_STEAL(g);
    return rc;
}

void script_machine_fini(struct script_machine *m) {
    script_source_fini(&m->source);
    script_graph_fini(&m->graph);
    ckpt_arena_fini(&m->arena);
}
