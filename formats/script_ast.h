#ifndef CKPT_FORMATS_SCRIPT_AST_H
#define CKPT_FORMATS_SCRIPT_AST_H
/*
 * The Python that TorchScript writes, parsed (private to script_*.c):
 *
 *     file ──► classes ──► functions ──► block of statements ──► expressions
 *          └─► functions
 *
 * Names of a function are slots, numbered where they first stand in it; one that is never assigned
 * names something outside (torch, annotate, int). All but the maps lives in the arena of the
 * source; immutable once parsed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strmap.h"
#include "base/text.h"

enum script_expr_kind {
    SCRIPT_EXPR_NAME, /* .text, .slot */
    SCRIPT_EXPR_NONE,
    SCRIPT_EXPR_BOOL,  /* .b */
    SCRIPT_EXPR_INT,   /* .i */
    SCRIPT_EXPR_FLOAT, /* .f */
    SCRIPT_EXPR_TEXT,  /* .text, unescaped */
    SCRIPT_EXPR_NEGATED,
    SCRIPT_EXPR_ATTRIBUTE, /* base.text */
    SCRIPT_EXPR_INDEX,     /* base[arg, ...] */
    SCRIPT_EXPR_CALL,      /* base(arg, name=arg, ...) */
    SCRIPT_EXPR_LIST,
    SCRIPT_EXPR_TUPLE,
    SCRIPT_EXPR_DICT, /* arg: key, value, key, value... */
};

struct script_expr;

struct script_arg {
    struct ckpt_text name; /* "" where it is positional */
    const struct script_expr *value;
};

struct script_expr {
    uint8_t kind; /* enum script_expr_kind */
    uint32_t line;
    const struct script_expr *base;
    struct ckpt_text text;
    union {
        int64_t i;
        double f;
        bool b;
        uint32_t slot;
        struct {
            uint32_t n;
            const struct script_arg *arg;
        };
    };
};

enum script_stmt_kind {
    SCRIPT_STMT_ASSIGN, /* target, target = value */
    SCRIPT_STMT_EXPR,
    SCRIPT_STMT_RETURN,
    SCRIPT_STMT_IF,
    SCRIPT_STMT_FOR,   /* for target in value */
    SCRIPT_STMT_OTHER, /* never run; .text says what it is */
};

struct script_stmt;

struct script_block {
    const struct script_stmt *stmt;
    size_t n;
};

struct script_stmt {
    uint8_t kind; /* enum script_stmt_kind */
    bool unpacks; /* "a, b, = value": value is a list or tuple; else they are what a call returns */
    uint32_t line;
    uint32_t ntargets;
    const uint32_t *target; /* slots */
    const struct script_expr *value;
    struct ckpt_text text;
    struct script_block body, otherwise;
};

struct script_param {
    struct ckpt_text name;
    uint32_t slot;
    const struct script_expr *type, *standard; /* NULL: not given */
};

struct script_file;

struct script_function {
    struct ckpt_text name;
    uint32_t line, nslots, nparams;
    const struct script_param *param;
    struct script_block body;
    const struct script_file *file;
};

/* "bias : Optional[Tensor]", "eps : Final[float] = 1e-05" */
struct script_attribute {
    struct ckpt_text name;
    const struct script_expr *type, *value; /* value: NULL where there is none */
};

struct script_class {
    struct ckpt_text name, base;
    const struct script_expr *parameters, *buffers; /* lists of names, or NULL */
    struct script_attribute *attribute;
    size_t nattributes, attributes_cap;
    struct ckpt_strmap by_attribute, by_method;
};

struct script_file {
    struct ckpt_text name, module; /* "code/__torch__/net.py", "__torch__.net" */
    struct script_class *classes;
    size_t nclasses, classes_cap;
    struct script_function *functions; /* methods among them */
    size_t nfunctions, functions_cap;
    struct ckpt_strmap by_class, by_function;
    size_t ndefinitions; /* classes, functions and attributes */
};

#endif
