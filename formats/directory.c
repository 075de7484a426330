#include "formats/directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

bool ckpt_directory_has(const char *directory, const char *suffix) {
    CKPT_AUTO(dir) DIR *d = opendir(directory);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (ckpt_text_ends(ckpt_text_of(e->d_name), suffix))
            return true;
    return false;
}

static int fail_list(struct ckpt_err *err, int code) {
    return ckpt_fail(err, -code, "cannot list the directory: %s", strerror(code));
}

static int fail_memory(struct ckpt_err *err) {
    return ckpt_fail_memory(err, "reading a model directory");
}

int ckpt_directory_pick(struct ckpt_arena *a, const char *directory, const char *preferred,
                        const char *suffix, const char **name, struct ckpt_err *err) {
    CKPT_AUTO(dir) DIR *d = opendir(directory);
    if (!d)
        return fail_list(err, errno);
    char first[NAME_MAX + 1] = "", second[NAME_MAX + 1] = "";
    bool has_preferred = false;
    for (const struct dirent *e; (e = readdir(d));) {
        has_preferred = has_preferred || strcmp(e->d_name, preferred) == 0;
        if (!ckpt_text_ends(ckpt_text_of(e->d_name), suffix))
            continue;
        snprintf(*first ? second : first, sizeof first, "%s", e->d_name);
    }
    if (!has_preferred && *second)
        return ckpt_fail(err, -EINVAL,
                         "several candidates (\"%s\", \"%s\") and no \"%s\": name one file as the "
                         "source",
                         first, second, preferred);
    const char *chosen = has_preferred ? preferred : *first ? first : NULL;
    *name = chosen ? ckpt_arena_copy(a, chosen, strlen(chosen)) : NULL;
    return chosen && !*name ? fail_memory(err) : 0;
}

static bool is_weight_file(struct ckpt_text name) {
    return ckpt_text_ends(name, ".safetensors") ||
           ckpt_text_ends(name, ".safetensors.index.json") || ckpt_text_is(name, ".metadata") ||
           ckpt_text_ends(name, ".distcp") ||
           (ckpt_text_starts(name, "pytorch_model") &&
            (ckpt_text_ends(name, ".bin") || ckpt_text_ends(name, ".bin.index.json")));
}

static size_t count_weight_files(DIR *d) {
    size_t n = 0;
    for (const struct dirent *e; (e = readdir(d));)
        n += is_weight_file(ckpt_text_of(e->d_name));
    rewinddir(d);
    return n;
}

int ckpt_directory_fill(struct ckpt_checkpoint *c, const char *directory, struct ckpt_err *err) {
    CKPT_AUTO(free) char *resolved = realpath(directory, NULL);
    CKPT_AUTO(dir) DIR *d = opendir(directory);
    if (!resolved || !d)
        return fail_list(err, errno);
    const size_t n = count_weight_files(d);
    c->directory = ckpt_arena_copy(&c->arena, resolved, strlen(resolved));
    c->weight_files = ckpt_arena_array(&c->arena, n + 1, sizeof *c->weight_files);
    if (!c->directory || !c->weight_files)
        return fail_memory(err);
    size_t i = 0;
    for (const struct dirent *e; i < n && (e = readdir(d));) {
        if (!is_weight_file(ckpt_text_of(e->d_name)))
            continue;
        c->weight_files[i] = ckpt_arena_copy(&c->arena, e->d_name, strlen(e->d_name));
        if (!c->weight_files[i++])
            return fail_memory(err);
    }
    return 0;
}

bool ckpt_is_plain_name(struct ckpt_text name) {
    return name.n > 0 && !memchr(name.s, '/', name.n) && !memchr(name.s, '\0', name.n) &&
           !ckpt_text_is(name, ".") && !ckpt_text_is(name, "..");
}

char *ckpt_directory_path(const char *directory, const char *name) {
    char *path = NULL;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

int ckpt_directory_open(const char *directory, const char *name, struct ckpt_file **out,
                        struct ckpt_err *err) {
    CKPT_AUTO(free) char *path = ckpt_directory_path(directory, name);
    if (!path)
        return fail_memory(err);
    return ckpt_file_open(path, out, err) ? ckpt_fail_in(err, "%s", name) : 0;
}
