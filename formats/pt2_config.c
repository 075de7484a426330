/*
 * {"config": {"fc1.weight": {"path_name": "weight_0", "is_param": true, "use_pickle": false,
 *                            "tensor_meta": DESCRIPTION}, ...}}
 */
#include "formats/pt2.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/json_walk.h"

struct parser {
    struct ckpt_json json;
    struct ckpt_pt2_config *config;
    struct ckpt_arena *arena;
    struct ckpt_pt2_entry *entry; /* being read */
    bool has_path, has_meta, has_config;
    struct ckpt_err *err;
};

static int entry_member(void *user, struct ckpt_text key) {
    struct parser *p = user;
    if (ckpt_text_is(key, "path_name")) {
        p->has_path = true;
        return ckpt_json_read_text(&p->json, "path_name", p->arena, &p->entry->path);
    }
    if (ckpt_text_is(key, "use_pickle"))
        return ckpt_json_read_bool(&p->json, "use_pickle", &p->entry->is_pickle);
    if (!ckpt_text_is(key, "tensor_meta"))
        return ckpt_json_read_nothing(&p->json);
    const int token = ckpt_json_next(&p->json);
    if (token == CKPT_JSON_NULL) /* of what is no plain tensor */
        return 0;
    p->has_meta = true;
    return ckpt_export_meta_take(&p->json, token, p->arena, &p->entry->meta);
}

static int add_entry(struct parser *p, struct ckpt_text key) {
    struct ckpt_pt2_config *c = p->config;
    if (c->n == CKPT_LIMIT_TENSORS)
        return ckpt_fail(p->err, -E2BIG, "more than %u tensors (limit of tensors)",
                         CKPT_LIMIT_TENSORS);
    const struct ckpt_text copy = ckpt_text_copy(p->arena, key.s, key.n);
    if (!copy.s || !ckpt_array_grow(&c->entry, c->n, &c->cap, sizeof *c->entry))
        return ckpt_fail_memory(p->err, "listing tensors");
    p->entry = &c->entry[c->n++];
    *p->entry = (struct ckpt_pt2_entry){.key = copy, .path = CKPT_TEXT("")};
    p->has_path = p->has_meta = false;
    return 0;
}

static int config_member(void *user, struct ckpt_text key) {
    struct parser *p = user;
    int rc = add_entry(p, key);
    if (rc)
        return rc;
    rc = ckpt_json_read_object(&p->json, "its entry", entry_member, p);
    if (rc == 0 && (!p->has_path || (!p->has_meta && !p->entry->is_pickle)))
        rc = ckpt_fail(p->err, -EINVAL, "its entry has no %s",
                       p->has_path ? "tensor_meta" : "path_name");
    return rc ? ckpt_fail_in(p->err, "tensor \"%.*s\"", CKPT_TEXT_ARGS(p->entry->key)) : 0;
}

static int top_member(void *user, struct ckpt_text key) {
    struct parser *p = user;
    if (!ckpt_text_is(key, "config"))
        return ckpt_json_read_nothing(&p->json);
    p->has_config = true;
    return ckpt_json_read_object(&p->json, "config", config_member, p);
}

int ckpt_pt2_config_parse(const void *json, size_t n, struct ckpt_arena *a,
                          struct ckpt_pt2_config *out, struct ckpt_err *err) {
    struct parser p = {.config = out, .arena = a, .err = err};
    *out = (struct ckpt_pt2_config){0};
    ckpt_json_init(&p.json, json, n, CKPT_LIMIT_JSON_DEPTH, err);
    int rc = ckpt_json_read_object(&p.json, "the configuration", top_member, &p);
    if (rc == 0)
        rc = ckpt_json_next(&p.json); /* EOF is 0 */
    ckpt_json_fini(&p.json);
    if (rc == 0 && !p.has_config)
        rc = ckpt_fail(err, -EINVAL, "it has no \"config\"");
    if (rc)
        ckpt_pt2_config_fini(out);
    return rc;
}

void ckpt_pt2_config_fini(struct ckpt_pt2_config *c) {
    free(c->entry);
    *c = (struct ckpt_pt2_config){0};
}
