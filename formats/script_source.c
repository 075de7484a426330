#include "formats/script_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "formats/limits.h"
#include "formats/script_parse.h"

static int fail_memory(struct script_source *s) {
    return ckpt_fail_memory(s->err, "reading TorchScript code");
}

static int check_total(struct script_source *s, const struct script_file *file) {
    s->ndefinitions += file->ndefinitions;
    if (s->ndefinitions > CKPT_LIMIT_SCRIPT_DEFINITIONS)
        return ckpt_fail(s->err, -E2BIG,
                         "more than %u classes, functions and attributes in all files (limit of "
                         "definitions)",
                         CKPT_LIMIT_SCRIPT_DEFINITIONS);
    return 0;
}

/* Parses the module's file into file[nfiles], which is already counted. */
static int read_file(struct script_source *s, struct ckpt_text module) {
    struct ckpt_text name, text = {NULL, 0};
    int rc = s->read(s->user, module, &name, &text, s->err);
    if (rc || !text.s)
        return rc;
    struct script_file *const file = malloc(sizeof *file);
    if (!file)
        return fail_memory(s);
    rc = script_parse(file, name, module, text, s->arena, s->err);
    if (rc) {
        free(file);
        return rc;
    }
    s->file[s->nfiles - 1] = file;
    return check_total(s, file);
}

/* The file of a module; NULL: there is none. */
static int find_file(struct script_source *s, struct ckpt_text module,
                     const struct script_file **out) {
    const size_t known = ckpt_strmap_get(&s->by_module, module);
    *out = known == CKPT_STRMAP_ABSENT ? NULL : s->file[known];
    if (known != CKPT_STRMAP_ABSENT)
        return 0;
    if (s->nfiles == CKPT_LIMIT_SCRIPT_FILES)
        return ckpt_fail(s->err, -E2BIG, "more than %u files of code (limit of a script's files)",
                         CKPT_LIMIT_SCRIPT_FILES);
    const struct ckpt_text copy = ckpt_text_copy(s->arena, module.s, module.n);
    if (!copy.s || !ckpt_array_grow(&s->file, s->nfiles, &s->files_cap, sizeof(s->file[0])) ||
        ckpt_strmap_add(&s->by_module, copy, s->nfiles, NULL))
        return fail_memory(s);
    s->file[s->nfiles++] = NULL;
    const int rc = read_file(s, copy);
    *out = rc ? NULL : s->file[s->nfiles - 1];
    return rc;
}

/* "__torch__.net" and "Linear" of "__torch__.net.Linear". */
static bool split(struct ckpt_text name, struct ckpt_text *module, struct ckpt_text *last) {
    const char *const dot = name.n ? memrchr(name.s, '.', name.n) : NULL;
    if (!dot)
        return false;
    *module = (struct ckpt_text){name.s, (size_t)(dot - name.s)};
    *last = (struct ckpt_text){dot + 1, name.n - module->n - 1};
    return true;
}

int script_source_class(struct script_source *s, struct ckpt_text name,
                        const struct script_class **out, const struct script_file **file) {
    struct ckpt_text module, last;
    *out = NULL;
    *file = NULL;
    if (!split(name, &module, &last))
        return 0;
    const int rc = find_file(s, module, file);
    const size_t i = *file ? ckpt_strmap_get(&(*file)->by_class, last) : CKPT_STRMAP_ABSENT;
    if (i != CKPT_STRMAP_ABSENT)
        *out = &(*file)->classes[i];
    return rc;
}

int script_source_function(struct script_source *s, struct ckpt_text name,
                           const struct script_function **out) {
    struct ckpt_text module, last;
    const struct script_file *file;
    *out = NULL;
    if (!split(name, &module, &last))
        return 0;
    const int rc = find_file(s, module, &file);
    const size_t i = file ? ckpt_strmap_get(&file->by_function, last) : CKPT_STRMAP_ABSENT;
    if (i != CKPT_STRMAP_ABSENT)
        *out = &file->functions[i];
    return rc;
}

void script_source_fini(struct script_source *s) {
    for (size_t i = 0; i < s->nfiles; i++)
        if (s->file[i]) {
            script_file_fini(s->file[i]);
            free(s->file[i]);
        }
    free(s->file);
    ckpt_strmap_fini(&s->by_module);
    s->file = NULL;
    s->nfiles = s->files_cap = 0;
}

const struct script_function *script_class_method(const struct script_file *file,
                                                  const struct script_class *cls,
                                                  struct ckpt_text name) {
    const size_t i = ckpt_strmap_get(&cls->by_method, name);
    return i == CKPT_STRMAP_ABSENT ? NULL : &file->functions[i];
}

const struct script_attribute *script_class_attribute(const struct script_class *cls,
                                                      struct ckpt_text name) {
    const size_t i = ckpt_strmap_get(&cls->by_attribute, name);
    return i == CKPT_STRMAP_ABSENT ? NULL : &cls->attribute[i];
}

bool script_names_have(const struct script_expr *list, struct ckpt_text name) {
    for (uint32_t i = 0; list && list->kind == SCRIPT_EXPR_LIST && i < list->n; i++) {
        const struct script_expr *const e = list->arg[i].value;
        if (e->kind == SCRIPT_EXPR_TEXT && ckpt_text_eq(e->text, name))
            return true;
    }
    return false;
}
