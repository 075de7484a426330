#ifndef CKPT_ADAPTERS_BUILTIN_RULES_H
#define CKPT_ADAPTERS_BUILTIN_RULES_H
/* The files of rules/ as bytes; rules/embed.cmake writes the array when one of them changes. */
#include <stddef.h>

struct ckpt_builtin_rules {
    const char *name; /* file name without .json; NULL ends the array */
    const unsigned char *text;
    size_t n;
};

extern const struct ckpt_builtin_rules ckpt_builtin_rules[];

#endif
