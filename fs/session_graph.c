/*
 * The graph beside the source: graph=FILE, or STEM.pt2 or STEM.graph.json. It is evidence of what
 * the modules are; one that can't be used is a warning, since the tensors are there without it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "formats/graph.h"
#include "fs/session.h"
#include "verify/reference.h"

/* The file's path, or NULL: there is none, or no memory. */
static char *find_graph(const struct ckpt_session *s) {
    static const char *const endings[] = {".pt2", ".graph.json"};
    if (s->options->verify.graph)
        return strdup(s->options->verify.graph);
    for (size_t i = 0; !s->checkpoint->graph && i < sizeof endings / sizeof endings[0]; i++) {
        CKPT_AUTO(free) char *path = ckpt_reference_sidecar(s->source, endings[i]);
        if (path && strcmp(path, s->source) != 0 && access(path, F_OK) == 0)
            return CKPT_STEAL(path);
    }
    return NULL;
}

int ckpt_session_open_graph(struct ckpt_session *s, struct ckpt_err *err) {
    CKPT_AUTO(free) char *path = find_graph(s);
    struct ckpt_err why = {0};
    if (!path || ckpt_graph_open(path, &s->graph, &why) == 0)
        return 0;
    const char *slash = strrchr(path, '/');
    if (ckpt_checkpoint_warn(s->checkpoint, "the graph %s is not used: %s",
                             slash ? slash + 1 : path, why.text) != 0)
        return ckpt_fail_memory(err, "opening the graph");
    return 0;
}
