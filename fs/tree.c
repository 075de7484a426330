/*
 * The virtual tree. Names are found by open addressing over slots of 8 bytes, which hold no key:
 * the node has it. A tree may have a million nodes, and most are never looked at.
 */
#include "fs/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "formats/limits.h"

#define NAME_MAX_BYTES 255u
#define NPY ".npy"
#define NPY_BYTES (sizeof NPY - 1)

int ckpt_tree_init(struct ckpt_tree *t, bool list_all, struct ckpt_err *err) {
    *t = (struct ckpt_tree){.cap = 64, .nslots = 64, .list_all = list_all};
    t->node = calloc(t->cap, sizeof *t->node);
    t->slot = calloc(t->nslots, sizeof *t->slot);
    if (!t->node || !t->slot)
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
    free(t->slot);
    ckpt_arena_fini(&t->arena);
    *t = (struct ckpt_tree){0};
}

static uint32_t hash_of(uint32_t parent, struct ckpt_text name) {
    const uint64_t h = (ckpt_strmap_hash(name) ^ parent) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

/* The slot that holds the name, or the free one where it belongs. */
static struct ckpt_tree_slot *slot_of(const struct ckpt_tree *t, uint32_t hash, uint32_t parent,
                                      struct ckpt_text name) {
    uint32_t i = hash & (t->nslots - 1);
    for (; t->slot[i].node; i = (i + 1) & (t->nslots - 1)) {
        const struct ckpt_node *node = &t->node[t->slot[i].node];
        if (t->slot[i].hash == hash && node->parent == parent && ckpt_text_eq(node->name, name))
            break;
    }
    return &t->slot[i];
}

static uint32_t find_node(const struct ckpt_tree *t, uint32_t parent, struct ckpt_text name) {
    const uint32_t node = slot_of(t, hash_of(parent, name), parent, name)->node;
    return node ? node : CKPT_TREE_NONE;
}

bool ckpt_tree_has_npy(const struct ckpt_node *node) {
    return node->file && node->file->tensor && ckpt_dtype_info(node->file->tensor->dtype)->numpy;
}

uint32_t ckpt_tree_lookup(const struct ckpt_tree *t, uint32_t parent, struct ckpt_text name) {
    const uint32_t node = find_node(t, parent, name);
    if (node != CKPT_TREE_NONE || !ckpt_text_ends(name, NPY))
        return node;
    const struct ckpt_text tensor = {name.s, name.n - NPY_BYTES};
    const uint32_t beside = find_node(t, parent, tensor);
    return beside != CKPT_TREE_NONE && ckpt_tree_has_npy(&t->node[beside]) ? beside | CKPT_TREE_NPY
                                                                           : CKPT_TREE_NONE;
}

uint32_t ckpt_tree_first(const struct ckpt_tree *t, uint32_t folder) {
    return t->node[folder].first;
}

uint32_t ckpt_tree_next(const struct ckpt_tree *t, uint32_t id) {
    const struct ckpt_node *node = ckpt_tree_node(t, id);
    const bool npy = t->list_all && !(id & CKPT_TREE_NPY) && ckpt_tree_has_npy(node);
    return npy ? id | CKPT_TREE_NPY : node->next;
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

static int grow_slots(struct ckpt_tree *t) {
    const struct ckpt_tree old = *t;
    t->nslots = 2 * old.nslots;
    t->slot = calloc(t->nslots, sizeof *t->slot);
    if (!t->slot) {
        *t = old;
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < old.nslots; i++) {
        const uint32_t node = old.slot[i].node;
        if (node)
            *slot_of(t, old.slot[i].hash, t->node[node].parent, t->node[node].name) = old.slot[i];
    }
    free(old.slot);
    return 0;
}

/* Room for one more node, and its slot: at most three quarters of them are taken. */
static int grow(struct ckpt_tree *t) {
    if (t->n >= t->nslots - t->nslots / 4 && grow_slots(t) < 0)
        return -ENOMEM;
    if (t->n < t->cap)
        return 0;
    const uint32_t cap = t->cap + t->cap / 2;
    struct ckpt_node *node = cap < CKPT_TREE_NPY ? realloc(t->node, cap * sizeof *node) : NULL;
    if (!node)
        return -ENOMEM;
    t->node = node;
    t->cap = cap;
    return 0;
}

/* A node that is in no list yet. The name is not taken. */
static int add_node(struct ckpt_tree *t, uint32_t parent, struct ckpt_text name,
                    struct ckpt_vfile *file, bool hidden, uint32_t *out, struct ckpt_err *err) {
    if (name.n > NAME_MAX_BYTES)
        return ckpt_fail(err, -ENAMETOOLONG, "the file name %.*s has over %u bytes",
                         CKPT_TEXT_ARGS(name), NAME_MAX_BYTES);
    const struct ckpt_text kept = ckpt_text_copy(&t->arena, name.s, name.n);
    if (!kept.s || grow(t) < 0)
        return ckpt_fail_memory(err, "building the tree");
    const uint32_t hash = hash_of(parent, name);
    *slot_of(t, hash, parent, name) = (struct ckpt_tree_slot){hash, t->n};
    t->node[t->n] = (struct ckpt_node){.name = kept,
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
    const uint32_t there = find_node(t, parent, name);
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
            at = at & CKPT_TREE_NPY ? CKPT_TREE_NONE
                                    : ckpt_tree_lookup(t, at, (struct ckpt_text){path, n});
        path += n + (path[n] == '/');
    }
    return at;
}

void ckpt_tree_name(const struct ckpt_tree *t, uint32_t id, struct ckpt_str *out) {
    const struct ckpt_text name = ckpt_tree_node(t, id)->name;
    ckpt_str_add(out, name.s, name.n);
    if (id & CKPT_TREE_NPY)
        ckpt_str_puts(out, NPY);
}

/* Bottom up, so that a key of a million dots costs no stack. */
static void add_path(const struct ckpt_tree *t, uint32_t node, struct ckpt_str *out) {
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

void ckpt_tree_path(const struct ckpt_tree *t, uint32_t id, struct ckpt_str *out) {
    add_path(t, id & ~CKPT_TREE_NPY, out);
    if (id & CKPT_TREE_NPY)
        ckpt_str_puts(out, NPY);
}
