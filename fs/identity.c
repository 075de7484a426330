/*
 * A plain file of the source directory is one by construction. A file of segments is one if all of
 * its tensors lie in one source file where they are here, and what is between them (a header of our
 * own making, padding) has the bytes that the source has there: so it is with model.safetensors of
 * what --export has written.
 */
#include "fs/identity.h"

#include <string.h>

#include "base/guard.h"
#include "formats/blob.h"
#include "formats/tensor.h"

/* The file in which the tensor lies as one run of untouched bytes, and where; or NULL. */
static const struct ckpt_file *find_extent(const struct ckpt_adapted *t, uint64_t *offset) {
    if (!t->untouched)
        return NULL;
    const struct ckpt_blob *const blob = t->part[0].source->blob;
    *offset = blob->file_offset + (uint64_t)t->part[0].walk->offset;
    return blob->in_file ? blob->file : NULL;
}

/* The only file that f can be: its first tensor's, if the sizes agree. */
static const struct ckpt_file *find_candidate(const struct ckpt_vfile *f) {
    uint64_t offset = 0;
    uint32_t i = 0;
    while (i < f->nsegments && f->segment[i].kind != CKPT_SEGMENT_TENSOR)
        i++;
    const struct ckpt_file *const file =
        i < f->nsegments ? find_extent(f->segment[i].tensor, &offset) : NULL;
    return file && file->size == f->bytes ? file : NULL;
}

/* 1, 0, or -EIO if the source shrank meanwhile. */
static int has_bytes(const struct ckpt_file *file, uint64_t at, const void *bytes, size_t n) {
    int rc, differs = 0;
    CKPT_GUARDED(rc, differs = memcmp(file->data + at, bytes, n));
    return rc ? rc : !differs;
}

static int has_zeros(const struct ckpt_file *file, uint64_t at, uint64_t n) {
    static const char zeros[4096];
    int same = 1;
    for (uint64_t done = 0; same == 1 && done < n; done += sizeof zeros)
        same = has_bytes(file, at + done, zeros,
                         n - done < sizeof zeros ? (size_t)(n - done) : sizeof zeros);
    return same;
}

static int has_made(const struct ckpt_file *file, const struct ckpt_segment *s,
                    struct ckpt_err *err) {
    const char *text;
    const int rc = ckpt_made_text(s->made, &text, err);
    return rc < 0 ? rc : has_bytes(file, s->at, text, (size_t)s->nbytes);
}

static int has_segment(const struct ckpt_file *file, const struct ckpt_segment *s,
                       struct ckpt_err *err) {
    uint64_t offset = 0;
    switch (s->kind) {
    case CKPT_SEGMENT_BYTES:
        return has_bytes(file, s->at, s->bytes, (size_t)s->nbytes);
    case CKPT_SEGMENT_ZEROS:
        return has_zeros(file, s->at, s->nbytes);
    case CKPT_SEGMENT_MADE:
        return has_made(file, s, err);
    case CKPT_SEGMENT_TENSOR:
        break;
    }
    return find_extent(s->tensor, &offset) == file && offset == s->at;
}

int ckpt_vfile_is_source(struct ckpt_vfile *f, const struct ckpt_file **file,
                         struct ckpt_err *err) {
    if (f->kind == CKPT_VFILE_PLAIN) {
        *file = f->plain->file;
        return (*file)->size > 0;
    }
    *file = f->kind == CKPT_VFILE_SEGMENTS ? find_candidate(f) : NULL;
    int same = *file != NULL;
    for (uint32_t i = 0; same == 1 && i < f->nsegments; i++)
        same = has_segment(*file, &f->segment[i], err);
    return same < 0 ? ckpt_fail(err, same, "comparing with %s", (*file)->name) : same;
}
