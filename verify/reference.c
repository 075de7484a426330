/* The recorded reference: any checkpoint that we open will do. */
#include "verify/reference.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

char *ckpt_reference_sidecar(const char *source, const char *ending) {
    size_t n = strlen(source);
    while (n > 1 && source[n - 1] == '/')
        n--;
    const char *const slash = memrchr(source, '/', n);
    const char *const name = slash ? slash + 1 : source;
    const char *const dot = memrchr(name, '.', n - (size_t)(name - source));
    if (dot && dot > name)
        n = (size_t)(dot - source);
    char *const path = malloc(n + strlen(ending) + 1);
    if (path) {
        memcpy(path, source, n);
        strcpy(path + n, ending);
    }
    return path;
}

static int index_tensors(struct ckpt_reference *ref, struct ckpt_err *err) {
    for (size_t i = 0; i < ref->file->ntensors; i++) {
        size_t existing;
        if (ckpt_strmap_add(&ref->by_key, ref->file->tensors[i].key, i, &existing) == -ENOMEM)
            return ckpt_fail_memory(err, "reading the reference");
    }
    ref->status = CKPT_STATUS_PASS;
    return 0;
}

int ckpt_reference_open(const struct ckpt_verify_options *options, struct ckpt_reference *ref,
                        struct ckpt_err *err) {
    static const struct ckpt_open_options plain = {0};
    struct ckpt_err found = {0};
    CKPT_AUTO(free) char *sidecar = NULL;
    const char *path = options->reference;
    *ref = (struct ckpt_reference){.status = CKPT_STATUS_SKIP};
    if (!path && options->source) {
        path = sidecar = ckpt_reference_sidecar(options->source, ".reference.safetensors");
        if (!sidecar)
            return ckpt_fail_memory(err, "looking for a reference");
    }
    if (!path || (!options->reference && access(path, F_OK) != 0)) {
        ckpt_reason_set(&ref->reason, "no outputs recorded from PyTorch were given");
        return 0;
    }
    if (ckpt_checkpoint_open(path, &plain, &ref->file, &found) == 0)
        return index_tensors(ref, err);
    ref->file = NULL;
    ref->status = CKPT_STATUS_TEST_FAIL;
    ckpt_reason_set(&ref->reason, "the reference cannot be read: %s", found.text);
    return 0;
}

void ckpt_reference_close(struct ckpt_reference *ref) {
    ckpt_strmap_fini(&ref->by_key);
    ckpt_checkpoint_close(ref->file);
    ref->file = NULL;
}

const struct ckpt_tensor *ckpt_reference_get(const struct ckpt_reference *ref,
                                             struct ckpt_text path, const char *name) {
    CKPT_AUTO(str) struct ckpt_str key = {0};
    if (!ref->file)
        return NULL;
    ckpt_str_add(&key, path.s, path.n);
    ckpt_str_puts(&key, path.n ? "." : "");
    ckpt_str_puts(&key, name);
    const size_t at =
        key.failed ? CKPT_STRMAP_ABSENT : ckpt_strmap_get(&ref->by_key, ckpt_str_text(&key));
    return at == CKPT_STRMAP_ABSENT ? NULL : &ref->file->tensors[at];
}
