/* Cutting a schema at its commas. Lists have sizes in brackets, "int[2] stride=[1, 1]"; "*" only
 * says that what follows is given by name. */
#include "verify/op_schema.h"

#include <string.h>

/* The end of the parameter that begins at s: a comma or the closing parenthesis. */
static const char *end_of_param(const char *s) {
    for (int depth = 0; *s && (depth > 0 || (*s != ',' && *s != ')')); s++)
        depth += (*s == '[' || *s == '(') - (*s == ']' || *s == ')');
    return s;
}

static bool split(const char *s, const char *end, struct ckpt_schema_param *out) {
    const char *const equals = memchr(s, '=', (size_t)(end - s));
    const char *const name_end = equals ? equals : end;
    const char *const blank = memrchr(s, ' ', (size_t)(name_end - s));
    if (!blank)
        return false; /* "*" */
    out->type = (struct ckpt_text){s, (size_t)(blank - s)};
    out->name = (struct ckpt_text){blank + 1, (size_t)(name_end - blank - 1)};
    out->optional = equals != NULL;
    return true;
}

bool ckpt_schema_param(const char *schema, uint32_t i, struct ckpt_schema_param *out) {
    const char *s = strchr(schema, '(') + 1;
    out->named = false;
    while (*s && *s != ')') {
        const char *const end = end_of_param(s);
        const bool is_param = split(s, end, out);
        if (is_param && i-- == 0)
            return true;
        out->named = out->named || !is_param;
        s = *end == ',' ? end + 1 + strspn(end + 1, " ") : end;
    }
    return false;
}

bool ckpt_schema_find(const char *schema, struct ckpt_text name, struct ckpt_schema_param *out) {
    for (uint32_t i = 0; ckpt_schema_param(schema, i, out); i++)
        if (ckpt_text_eq(out->name, name))
            return true;
    return false;
}
