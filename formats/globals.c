#include "formats/globals.h"

#include <string.h>

#include "base/array.h"
#include "formats/dtype.h"

/*
 * Names that do something when they are called. A row is a module, with all below it, and
 * optionally one name in it. Rows are in no order that matters: the first that fits tells why.
 */
static const struct danger {
    const char *module, *name; /* name NULL: everything in the module */
    const char *does;
} dangers[] = {
    {"os", NULL, "runs commands and changes files"},
    {"posix", NULL, "runs commands and changes files"},
    {"nt", NULL, "runs commands and changes files"},
    {"subprocess", NULL, "runs commands"},
    {"commands", NULL, "runs commands"},
    {"pty", NULL, "runs commands"},
    {"multiprocessing", NULL, "starts processes"},
    {"asyncio", NULL, "starts processes and connections"},
    {"platform", "popen", "runs commands"},
    {"builtins", "eval", "runs Python code"},
    {"builtins", "exec", "runs Python code"},
    {"builtins", "execfile", "runs Python code"},
    {"builtins", "compile", "makes Python code"},
    {"builtins", "apply", "calls any function"},
    {"builtins", "__import__", "imports any module"},
    {"builtins", "open", "opens files"},
    {"builtins", "setattr", "changes any object"},
    {"builtins", "delattr", "changes any object"},
    {"builtins", "globals", "reaches any object"},
    {"builtins", "locals", "reaches any object"},
    {"builtins", "vars", "reaches any object"},
    {"builtins", "breakpoint", "starts a debugger"},
    {"builtins", "input", "reads from the terminal"},
    {"runpy", NULL, "runs Python code"},
    {"code", NULL, "runs Python code"},
    {"codeop", NULL, "makes Python code"},
    {"types", "CodeType", "makes Python code"},
    {"types", "FunctionType", "makes Python code"},
    {"marshal", NULL, "makes Python code"},
    {"timeit", NULL, "runs Python code"},
    {"trace", NULL, "runs Python code"},
    {"profile", NULL, "runs Python code"},
    {"cProfile", NULL, "runs Python code"},
    {"pdb", NULL, "runs Python code"},
    {"bdb", NULL, "runs Python code"},
    {"doctest", NULL, "runs Python code"},
    {"idlelib", NULL, "runs Python code"},
    {"importlib", NULL, "imports any module"},
    {"imp", NULL, "imports any module"},
    {"pkgutil", NULL, "imports any module"},
    {"zipimport", NULL, "imports any module"},
    {"site", NULL, "changes the interpreter"},
    {"sys", NULL, "changes the interpreter"},
    {"gc", NULL, "reaches any object"},
    {"pip", NULL, "installs software"},
    {"ensurepip", NULL, "installs software"},
    {"setuptools", NULL, "installs software"},
    {"distutils", NULL, "runs commands"},
    {"venv", NULL, "installs software"},
    {"operator", "attrgetter", "reaches any object"},
    {"operator", "methodcaller", "calls any method"},
    {"_operator", "attrgetter", "reaches any object"},
    {"_operator", "methodcaller", "calls any method"},
    {"ctypes", NULL, "runs machine code"},
    {"_ctypes", NULL, "runs machine code"},
    {"cffi", NULL, "runs machine code"},
    {"mmap", NULL, "maps files"},
    {"shutil", NULL, "changes files"},
    {"tempfile", NULL, "makes files"},
    {"io", "open", "opens files"},
    {"_io", "open", "opens files"},
    {"_io", "FileIO", "opens files"},
    {"io", "FileIO", "opens files"},
    {"codecs", "open", "opens files"},
    {"signal", NULL, "stops processes"},
    {"socket", NULL, "opens connections"},
    {"_socket", NULL, "opens connections"},
    {"ssl", NULL, "opens connections"},
    {"http", NULL, "opens connections"},
    {"httplib", NULL, "opens connections"},
    {"urllib", NULL, "opens connections"},
    {"urllib2", NULL, "opens connections"},
    {"ftplib", NULL, "opens connections"},
    {"smtplib", NULL, "opens connections"},
    {"telnetlib", NULL, "opens connections"},
    {"xmlrpc", NULL, "opens connections"},
    {"requests", NULL, "opens connections"},
    {"httpx", NULL, "opens connections"},
    {"aiohttp", NULL, "opens connections"},
    {"webbrowser", NULL, "starts programs"},
    {"pickle", NULL, "loads another pickle"},
    {"_pickle", NULL, "loads another pickle"},
    {"cPickle", NULL, "loads another pickle"},
    {"dill", NULL, "loads another pickle or makes Python code"},
    {"cloudpickle", NULL, "makes Python code"},
    {"joblib", NULL, "loads another pickle"},
    {"shelve", NULL, "loads another pickle"},
    {"numpy", "load", "loads another pickle"},
    {"numpy.testing", NULL, "runs Python code"},
    {"torch", "load", "loads another pickle"},
    {"torch.serialization", "load", "loads another pickle"},
    {"torch.hub", NULL, "downloads and runs Python code"},
    {"torch.utils.cpp_extension", NULL, "runs machine code"},
    {"torch._inductor", NULL, "runs machine code"},
};

static bool is_in(struct ckpt_text module, const char *package) {
    const size_t n = strlen(package);
    return ckpt_text_starts(module, package) && (module.n == n || module.s[n] == '.');
}

const char *ckpt_global_danger(struct ckpt_text module, struct ckpt_text name) {
    for (size_t i = 0; i < sizeof dangers / sizeof *dangers; i++) {
        const struct danger *d = &dangers[i];
        if (d->name ? ckpt_text_is(module, d->module) && ckpt_text_is(name, d->name)
                    : is_in(module, d->module))
            return d->does;
    }
    return NULL;
}

/* Storage and tensor classes and dtypes are arguments, not calls, and so are in no table of calls.
 */
static bool is_torch_data(struct ckpt_text module, struct ckpt_text name) {
    return (is_in(module, "torch") && ckpt_text_ends(name, "Storage")) ||
           (ckpt_text_is(module, "torch") &&
            (ckpt_text_ends(name, "Tensor") || ckpt_dtype_by_torch(name) != CKPT_DT_NONE)) ||
           (ckpt_text_is(module, "numpy") && ckpt_text_is(name, "ndarray"));
}

/* The place of a new entry; CKPT_GLOBAL_NONE when out of memory. */
static size_t append(struct ckpt_globals *g, struct ckpt_global entry) {
    if (!ckpt_array_grow(&g->global, g->n, &g->cap, sizeof *g->global) ||
        ckpt_strmap_add(&g->by_name, entry.name, g->n, NULL) != 0)
        return CKPT_GLOBAL_NONE;
    g->global[g->n] = entry;
    return g->n++;
}

size_t ckpt_globals_add(struct ckpt_globals *g, struct ckpt_text module, struct ckpt_text name,
                        struct ckpt_text full, bool known) {
    const size_t at = ckpt_strmap_get(&g->by_name, full);
    if (at != CKPT_STRMAP_ABSENT) {
        g->global[at].mentions++;
        return at;
    }
    return append(g, (struct ckpt_global){
                         .name = full,
                         .known = known || is_torch_data(module, name),
                         .danger = ckpt_global_danger(module, name),
                         .mentions = 1,
                     });
}

bool ckpt_globals_merge(struct ckpt_globals *g, const struct ckpt_globals *from) {
    for (size_t i = 0; i < from->n; i++) {
        const struct ckpt_global *entry = &from->global[i];
        const size_t at = ckpt_strmap_get(&g->by_name, entry->name);
        if (at == CKPT_STRMAP_ABSENT && append(g, *entry) == CKPT_GLOBAL_NONE)
            return false;
        if (at != CKPT_STRMAP_ABSENT) {
            g->global[at].mentions += entry->mentions;
            g->global[at].calls += entry->calls;
        }
    }
    return true;
}

const char *ckpt_global_status(const struct ckpt_global *g) {
    return g->danger ? "dangerous" : g->known ? "known" : "inert";
}

bool ckpt_globals_are_notable(const struct ckpt_globals *g) {
    for (size_t i = 0; i < g->n; i++)
        if (!g->global[i].known || g->global[i].danger)
            return true;
    return false;
}

void ckpt_globals_fini(struct ckpt_globals *g) {
    ckpt_strmap_fini(&g->by_name);
    free(g->global);
    *g = (struct ckpt_globals){0};
}
