/* The options that map a pattern to something. Their `where` goes into messages about patterns. */
#include "fs/option_map.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/evidence.h"
#include "adapters/regex.h"
#include "base/cleanup.h"

/* The last "=>" of s, or NULL: a pattern may hold one ("(?<a>x)" does not, a look-behind may). */
static const char *last_arrow(const char *s) {
    const char *last = NULL;
    for (const char *p = strstr(s, "=>"); p; p = strstr(p + 1, "=>"))
        last = p;
    return last;
}

static struct ckpt_mapping *next_slot(struct ckpt_arena *a, struct ckpt_mapping_list *list) {
    if (list->n == list->cap) {
        const size_t cap = list->cap ? 2 * list->cap : 8;
        struct ckpt_mapping *item = ckpt_arena_array(a, cap, sizeof *item);
        if (!item)
            return NULL;
        if (list->n)
            memcpy(item, list->item, list->n * sizeof *item);
        list->item = item;
        list->cap = cap;
    }
    return &list->item[list->n++];
}

/* where names the place for messages: "map=", "names.map:3". */
static int add(struct ckpt_arena *a, struct ckpt_mapping_list *list, const char *where,
               const char *text, struct ckpt_err *err) {
    const char *arrow = last_arrow(text);
    if (!arrow)
        return ckpt_fail(err, -EINVAL,
                         "%s%s has no \"=>\": expected REGEX=>VALUE (a shell takes an unquoted > "
                         "as a redirection: put quotes around the option)",
                         where, text);
    struct ckpt_mapping *m = next_slot(a, list);
    if (!m)
        return ckpt_fail_memory(err, "reading options");
    m->pattern = ckpt_text_copy(a, text, (size_t)(arrow - text));
    m->value = ckpt_text_copy(a, arrow + 2, strlen(arrow + 2));
    m->where = ckpt_arena_copy(a, where, strlen(where));
    return m->pattern.s && m->value.s && m->where ? 0 : ckpt_fail_memory(err, "reading options");
}

int ckpt_option_map_add(struct ckpt_arena *a, struct ckpt_mapping_list *list, const char *option,
                        const char *text, struct ckpt_err *err) {
    char where[32];
    snprintf(where, sizeof where, "%s=", option);
    return add(a, list, where, text, err);
}

int ckpt_option_map_read(struct ckpt_arena *a, struct ckpt_mapping_list *list, const char *path,
                         struct ckpt_err *err) {
    CKPT_AUTO(fclose) FILE *f = fopen(path, "re");
    if (!f)
        return ckpt_fail(err, -EINVAL, "option map_file: cannot read %s: %s", path,
                         strerror(errno));
    const char *slash = strrchr(path, '/');
    CKPT_AUTO(free) char *line = NULL;
    size_t cap = 0;
    for (unsigned number = 1; getline(&line, &cap, f) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (!*line || *line == '#')
            continue;
        char where[300];
        snprintf(where, sizeof where, "%.250s:%u: ", slash ? slash + 1 : path, number);
        const int rc = add(a, list, where, line, err);
        if (rc < 0)
            return rc;
    }
    if (ferror(f))
        return ckpt_fail(err, -EINVAL, "option map_file: cannot read %s: %s", path,
                         strerror(errno));
    return 0;
}

static int check(struct ckpt_text pattern, const char *where, const struct ckpt_text *replacement,
                 struct ckpt_err *err) {
    CKPT_AUTO(regex) struct ckpt_regex *re = NULL;
    const int rc = ckpt_regex_new(pattern, false, where, &re, err);
    return rc < 0 || !replacement ? rc : ckpt_regex_check_replacement(re, *replacement, err);
}

static int check_kind(const struct ckpt_mapping *kind, struct ckpt_err *err) {
    if (ckpt_kind_by_name(kind->value))
        return check(kind->pattern, kind->where, NULL, err);
    CKPT_AUTO(str) struct ckpt_str names = {0};
    for (const char *const *name = ckpt_kind_names; *name; name++)
        ckpt_str_printf(&names, "%s%s", name == ckpt_kind_names ? "" : ", ", *name);
    return ckpt_fail(err, -EINVAL, "%s%.*s=>%.*s: that kind is none of %s", kind->where,
                     CKPT_TEXT_ARGS(kind->pattern), CKPT_TEXT_ARGS(kind->value),
                     ckpt_str_text(&names).s);
}

int ckpt_option_patterns_check(const struct ckpt_adapt_options *o, struct ckpt_err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->nmap; i++)
        rc = check(o->map[i].pattern, o->map[i].where, &o->map[i].value, err);
    for (size_t i = 0; rc == 0 && i < o->nkind; i++)
        rc = check_kind(&o->kind[i], err);
    for (size_t i = 0; rc == 0 && i < o->ninclude; i++)
        rc = check(ckpt_text_of(o->include[i]), "include=", NULL, err);
    for (size_t i = 0; rc == 0 && i < o->nexclude; i++)
        rc = check(ckpt_text_of(o->exclude[i]), "exclude=", NULL, err);
    if (rc == 0 && o->contiguous_except)
        rc = check(ckpt_text_of(o->contiguous_except), "contiguous_except=", NULL, err);
    return rc;
}
