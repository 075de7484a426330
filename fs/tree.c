/* The virtual tree. The map's keys are the parent's index (4 bytes) and the name, in one string, of
 * which a node's name is the end. */
#include "fs/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/limits.h"

#define KEY_PREFIX sizeof(uint32_t)

int ckpt_tree_init(struct ckpt_tree *t, bool list_all, struct ckpt_err *err) {
    *t = (struct ckpt_tree){.cap = 64, .list_all = list_all};
    t->node = calloc(t->cap, sizeof *t->node);
    if (!t->node)
        return ckpt_fail_memory(err, "building the tree");
    t->node[0] = (struct ckpt_node){.name = CKPT_TEXT(""),
                                    .first = CKPT_TREE_NONE,
                                    .last = CKPT_TREE_NONE,
                                    .next = CKPT_TREE_NONE,
                                    .listed = true};
    t->n = 1;
    return 0;
}

void ckpt_tree_fini(struct ckpt_tree *t) {
    free(t->node);
    ckpt_strmap_fini(&t->map);
    ckpt_arena_fini(&t->arena);
    *t = (struct ckpt_tree){0};
}

uint32_t ckpt_tree_lookup(const struct ckpt_tree *t, uint32_t parent, struct ckpt_text name) {
    char key[KEY_PREFIX + 256];
    if (name.n > 255)
        return CKPT_TREE_NONE;
    memcpy(key, &parent, KEY_PREFIX);
    memcpy(key + KEY_PREFIX, name.s, name.n);
    const size_t i = ckpt_strmap_get(&t->map, (struct ckpt_text){key, KEY_PREFIX + name.n});
    return i == CKPT_STRMAP_ABSENT ? CKPT_TREE_NONE : (uint32_t)i;
}

void ckpt_tree_list(struct ckpt_tree *t, uint32_t i) {
    struct ckpt_node *node = &t->node[i];
    if (node->listed || (node->hidden && !t->list_all))
        return;
    struct ckpt_node *parent = &t->node[node->parent];
    if (parent->last == CKPT_TREE_NONE)
        parent->first = i;
    else
        t->node[parent->last].next = i;
    parent->last = i;
    node->listed = true;
}

static int grow(struct ckpt_tree *t) {
    if (t->n < t->cap)
        return 0;
    const uint32_t cap = t->cap > UINT32_MAX / 4 ? 0 : 2 * t->cap;
    struct ckpt_node *node = cap ? realloc(t->node, cap * sizeof *node) : NULL;
    if (!node)
        return -ENOMEM;
    t->node = node;
    t->cap = cap;
    return 0;
}

/* A node that is in the map and in no list yet. The name is not taken. */
static int add_node(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name,
                    struct ckpt_vfile *file, bool hidden, uint32_t *out, struct ckpt_err *err) {
    if (name.n > 255)
        return ckpt_fail(err, -ENAMETOOLONG, "the file name %.*s has over 255 bytes",
                         CKPT_TEXT_ARGS(name));
    char *key = ckpt_arena_alloc(&t->arena, KEY_PREFIX + name.n + 1);
    if (!key || grow(t) < 0)
        return ckpt_fail_memory(err, "building the tree");
    memcpy(key, &parent, KEY_PREFIX);
    memcpy(key + KEY_PREFIX, name.s, name.n);
    if (ckpt_strmap_add(&t->map, (struct ckpt_text){key, KEY_PREFIX + name.n}, t->n, NULL) < 0)
        return ckpt_fail_memory(err, "building the tree");
    t->node[t->n] = (struct ckpt_node){.name = {key + KEY_PREFIX, name.n},
                                       .parent = parent,
                                       .first = CKPT_TREE_NONE,
                                       .last = CKPT_TREE_NONE,
                                       .next = CKPT_TREE_NONE,
                                       .file = file,
                                       .hidden = hidden};
    *out = t->n++;
    return 0;
}

int ckpt_tree_add_folder(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name, bool hidden,
                         uint32_t *out, struct ckpt_err *err) {
    const uint32_t there = ckpt_tree_lookup(t, parent, name);
    if (there != CKPT_TREE_NONE && t->node[there].file)
        return ckpt_fail(err, -ENOTDIR, "%.*s is both a file and a folder", CKPT_TEXT_ARGS(name));
    *out = there;
    if (there != CKPT_TREE_NONE)
        return 0;
    if (t->nfolders == CKPT_LIMIT_FOLDERS)
        return ckpt_fail(err, -E2BIG,
                         "the tensors' keys make more than %u folders (limit of folders)",
                         CKPT_LIMIT_FOLDERS);
    const int rc = add_node(t, parent, name, NULL, hidden, out, err);
    if (rc == 0)
        t->node[parent].nfolders++, t->nfolders++;
    return rc;
}

int ckpt_tree_add_file(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name,
                       struct ckpt_vfile *file, bool hidden, uint32_t *out, struct ckpt_err *err) {
    *out = ckpt_tree_lookup(t, parent, name);
    if (*out != CKPT_TREE_NONE)
        return ckpt_fail(err, -EEXIST, "two files would be named %.*s", CKPT_TEXT_ARGS(name));
    const int rc = add_node(t, parent, name, file, hidden, out, err);
    if (rc == 0)
        ckpt_tree_list(t, *out);
    return rc;
}

uint32_t ckpt_tree_find(const struct ckpt_tree *t, const char *path) {
    uint32_t at = CKPT_TREE_ROOT;
    while (*path && at != CKPT_TREE_NONE) {
        const size_t n = strcspn(path, "/");
        if (n > 0)
            at = ckpt_tree_lookup(t, at, (struct ckpt_text){path, n});
        path += n + (path[n] == '/');
    }
    return at;
}

/* Bottom up, so that a key of a million dots costs no stack. */
void ckpt_tree_path(const struct ckpt_tree *t, uint32_t node, struct ckpt_str *out) {
    size_t n = 0;
    for (uint32_t i = node; i != CKPT_TREE_ROOT; i = t->node[i].parent)
        n += t->node[i].name.n + 1;
    if (n == 0)
        return;
    char *path = malloc(n);
    if (!path) {
        out->failed = true;
        return;
    }
    size_t at = n;
    for (uint32_t i = node; i != CKPT_TREE_ROOT; i = t->node[i].parent) {
        const struct ckpt_text name = t->node[i].name;
        at -= name.n;
        memcpy(path + at, name.s, name.n);
        path[--at] = '/';
    }
    ckpt_str_add(out, path + 1, n - 1);
    free(path);
}
