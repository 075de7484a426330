#ifndef CKPT_FORMATS_SCRIPT_SOURCE_H
#define CKPT_FORMATS_SCRIPT_SOURCE_H
/* The files of code/, each read and parsed when something in it is first asked for (private to
 * script_*.c). */
#include "base/err.h"
#include "formats/script_ast.h"

/* Finds the source of module "__torch__.a.b" and what its file is called; text.s stays NULL where
 * there is none. Both must live as long as the source. */
typedef int script_read_fn(void *user, struct ckpt_text module, struct ckpt_text *name,
                           struct ckpt_text *text, struct ckpt_err *err);

struct script_source {
    script_read_fn *read;
    void *user;
    struct ckpt_arena *arena;
    struct ckpt_err *err;
    /* private: */
    struct script_file **file; /* NULL entries: no such module */
    size_t nfiles, files_cap, ndefinitions;
    struct ckpt_strmap by_module; /* -> index in file */
};

/* The class of that full name, "__torch__.net.Linear"; NULL where no source defines it. */
int script_source_class(struct script_source *s, struct ckpt_text name,
                        const struct script_class **out,
                        const struct script_file **file) CKPT_CHECKED;
/* The function of that full name, or NULL. */
int script_source_function(struct script_source *s, struct ckpt_text name,
                           const struct script_function **out) CKPT_CHECKED;
void script_source_fini(struct script_source *s);

/* The method of that name, or NULL. */
const struct script_function *script_class_method(const struct script_file *file,
                                                  const struct script_class *cls,
                                                  struct ckpt_text name);
/* The attribute as the class declares it, or NULL. */
const struct script_attribute *script_class_attribute(const struct script_class *cls,
                                                      struct ckpt_text name);
/* Whether a list of names (__parameters__) has this one. */
bool script_names_have(const struct script_expr *list, struct ckpt_text name);

#endif
