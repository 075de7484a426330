/*
 * The graph beside the source: graph=FILE, or STEM.pt2, STEM.graph.json or STEM.torchscript.pt.
 * It is evidence of what the modules are; one that can't be used is a warning, since the tensors
 * are there without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "fs/session.h"
#include "verify/reference.h"

/* The file's path in the session's arena, or NULL: there is none, or no memory. */
static const char *find_graph(struct ckpt_session *s) {
    static const char *const endings[] = {".pt2", ".graph.json", ".torchscript.pt"};
    if (s->options->verify.graph)
        return s->options->verify.graph;
    for (size_t i = 0; !s->checkpoint->graph && i < sizeof endings / sizeof endings[0]; i++) {
        CKPT_AUTO(free) char *path = ckpt_reference_sidecar(s->source, endings[i]);
        if (path && strcmp(path, s->source) != 0 && access(path, F_OK) == 0)
            return ckpt_arena_copy(&s->arena, path, strlen(path));
    }
    return NULL;
}

int ckpt_session_open_graph(struct ckpt_session *s, struct ckpt_err *err) {
    struct ckpt_err why = {0};
    s->verify.graph = find_graph(s);
    if (!s->verify.graph) {
        const struct ckpt_err *const no_graph = s->checkpoint->no_graph;
        s->verify.graph_error = no_graph ? no_graph->text : NULL; /* for the checker's report */
        return 0;
    }
    if (ckpt_graph_open(s->verify.graph, &s->graph, &why) == 0) {
        s->verify.opened = s->graph;
        return 0;
    }
    const char *const slash = strrchr(s->verify.graph, '/');
    s->verify.graph_error = ckpt_arena_copy(&s->arena, why.text, strlen(why.text));
    if (!s->verify.graph_error ||
        ckpt_checkpoint_warn(s->checkpoint, "the graph %s is not used: %s",
                             slash ? slash + 1 : s->verify.graph, why.text) != 0)
        return ckpt_fail_memory(err, "opening the graph");
    return 0;
}
