#ifndef CKPT_FORMATS_TORCH_SCRIPT_H
#define CKPT_FORMATS_TORCH_SCRIPT_H
/*
 * TorchScript archives (torch.jit.save; private to torch_*.c). Their data.pkl holds objects of
 * classes whose source lies in code/; what of an object is a parameter, what a buffer, only the
 * source says:
 *
 *     class Linear(Module):
 *       __parameters__ = ["weight", "bias", ]
 *       __buffers__ = []
 *       in_features : Final[int] = 2
 */
#include "formats/torch.h"
#include "formats/zip.h"

enum torch_script_role {
    TORCH_SCRIPT_PARAMETER,
    TORCH_SCRIPT_BUFFER,
};

struct torch_script_class {
    struct ckpt_text name;            /* "Linear" */
    bool is_module;                   /* derives from Module */
    struct ckpt_strmap role;          /* attribute -> enum torch_script_role */
    struct ckpt_value **constant;     /* what every object has: name, value, name, value... */
    size_t nconstants, constants_cap; /* names and values */
};

/* The classes of one file. Their texts are in the arena, or point into the code. */
struct torch_script_code {
    struct torch_script_class *classes;
    size_t n, cap;
};

/* Reads the class heads of a file in code/; whatever else stands there is not looked at. The code
 * must outlive the result. */
int torch_script_parse(struct torch_script_code *code, struct ckpt_arena *a, struct ckpt_text text,
                       struct ckpt_err *err) CKPT_CHECKED;
void torch_script_code_fini(struct torch_script_code *code);

/* torch_script_constant.c: the value of a literal: numbers, truth values, None, strings without
 * escapes, tuples and lists of them. NULL in *out: it is none of these. */
int torch_script_constant(struct ckpt_arena *a, struct ckpt_text literal, struct ckpt_value **out,
                          struct ckpt_err *err) CKPT_CHECKED;

/* The source of module "__torch__.a.b": entry FOLDER/code/__torch__/a/b.py. NULL: there is none, or
 * no memory. */
const struct ckpt_zip_entry *torch_script_source(const struct ckpt_zip *zip,
                                                 struct ckpt_text folder, struct ckpt_text module,
                                                 struct ckpt_arena *a);
/* "__torch__.torch.nn.modules.linear.___torch_mangle_5.Linear" -> "torch.nn.modules.linear.Linear";
 * .s is NULL when out of memory. */
struct ckpt_text torch_script_plain_class(struct ckpt_arena *a, struct ckpt_text name);

/* Turns each object below `root` whose class is a Module into a CKPT_VALUE_MODULE with the state
 * that torch.nn.Module has, for torch_module_read. `folder` is the archive's. */
int torch_script_modules(struct torch_reader *r, const struct ckpt_zip *zip,
                         struct ckpt_text folder, struct ckpt_value *root,
                         struct ckpt_err *err) CKPT_CHECKED;

/* script_open.c: the graph of an archive while the checkpoint is read. */
struct torch_script_tensor {
    struct ckpt_text name;
    const struct torch_tensor *tensor;
};

struct torch_script_graph {
    struct ckpt_checkpoint *code; /* the tensors of the code and no others */
    struct torch_reader reader;   /* of constants.pkl, into it */
    struct torch_script_tensor *tensor;
    size_t n, cap;
};

/* Follows the code of the objects, which torch_script_modules has not changed yet, into the
 * checkpoint's graph, or into no_graph why not. */
int torch_script_graph_read(struct torch_reader *r, const struct ckpt_zip *zip,
                            struct ckpt_text folder, const struct ckpt_value *root,
                            struct torch_script_graph *g, struct ckpt_err *err) CKPT_CHECKED;
/* Lists the tensors that the graph uses, once those of the state dict are. */
int torch_script_graph_keep(struct torch_reader *r, struct torch_script_graph *g,
                            struct ckpt_err *err) CKPT_CHECKED;
void torch_script_graph_fini(struct torch_script_graph *g);
#define ckpt_auto_torch_script_graph torch_script_graph_fini

#endif
