#include "formats/torch_script.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "formats/pickle_vm.h"

/*
 * From TorchScript's objects to the state of a torch.nn.Module, so that everything else about
 * modules has one implementation:
 *
 *     __torch__.net.Linear                      torch.nn's
 *       {"weight": tensor, "training": True,  ──►  {"_parameters": {"weight": tensor},
 *        "cache": tensor, "act": object}            "_buffers": {}, "_modules": {"act": module},
 *                                                   "training": True}
 *
 * Tensors that the class declares neither as parameter nor as buffer are not in its state dict.
 * Archives of the lite interpreter have no source: of them all tensors are taken.
 */

#define CLASS_PREFIX "__torch__."
#define CUSTOM_CLASS_PREFIX "__torch__.torch.classes." /* written in C++: no source, no modules */
#define CLASS_NAME_MAX 512

struct script {
    struct torch_reader *r;
    const struct ckpt_zip *zip;
    struct ckpt_text folder;
    struct torch_script_code *files;
    size_t nfiles, files_cap;
    struct ckpt_strmap by_file;  /* "__torch__.net" -> 0, once read */
    struct ckpt_strmap by_class; /* "__torch__.net.Linear" -> index in classes */
    struct torch_script_class **classes;
    size_t nclasses, classes_cap;
    uint64_t code_bytes; /* inflated so far */
    bool warned;
    struct ckpt_err *err;
};

static void script_fini(struct script *s) {
    for (size_t i = 0; i < s->nfiles; i++)
        torch_script_code_fini(&s->files[i]);
    free(s->files);
    free(s->classes);
    ckpt_strmap_fini(&s->by_file);
    ckpt_strmap_fini(&s->by_class);
}
CKPT_DEFINE_AUTO(script, struct script, script_fini)

static int fail_memory(struct script *s) {
    return ckpt_fail_memory(s->err, "reading TorchScript modules");
}

/* --- classes ---------------------------------------------------------------------------------- */

const struct ckpt_zip_entry *torch_script_source(const struct ckpt_zip *zip,
                                                 struct ckpt_text folder, struct ckpt_text module,
                                                 struct ckpt_arena *a) {
    char *name =
        ckpt_arena_printf(a, "%.*s/code/%.*s.py", (int)folder.n, folder.s, (int)module.n, module.s);
    if (!name)
        return NULL;
    const size_t n = strlen(name);
    for (size_t i = folder.n + 1; i < n - 3; i++)
        if (name[i] == '.')
            name[i] = '/';
    return ckpt_zip_find(zip, (struct ckpt_text){name, n});
}

static int read_source(struct script *s, const struct ckpt_zip_entry *e,
                       struct torch_script_code *code) {
    struct ckpt_arena *a = &s->r->c->arena;
    struct ckpt_text text;
    if (e->size > CKPT_LIMIT_CODE_BYTES - s->code_bytes)
        return ckpt_fail(s->err, -E2BIG,
                         "more than %u bytes of TorchScript code (limit of code bytes)",
                         CKPT_LIMIT_CODE_BYTES);
    s->code_bytes += e->size;
    const int rc = ckpt_zip_read(s->zip, e, CKPT_LIMIT_CODE_BYTES, a, &text, s->err);
    return rc ? rc : torch_script_parse(code, a, text, s->err);
}

/* Enters the classes of a file that has been read under their full names. */
static int enter_classes(struct script *s, struct ckpt_text module,
                         const struct torch_script_code *code) {
    for (size_t i = 0; i < code->n; i++) {
        struct torch_script_class *cls = &code->classes[i];
        const char *full = ckpt_arena_printf(&s->r->c->arena, "%.*s.%.*s", (int)module.n, module.s,
                                             CKPT_TEXT_ARGS(cls->name));
        if (!full || !ckpt_array_grow(&s->classes, s->nclasses, &s->classes_cap,
                                      sizeof(struct torch_script_class *)))
            return fail_memory(s);
        s->classes[s->nclasses] = cls;
        const int rc = ckpt_strmap_add(&s->by_class, ckpt_text_of(full), s->nclasses++, NULL);
        if (rc)
            return rc == -EEXIST ? ckpt_fail(s->err, -EINVAL,
                                             "TorchScript class \"%s\" is defined twice", full)
                                 : fail_memory(s);
    }
    return 0;
}

/* Reads the file that defines the classes of a module, once. */
static int load_source(struct script *s, struct ckpt_text module) {
    const int known = ckpt_strmap_add(&s->by_file, module, 0, NULL);
    if (known)
        return known == -EEXIST ? 0 : fail_memory(s);
    const struct ckpt_zip_entry *e =
        torch_script_source(s->zip, s->folder, module, &s->r->c->arena);
    if (!e)
        return 0;
    if (!ckpt_array_grow(&s->files, s->nfiles, &s->files_cap, sizeof *s->files))
        return fail_memory(s);
    struct torch_script_code *code = &s->files[s->nfiles];
    int rc = read_source(s, e, code);
    if (rc)
        return ckpt_fail_in(s->err, "%.*s", CKPT_TEXT_ARGS(e->name));
    s->nfiles++;
    return enter_classes(s, module, code);
}

/* The class of that full name; NULL if no source defines it. */
static int find_class(struct script *s, struct ckpt_text name,
                      const struct torch_script_class **out) {
    const char *dot = memrchr(name.s, '.', name.n);
    size_t i = ckpt_strmap_get(&s->by_class, name);
    *out = NULL;
    if (i == CKPT_STRMAP_ABSENT && dot) {
        const int rc = load_source(s, (struct ckpt_text){name.s, (size_t)(dot - name.s)});
        if (rc)
            return rc;
        i = ckpt_strmap_get(&s->by_class, name);
    }
    if (i != CKPT_STRMAP_ABSENT)
        *out = s->classes[i];
    return 0;
}

static int warn_sourceless(struct script *s, struct ckpt_text name) {
    if (s->warned)
        return 0;
    s->warned = true;
    return ckpt_checkpoint_warn(s->r->c,
                                "the archive has no source of class \"%.*s\": all its tensors are "
                                "taken, though some may not belong to the state dict",
                                CKPT_TEXT_ARGS(name))
               ? fail_memory(s)
               : 0;
}

/* Whether objects of that class are modules; *cls stays NULL where the source is missing. */
static int is_module(struct script *s, struct ckpt_text name, bool *is,
                     const struct torch_script_class **cls) {
    *is = false;
    *cls = NULL;
    if (!ckpt_text_starts(name, CLASS_PREFIX) || ckpt_text_starts(name, CUSTOM_CLASS_PREFIX) ||
        name.n > CLASS_NAME_MAX)
        return 0;
    const int rc = find_class(s, name, cls);
    if (rc)
        return rc;
    *is = !*cls || (*cls)->is_module;
    return *cls ? 0 : warn_sourceless(s, name);
}

struct ckpt_text torch_script_plain_class(struct ckpt_arena *a, struct ckpt_text name) {
    static const char mangle[] = "___torch_mangle_";
    const size_t skip = sizeof CLASS_PREFIX - 1;
    struct ckpt_text rest = {name.s + skip, name.n - skip};
    char *out = ckpt_arena_alloc(a, name.n + 1);
    size_t n = 0;
    while (out && rest.n) {
        const char *dot = memchr(rest.s, '.', rest.n);
        const size_t k = dot ? (size_t)(dot - rest.s) + 1 : rest.n;
        if (!ckpt_text_starts(rest, mangle)) {
            memcpy(out + n, rest.s, k);
            n += k;
        }
        rest.s += k;
        rest.n -= k;
    }
    return (struct ckpt_text){out, n};
}

/* --- objects ---------------------------------------------------------------------------------- */

struct state {
    struct ckpt_value *parameters, *buffers, *modules, *all;
};

/* An empty dict with room for n items. */
static struct ckpt_value *new_dict(struct ckpt_arena *a, size_t n) {
    struct pickle_object *o = ckpt_arena_alloc(a, sizeof *o);
    struct ckpt_value **item = ckpt_arena_array(a, 2 * n, sizeof *item);
    if (!o || !item)
        return NULL;
    o->v.kind = CKPT_VALUE_DICT;
    o->v.seq.item = item;
    o->v.seq.cap = 2 * n;
    return &o->v;
}

static void put(struct ckpt_value *dict, struct ckpt_value *key, struct ckpt_value *value) {
    dict->seq.item[dict->seq.n++] = key;
    dict->seq.item[dict->seq.n++] = value;
}

static int put_part(struct script *s, const struct state *state, const char *name,
                    struct ckpt_value *part) {
    struct ckpt_value *key = ckpt_arena_alloc(&s->r->c->arena, sizeof *key);
    if (!key)
        return fail_memory(s);
    key->kind = CKPT_VALUE_STR;
    key->text = ckpt_text_of(name);
    put(state->all, key, part);
    return 0;
}

/* Of an object with n attributes. */
static int new_state(struct script *s, const struct torch_script_class *cls, size_t n,
                     struct state *state) {
    struct ckpt_arena *a = &s->r->c->arena;
    const size_t constants = cls ? cls->nconstants : 0;
    *state = (struct state){new_dict(a, n), new_dict(a, n), new_dict(a, n),
                            new_dict(a, n + 3 + constants / 2)};
    if (!state->parameters || !state->buffers || !state->modules || !state->all)
        return fail_memory(s);
    int rc = put_part(s, state, "_parameters", state->parameters);
    if (rc == 0)
        rc = put_part(s, state, "_buffers", state->buffers);
    if (rc == 0)
        rc = put_part(s, state, "_modules", state->modules);
    for (size_t i = 0; rc == 0 && i < constants; i += 2)
        put(state->all, cls->constant[i], cls->constant[i + 1]);
    return rc;
}

/* The dict in which a tensor attribute belongs; NULL: none. */
static struct ckpt_value *home_of(const struct torch_script_class *cls, const struct state *state,
                                  struct ckpt_text name) {
    if (!cls)
        return state->buffers;
    const size_t role = ckpt_strmap_get(&cls->role, name);
    return role == TORCH_SCRIPT_PARAMETER ? state->parameters
           : role == TORCH_SCRIPT_BUFFER  ? state->buffers
                                          : NULL;
}

static int translate(struct script *s, struct ckpt_value *v, unsigned depth);

static int sort_attribute(struct script *s, const struct torch_script_class *cls,
                          const struct state *state, struct ckpt_value *name, struct ckpt_value *v,
                          unsigned depth) {
    if (name->kind != CKPT_VALUE_STR)
        return 0;
    if (v->kind == CKPT_PICKLE_TENSOR) {
        struct ckpt_value *home = home_of(cls, state, name->text);
        if (home)
            put(home, name, v);
        return 0;
    }
    const int rc = translate(s, v, depth + 1);
    if (rc == 0)
        put(v->kind == CKPT_VALUE_MODULE ? state->modules : state->all, name, v);
    return rc;
}

/* An object of a module's class becomes a module, and so do those below it. A module that contains
 * itself is found by torch_module_read. */
static int translate(struct script *s, struct ckpt_value *v, unsigned depth) {
    const struct torch_script_class *cls;
    struct state state = {0};
    bool is = false;
    if (!torch_has_state(v))
        return 0;
    if (depth > CKPT_LIMIT_PICKLE_DEPTH)
        return ckpt_fail(s->err, -E2BIG, "modules nested more than %u deep (limit of pickle depth)",
                         CKPT_LIMIT_PICKLE_DEPTH);
    int rc = is_module(s, v->text, &is, &cls);
    if (rc || !is)
        return rc;
    const struct ckpt_value *attributes = v->attributes;
    v->kind = CKPT_VALUE_MODULE;
    v->text = torch_script_plain_class(&s->r->c->arena, v->text);
    rc = v->text.s ? new_state(s, cls, attributes->seq.n / 2, &state) : fail_memory(s);
    for (size_t i = 0; rc == 0 && i + 1 < attributes->seq.n; i += 2)
        rc = sort_attribute(s, cls, &state, attributes->seq.item[i], attributes->seq.item[i + 1],
                            depth);
    if (rc == 0)
        v->attributes = state.all;
    return rc;
}

int torch_script_modules(struct torch_reader *r, const struct ckpt_zip *zip,
                         struct ckpt_text folder, struct ckpt_value *root, struct ckpt_err *err) {
    CKPT_AUTO(script)
    struct script s = {.r = r, .zip = zip, .folder = folder, .err = err};
    r->c->arena.limit = r->c->arena.used + CKPT_LIMIT_PICKLE_ARENA;
    const int rc = translate(&s, root, 0);
    r->c->arena.limit = 0;
    return rc;
}
