/*
 * Where SOURCE is a directory, its other plain files and folders, as they are (config.json,
 * tokenizer files, assets/), so that the mount is a whole model directory. Symbolic links are
 * followed, since hub caches are made of them; depth and count are bounded, so a loop of links
 * ends. With allow_other, links that leave the directory are not: a downloaded one may hold a link
 * to what only the mounting user may read.
 */
#include "fs/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

#define DEPTH_MAX 8
#define ENTRIES_MAX 10000

struct scan {
    struct ckpt_session *s;
    char *root; /* what links may lead to, with its last slash; NULL: anything */
    unsigned entries;
    struct {
        dev_t dev;
        ino_t ino;
    } inside[DEPTH_MAX + 1]; /* the folder at each depth of where we are */
};

static void enter(struct scan *scan, unsigned depth, const struct stat *st) {
    scan->inside[depth].dev = st->st_dev;
    scan->inside[depth].ino = st->st_ino;
}

static bool is_inside(const struct scan *scan, unsigned depth, const struct stat *st) {
    for (unsigned i = 0; i <= depth; i++)
        if (scan->inside[i].dev == st->st_dev && scan->inside[i].ino == st->st_ino)
            return true;
    return false;
}

static void free_names(char ***names) {
    for (char **n = *names; n && *n; n++)
        free(*n);
    free(*names);
}
CKPT_DEFINE_AUTO(names, char **, free_names)

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The sorted names in a directory, NULL-terminated; readdir's own order differs by machine. */
static char **read_names(const char *path) {
    DIR *dir = opendir(path);
    if (!dir)
        return NULL;
    size_t n = 0, cap = 16;
    char **names = calloc(cap, sizeof *names);
    for (struct dirent *e; names && (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (n + 2 > cap) {
            char **more = realloc(names, (cap *= 2) * sizeof *names);
            if (!more)
                break;
            names = more;
        }
        names[n] = strdup(e->d_name);
        if (!names[n])
            break;
        names[++n] = NULL;
    }
    closedir(dir);
    if (names)
        qsort(names, n, sizeof *names, by_name);
    return names;
}

static bool is_weight_file(const struct ckpt_checkpoint *c, const char *name) {
    for (const char **w = c->weight_files; w && *w; w++)
        if (strcmp(*w, name) == 0)
            return true;
    return false;
}

static int scan_folder(struct scan *scan, const char *path, uint32_t folder, unsigned depth,
                       struct ckpt_err *err);

static int left_out(struct scan *scan, const char *path, const char *why, struct ckpt_err *err) {
    const char *below = path + strlen(scan->s->checkpoint->directory);
    return ckpt_session_note(scan->s, err, "%s is left out: %s", below + (*below == '/'), why);
}

/* The directory itself; of a snapshot in a hub's cache, whose files are links to ../../blobs/HASH,
 * the folder that has both. */
static char *find_root(const char *directory) {
    char *real = realpath(directory, NULL);
    if (!real)
        return NULL;
    char *const revision = strrchr(real, '/');
    *revision = '\0';
    char *const folder = strrchr(real, '/');
    if (folder && strcmp(folder, "/snapshots") == 0)
        *folder = '\0';
    else
        *revision = '/';
    char *const root = realloc(real, strlen(real) + 2);
    if (!root) {
        free(real);
        return NULL;
    }
    return strcat(root, "/");
}

static bool leads_out(const struct scan *scan, const char *path) {
    CKPT_AUTO(free) char *real = scan->root ? realpath(path, NULL) : NULL;
    return scan->root && (!real || strncmp(real, scan->root, strlen(scan->root)) != 0);
}

static int add_file(struct scan *scan, const char *path, const struct stat *st, uint32_t folder,
                    struct ckpt_text name, struct ckpt_err *err) {
    struct ckpt_session *s = scan->s;
    struct ckpt_plain *p = ckpt_plain_new(&s->plain, &s->arena, path, st);
    struct ckpt_vfile *f = p ? ckpt_vfile_plain(&s->arena, p) : NULL;
    uint32_t node;
    return f ? ckpt_session_add_file(s, folder, name, f, false, &node, err)
             : ckpt_fail_memory(err, "building the tree");
}

static int add_entry(struct scan *scan, const char *path, uint32_t folder, const char *entry,
                     unsigned depth, struct ckpt_err *err) {
    struct ckpt_session *s = scan->s;
    const struct ckpt_text name = ckpt_text_of(entry);
    struct stat st;
    if (stat(path, &st) != 0)
        return left_out(scan, path, strerror(errno), err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return left_out(scan, path, "it is neither a file nor a folder", err);
    if (ckpt_tree_lookup(&s->tree, folder, name) != CKPT_TREE_NONE ||
        (folder == CKPT_TREE_ROOT && ckpt_session_name_is_ours(name)))
        return left_out(scan, path, "the mount has something else of that name", err);
    if (leads_out(scan, path))
        return left_out(scan, path,
                        "the link leads out of the directory, and allow_other would show to "
                        "everybody what is there",
                        err);
    if (S_ISREG(st.st_mode))
        return add_file(scan, path, &st, folder, name, err);
    if (is_inside(scan, depth, &st))
        return left_out(scan, path, "the link leads back into a folder that holds it", err);
    if (depth == DEPTH_MAX)
        return left_out(scan, path, "the folders are nested too deeply", err);
    enter(scan, depth + 1, &st);
    uint32_t sub;
    const int rc = ckpt_tree_add_folder(&s->tree, folder, name, false, &sub, err);
    if (rc < 0)
        return rc;
    ckpt_tree_list(&s->tree, sub);
    return scan_folder(scan, path, sub, depth + 1, err);
}

static int scan_folder(struct scan *scan, const char *path, uint32_t folder, unsigned depth,
                       struct ckpt_err *err) {
    CKPT_AUTO(names) char **names = read_names(path);
    if (!names)
        return left_out(scan, path, "it cannot be read", err);
    for (char **n = names; *n; n++) {
        if (depth == 0 && is_weight_file(scan->s->checkpoint, *n))
            continue;
        const char *below = ckpt_arena_printf(&scan->s->arena, "%s/%s", path, *n);
        if (!below)
            return ckpt_fail_memory(err, "building the tree");
        if (scan->entries++ == ENTRIES_MAX)
            return left_out(scan, below, "this and all after it: the directory has too many files",
                            err);
        if (scan->entries > ENTRIES_MAX)
            return 0;
        const int rc = add_entry(scan, below, folder, *n, depth, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int ckpt_files_add_plain(struct ckpt_session *s, struct ckpt_err *err) {
    if (!s->checkpoint->directory)
        return 0;
    struct scan scan = {.s = s};
    struct stat st;
    if (stat(s->checkpoint->directory, &st) != 0)
        return ckpt_fail(err, -errno, "the directory: %s", strerror(errno));
    CKPT_AUTO(free) char *root = NULL;
    if (s->options->allow_other && !(root = find_root(s->checkpoint->directory)))
        return ckpt_fail_memory(err, "building the tree");
    scan.root = root;
    enter(&scan, 0, &st);
    return scan_folder(&scan, s->checkpoint->directory, CKPT_TREE_ROOT, 0, err);
}
