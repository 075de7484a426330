/*
 * A session: the wiring. The tree is made by the rows of one table, each of which adds one kind of
 * file; later rows tell of what earlier ones laid out.
 */
#include "fs/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "formats/decoded_cache.h"
#include "formats/graph.h"
#include "fs/files.h"
#include "fs/generation.h"
#include "verify/blas.h"

#define BESIDE_DECODED ((uint64_t)32 << 20) /* 28 MiB of bands, and about 4 of all else */
#define DECODED_LEAST ((uint64_t)16 << 20)

struct file_kind {
    const char *what;
    int (*add)(struct ckpt_session *s, struct ckpt_err *err);
};

static const struct file_kind file_kinds[] = {
    {"tensors, beside which NAME.npy stands", ckpt_files_add_tensors},
    {"model.safetensors and model.bpk", ckpt_files_add_model},
    {"verify.json", ckpt_files_add_verify},
    {"values as NAME.json", ckpt_files_add_values},
    {"plain files of a source directory", ckpt_files_add_plain},
    {"config.json, where openpi's converter makes one", ckpt_files_add_config},
    {".source, empty as yet", ckpt_files_add_source},
    {"index.json", ckpt_files_add_index},
    {"summary.txt", ckpt_files_add_summary},
};

static const char *const our_names[] = {"model.safetensors", "verify.json", "index.json",
                                        "summary.txt",       "model.bpk",   ".source"};

bool ckpt_session_name_is_ours(struct ckpt_text name) {
    for (size_t i = 0; i < sizeof our_names / sizeof our_names[0]; i++)
        if (ckpt_text_is(name, our_names[i]))
            return true;
    return false;
}

int ckpt_session_add_file(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          struct ckpt_vfile *file, bool hidden, uint32_t *node,
                          struct ckpt_err *err) {
    return ckpt_tree_add_file(&s->tree, parent, name, file, hidden, node, err);
}

int ckpt_session_add_text(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          struct ckpt_text text, uint32_t *node, struct ckpt_err *err) {
    struct ckpt_vfile *f = ckpt_vfile_new(&s->arena, 1);
    if (!f)
        return ckpt_fail_memory(err, "building the tree");
    ckpt_vfile_add_bytes(f, text.s, text.n);
    return ckpt_session_add_file(s, parent, name, f, false, node, err);
}

int ckpt_session_add_made(struct ckpt_session *s, uint32_t parent, struct ckpt_text name,
                          ckpt_made_write *write, const void *arg, uint32_t *node,
                          struct ckpt_err *err) {
    const int rc = ckpt_made_new(&s->made, write, arg, err);
    if (rc < 0)
        return rc;
    struct ckpt_vfile *f = ckpt_vfile_made(&s->arena, s->made);
    return f ? ckpt_session_add_file(s, parent, name, f, false, node, err)
             : ckpt_fail_memory(err, "building the tree");
}

int ckpt_session_note(struct ckpt_session *s, struct ckpt_err *err, const char *fmt, ...) {
    if (s->nnotes == s->notes_cap) {
        const size_t cap = s->notes_cap ? 2 * s->notes_cap : 16;
        struct ckpt_text *notes = ckpt_arena_array(&s->arena, cap, sizeof *notes);
        if (!notes)
            return ckpt_fail_memory(err, "building the tree");
        if (s->nnotes)
            memcpy(notes, s->notes, s->nnotes * sizeof *notes);
        s->notes = notes;
        s->notes_cap = cap;
    }
    char text[CKPT_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct ckpt_text note = ckpt_text_copy(&s->arena, text, strlen(text));
    if (!note.s)
        return ckpt_fail_memory(err, "building the tree");
    s->notes[s->nnotes++] = note;
    return 0;
}

static bool later(struct timespec a, struct timespec b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static struct timespec newest(const struct ckpt_checkpoint *c) {
    struct timespec t = {0};
    for (size_t i = 0; i < c->nfiles; i++)
        if (later(c->files[i]->mtime, t))
            t = c->files[i]->mtime;
    return t;
}

static int build_tree(struct ckpt_session *s, struct ckpt_err *err) {
    int rc = ckpt_tree_init(&s->tree, s->options->list_all, err);
    for (size_t i = 0; rc == 0 && i < sizeof file_kinds / sizeof file_kinds[0]; i++)
        rc = file_kinds[i].add(s, err);
    return rc;
}

/* -o cache= is all that reading keeps, unless it is very small: the bands, some bookkeeping, and,
 * with what remains, what had to be decoded. */
static uint64_t decoded_share(uint64_t cache) {
    const uint64_t least = cache < DECODED_LEAST ? cache : DECODED_LEAST;
    return cache > least + BESIDE_DECODED ? cache - BESIDE_DECODED : least;
}

static int open_source(struct ckpt_session *s, const char *source, struct ckpt_err *err) {
    const struct ckpt_options *o = s->options;
    s->source = ckpt_options_absolute(&s->arena, source);
    if (!s->source)
        return ckpt_fail_memory(err, "opening the checkpoint");
    s->verify = o->verify;
    s->verify.source = s->source;
    ckpt_blas_one_thread();
    atomic_store(&s->verify_status, CKPT_STATUS_PENDING);
    int rc = ckpt_checkpoint_open(s->source, &o->open, &s->checkpoint, err);
    if (rc == 0)
        ckpt_decoded_cache_limit(s->checkpoint->decoded, decoded_share(o->cache));
    return rc ? rc : ckpt_session_open_graph(s, err);
}

static int open_session(struct ckpt_session *s, const char *source, struct ckpt_err *err) {
    struct ckpt_adapt_options adapt = s->options->adapt;
    int rc = open_source(s, source, err);
    adapt.graph = s->graph;
    if (rc == 0)
        rc = ckpt_model_build(s->checkpoint, &adapt, &s->model, err);
    if (rc < 0)
        return rc;
    s->mtime = newest(s->checkpoint);
    rc = build_tree(s, err);
    s->generation = rc < 0 ? 0 : ckpt_session_generation(s);
    return rc;
}

static int open_by(int (*open)(struct ckpt_session *s, const char *source, struct ckpt_err *err),
                   const char *source, const struct ckpt_options *options,
                   struct ckpt_session **out, struct ckpt_err *err) {
    struct ckpt_session *s = calloc(1, sizeof *s);
    if (!s)
        return ckpt_fail_memory(err, "opening the checkpoint");
    s->options = options;
    pthread_mutex_init(&s->below_source.mu, NULL);
    pthread_mutex_init(&s->npy.mu, NULL);
    const int rc = open(s, source, err);
    if (rc < 0) {
        ckpt_session_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int ckpt_session_open(const char *source, const struct ckpt_options *options,
                      struct ckpt_session **out, struct ckpt_err *err) {
    return open_by(open_session, source, options, out, err);
}

int ckpt_session_open_source(const char *source, const struct ckpt_options *options,
                             struct ckpt_session **out, struct ckpt_err *err) {
    return open_by(open_source, source, options, out, err);
}

int ckpt_session_start(struct ckpt_session *s, bool prefetch, struct ckpt_err *err) {
    const struct ckpt_reader_options options = {.no_prefetch = !prefetch};
    return ckpt_reader_new(&options, &s->reader, err);
}

static void tell_lanes(void *lanes) {
    ckpt_lanes_progress(lanes);
}

int ckpt_session_start_lanes(struct ckpt_session *s, unsigned n, struct ckpt_err *err) {
    const int rc = ckpt_lanes_new(n, &s->lanes, err);
    if (rc < 0)
        return rc;
    ckpt_reader_watch(s->reader, tell_lanes, s->lanes);
    ckpt_decoded_cache_watch(s->checkpoint->decoded, tell_lanes, s->lanes);
    return 0;
}

void ckpt_session_end_lanes(struct ckpt_session *s) {
    if (!s->lanes)
        return;
    ckpt_lanes_stop(s->lanes);
    ckpt_reader_watch(s->reader, NULL, NULL);
    ckpt_decoded_cache_watch(s->checkpoint->decoded, NULL, NULL);
    ckpt_lanes_free(s->lanes);
    s->lanes = NULL;
}

int ckpt_session_verify(struct ckpt_session *s, const atomic_bool *cancel, struct ckpt_str *report,
                        enum ckpt_status *status, struct ckpt_err *err) {
    struct ckpt_verify_options options = s->verify;
    options.cancel = cancel;
    const int rc = ckpt_verify_run(s->reader, s->model, &options, report, status, err);
    if (rc == 0)
        atomic_store(&s->verify_status, (int)*status);
    return rc;
}

void ckpt_session_close(struct ckpt_session *s) {
    if (!s)
        return;
    ckpt_computed_free(s->report);
    ckpt_reader_free(s->reader);
    ckpt_files_close_npy(s);
    ckpt_files_close_source(s);
    ckpt_later_free(s->burnpack);
    ckpt_tree_fini(&s->tree);
    ckpt_made_free_list(s->made);
    ckpt_plain_close_list(s->plain);
    ckpt_model_free(s->model);
    ckpt_graph_free(s->graph);
    ckpt_checkpoint_close(s->checkpoint);
    ckpt_arena_fini(&s->arena);
    pthread_mutex_destroy(&s->below_source.mu);
    pthread_mutex_destroy(&s->npy.mu);
    free(s);
}
