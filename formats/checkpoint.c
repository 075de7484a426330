#include "formats/checkpoint.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "formats/graph.h"
#include "formats/unknown.h"

/* Asked in this order; each recognises its kind by content. safetensors comes first, because its
 * first byte is a length and may be any magic number's. */
static const struct ckpt_format *const formats[] = {
    &ckpt_format_safetensors,     &ckpt_format_safetensors_directory,
    &ckpt_format_torch_directory, &ckpt_format_torch_zip,
    &ckpt_format_torch_legacy,    &ckpt_format_torch_tar,
    &ckpt_format_torch_dcp,       &ckpt_format_orbax,
    &ckpt_format_burnpack,        &ckpt_format_flax,
    &ckpt_format_torch_pickle,
};

/*
 * The lists: arrays in the arena that double when full. A list is full when its count is 0 or a
 * power of two >= LIST_MIN, so that no capacity need be kept.
 */
#define LIST_MIN ((size_t)16)

/* Room for element n of the list; NULL when out of memory. */
static void *list_slot(struct ckpt_arena *a, void *list, size_t n, size_t size) {
    char *array;
    memcpy(&array, list, sizeof array); /* a pointer to whatever type */
    if (n == 0 || (n >= LIST_MIN && (n & (n - 1)) == 0)) {
        char *bigger = ckpt_arena_grow(a, array, n * size, (n ? 2 * n : LIST_MIN) * size);
        if (!bigger)
            return NULL;
        memcpy(list, &bigger, sizeof bigger);
        array = bigger;
    }
    return array + n * size;
}

#define LIST_ADD(c, list) list_slot(&(c)->arena, &(c)->list, (c)->n##list, sizeof *(c)->list)

struct ckpt_tensor *ckpt_checkpoint_add_tensor(struct ckpt_checkpoint *c) {
    if (c->ntensors >= CKPT_LIMIT_TENSORS)
        return NULL;
    struct ckpt_tensor *t = LIST_ADD(c, tensors);
    if (!t)
        return NULL;
    *t = (struct ckpt_tensor){.module = -1};
    c->ntensors++;
    return t;
}

int ckpt_checkpoint_add_blob(struct ckpt_checkpoint *c, struct ckpt_blob *b) {
    struct ckpt_blob **slot = c->nblobs < UINT32_MAX ? LIST_ADD(c, blobs) : NULL;
    if (!slot)
        return -ENOMEM;
    b->id = (uint32_t)c->nblobs++;
    *slot = b;
    return 0;
}

int ckpt_checkpoint_add_file(struct ckpt_checkpoint *c, struct ckpt_file *f) {
    struct ckpt_file **slot = LIST_ADD(c, files);
    if (!slot) {
        ckpt_file_close(f);
        return -ENOMEM;
    }
    *slot = f;
    c->nfiles++;
    return 0;
}

void ckpt_checkpoint_map(struct ckpt_checkpoint *c, const struct ckpt_store_file *f) {
    struct ckpt_file *file = NULL;
    if (f->mapping->file || c->nmapped == CKPT_LIMIT_MAPPED ||
        ckpt_file_open(f->path, &file, NULL) != 0)
        return;
    if (ckpt_store_file_check_same(f, file->fd, NULL) != 0) {
        ckpt_file_close(file);
        return;
    }
    if (ckpt_checkpoint_add_file(c, file) != 0)
        return;
    f->mapping->file = file;
    c->nmapped++;
}

int ckpt_checkpoint_add_value(struct ckpt_checkpoint *c, struct ckpt_path p,
                              const struct ckpt_value *v) {
    struct ckpt_named_value *slot = LIST_ADD(c, values);
    if (!slot)
        return -ENOMEM;
    *slot = (struct ckpt_named_value){p, v};
    c->nvalues++;
    return 0;
}

int ckpt_checkpoint_add_unsupported(struct ckpt_checkpoint *c, struct ckpt_path p,
                                    struct ckpt_text reason) {
    struct ckpt_note *slot = LIST_ADD(c, unsupported);
    if (!slot)
        return -ENOMEM;
    *slot = (struct ckpt_note){p, reason};
    c->nunsupported++;
    return 0;
}

int ckpt_checkpoint_add_opaque(struct ckpt_checkpoint *c, struct ckpt_path p,
                               struct ckpt_text cls) {
    struct ckpt_note *slot = LIST_ADD(c, opaque);
    if (!slot)
        return -ENOMEM;
    *slot = (struct ckpt_note){p, cls};
    c->nopaque++;
    return 0;
}

int ckpt_checkpoint_warn(struct ckpt_checkpoint *c, const char *fmt, ...) {
    char text[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct ckpt_text *slot = LIST_ADD(c, warnings);
    if (!slot)
        return -ENOMEM;
    *slot = ckpt_text_copy(&c->arena, text, strlen(text));
    if (!slot->s)
        return -ENOMEM;
    c->nwarnings++;
    return 0;
}

struct ckpt_module *ckpt_checkpoint_add_module(struct ckpt_checkpoint *c) {
    struct ckpt_module *m = LIST_ADD(c, modules);
    if (!m)
        return NULL;
    *m = (struct ckpt_module){.parent = -1};
    c->nmodules++;
    return m;
}

int ckpt_checkpoint_add_metadata(struct ckpt_checkpoint *c, struct ckpt_text key,
                                 struct ckpt_text value) {
    struct ckpt_pair *slot = LIST_ADD(c, metadata);
    if (!slot)
        return -ENOMEM;
    *slot = (struct ckpt_pair){key, value};
    c->nmetadata++;
    return 0;
}

/* The last component of the path as it was given, or of what it leads to where that says nothing
 * ("." or "/mnt/.."). */
static const char *source_name(struct ckpt_arena *a, const char *source) {
    CKPT_AUTO(free) char *resolved = NULL;
    size_t n = strlen(source);
    while (n > 1 && source[n - 1] == '/')
        n--;
    const char *slash = memrchr(source, '/', n), *start = slash ? slash + 1 : source;
    const struct ckpt_text last = {start, (size_t)(source + n - start)};
    if (last.n && !ckpt_text_is(last, ".") && !ckpt_text_is(last, ".."))
        return ckpt_arena_copy(a, last.s, last.n);
    resolved = realpath(source, NULL);
    const char *name = resolved ? strrchr(resolved, '/') + 1 : source;
    return ckpt_arena_copy(a, name, strlen(name));
}

static int read_directory(struct ckpt_checkpoint *c, const char *source,
                          const struct ckpt_open_options *options, struct ckpt_err *err) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->directory && formats[i]->detect(source, NULL))
            return formats[i]->read(c, source, options, err);
    return ckpt_fail(
        err, -EINVAL,
        "not a checkpoint directory: expected model.safetensors, pytorch_model.bin, "
        "the index of such a file's shards (NAME.index.json), .metadata, or what Orbax "
        "saves (manifest.ocdbt, _METADATA, arrays of zarr; or steps of those)");
}

int ckpt_checkpoint_read_file(struct ckpt_checkpoint *c, const char *source,
                              const struct ckpt_open_options *options, struct ckpt_err *err) {
    struct ckpt_file *f = NULL;
    int rc = ckpt_file_open(source, &f, err);
    if (rc)
        return rc;
    if (ckpt_checkpoint_add_file(c, f))
        return ckpt_fail_memory(err, "opening the checkpoint");
    char first;
    if (f->size > 0 && (rc = ckpt_file_read(f, 0, &first, 1, err)) != 0)
        return rc; /* no reader would recognise it */
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!formats[i]->directory && formats[i]->detect(source, f))
            return formats[i]->read(c, source, options, err);
    /* Nothing recognises it. If its name says safetensors, that reader knows best what is wrong. */
    if (!ckpt_recognise_other(f) && ckpt_text_ends(ckpt_text_of(f->name), ".safetensors"))
        return ckpt_format_safetensors.read(c, source, options, err);
    return ckpt_fail_unknown(f, err);
}

#define DANGERS_NAMED 4

/* Says in one line which names would do harm where a program calls what a pickle asks for. */
static int warn_of_dangers(struct ckpt_checkpoint *c) {
    CKPT_AUTO(str) struct ckpt_str names = {0};
    uint64_t total = 0;
    size_t listed = 0;
    for (size_t i = 0; i < c->globals.n; i++) {
        const struct ckpt_global *g = &c->globals.global[i];
        if (!g->danger)
            continue;
        total += g->calls > g->mentions ? g->calls : g->mentions;
        if (listed++ < DANGERS_NAMED)
            ckpt_str_printf(&names, "%s%.*s (%s)", listed > 1 ? ", " : "",
                            (int)(g->name.n < 60 ? g->name.n : 60), g->name.s, g->danger);
    }
    if (listed == 0)
        return 0;
    if (listed > DANGERS_NAMED)
        ckpt_str_printf(&names, " and %zu more", listed - DANGERS_NAMED);
    return names.failed
               ? -ENOMEM
               : ckpt_checkpoint_warn(c, "%llu suspicious call%s kept inert, never executed: %s",
                                      (unsigned long long)total, total == 1 ? "" : "s", names.s);
}

static void auto_close(struct ckpt_checkpoint **c) {
    ckpt_checkpoint_close(*c);
}
#define ckpt_auto_checkpoint auto_close

/* The cache that the options name, or else one of its own, which its parts then share. */
static int take_cache(struct ckpt_checkpoint *c, struct ckpt_open_options *o,
                      struct ckpt_err *err) {
    c->owns_decoded = !o->decoded;
    const int rc = o->decoded ? 0 : ckpt_decoded_cache_new(CKPT_DECODED_DEFAULT, &o->decoded, err);
    c->decoded = o->decoded;
    return rc;
}

typedef int read_fn(struct ckpt_checkpoint *c, const char *source,
                    const struct ckpt_open_options *options, struct ckpt_err *err);

static int open_by(read_fn *read, const char *source, const struct ckpt_open_options *options,
                   struct ckpt_checkpoint **out, struct ckpt_err *err) {
    CKPT_AUTO(checkpoint) struct ckpt_checkpoint *c = calloc(1, sizeof *c);
    if (!c || !(c->name = source_name(&c->arena, source)))
        return ckpt_fail_memory(err, "opening the checkpoint");
    struct ckpt_open_options o = options ? *options : (struct ckpt_open_options){0};
    int rc = take_cache(c, &o, err);
    if (rc == 0)
        rc = read(c, source, &o, err);
    if (rc == 0)
        rc = ckpt_checkpoint_check_keys(c, err);
    if (rc)
        return rc;
    *out = CKPT_STEAL(c);
    return 0;
}

int ckpt_checkpoint_open_file(const char *source, const struct ckpt_open_options *options,
                              struct ckpt_checkpoint **out, struct ckpt_err *err) {
    return open_by(ckpt_checkpoint_read_file, source, options, out, err);
}

int ckpt_checkpoint_open(const char *source, const struct ckpt_open_options *options,
                         struct ckpt_checkpoint **out, struct ckpt_err *err) {
    struct stat st;
    const bool is_directory = stat(source, &st) == 0 && S_ISDIR(st.st_mode);
    CKPT_AUTO(checkpoint) struct ckpt_checkpoint *c = NULL;
    const int rc = open_by(is_directory ? read_directory : ckpt_checkpoint_read_file, source,
                           options, &c, err);
    if (rc)
        return rc;
    if (warn_of_dangers(c) != 0)
        return ckpt_fail_memory(err, "opening the checkpoint");
    *out = CKPT_STEAL(c);
    return 0;
}

int ckpt_checkpoint_absorb(struct ckpt_checkpoint *c, struct ckpt_checkpoint *part) {
    ckpt_arena_move(&c->arena, &part->arena);
    for (; part->nblobs; part->blobs++, part->nblobs--)
        if (ckpt_checkpoint_add_blob(c, *part->blobs))
            return -ENOMEM;
    while (part->nfiles) {
        struct ckpt_file *f = *part->files++;
        part->nfiles--;
        if (ckpt_checkpoint_add_file(c, f))
            return -ENOMEM;
    }
    return ckpt_globals_merge(&c->globals, &part->globals) ? 0 : -ENOMEM;
}

void ckpt_checkpoint_close(struct ckpt_checkpoint *c) {
    if (!c)
        return;
    ckpt_checkpoint_close(c->code);
    for (size_t i = 0; i < c->nblobs; i++)
        if (c->blobs[i]->ops->fini)
            c->blobs[i]->ops->fini(c->blobs[i]);
    for (size_t i = 0; i < c->nfiles; i++)
        ckpt_file_close(c->files[i]);
    ckpt_globals_fini(&c->globals);
    ckpt_graph_free(c->graph);
    if (c->owns_decoded)
        ckpt_decoded_cache_free(c->decoded);
    ckpt_arena_fini(&c->arena);
    free(c);
}

const struct ckpt_file *ckpt_checkpoint_changed(const struct ckpt_checkpoint *c) {
    for (size_t i = 0; i < c->nfiles; i++)
        if (ckpt_file_changed(c->files[i]))
            return c->files[i];
    return NULL;
}
