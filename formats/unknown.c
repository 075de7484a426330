#include "formats/unknown.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"

/* Things that people do mistake for a checkpoint, by their first bytes. */
static const struct {
    const char *magic;
    size_t n;
    const char *what;
} known[] = {
#define MAGIC(bytes, text)                                                                         \
    { bytes, sizeof(bytes) - 1, text }
    MAGIC("version https://git-lfs",
          "a Git LFS pointer, not the checkpoint itself: run `git lfs pull` in its repository"),
    MAGIC("\x1f\x8b", "compressed with gzip: unpack it first (gunzip)"),
    MAGIC("\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first (unzstd)"),
    MAGIC("\xfd"
          "7zXZ",
          "compressed with xz: unpack it first (unxz)"),
    MAGIC("BZh", "compressed with bzip2: unpack it first (bunzip2)"),
    MAGIC("7z\xbc\xaf", "a 7-Zip archive: unpack it first"),
    MAGIC("\x89HDF", "an HDF5 file (Keras?), which is not supported"),
    MAGIC("GGUF", "a GGUF file, which is not supported"),
    MAGIC("\x93NUMPY", "a single numpy array, not a checkpoint"),
    MAGIC("\x0c\xdb\x3a\x2a",
          "the manifest of a database of Orbax's (OCDBT): name the folder that it lies in"),
    MAGIC("\x0c\xdb\x20\xde",
          "a piece of a database of Orbax's (OCDBT): name the folder with manifest.ocdbt"),
    MAGIC("PK\3\4", "a ZIP archive without a PyTorch checkpoint in it"),
#undef MAGIC
};

/* How many of the first bytes there are; none, if they can't be read. */
static size_t read_start(const struct ckpt_file *f, void *out, size_t most) {
    const size_t n = f->size < most ? (size_t)f->size : most;
    return ckpt_file_read(f, 0, out, n, NULL) == 0 ? n : 0;
}

const char *ckpt_recognise_other(const struct ckpt_file *f) {
    if (f->size == 0)
        return "the file is empty (an unfinished download or save?)";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ckpt_file_has(f, 0, known[i].magic, known[i].n))
            return known[i].what;
    char start[1000];
    const size_t n = read_start(f, start, sizeof start);
    size_t i = 0;
    while (i < n && isspace((unsigned char)start[i]))
        i++;
    const char first = i < n ? start[i] : '\0';
    return first == '<'   ? "an HTML or XML text: the download got an error page or a login form"
           : first == '{' ? "a JSON text, not a checkpoint"
                          : NULL;
}

static int fail_with_bytes(const struct ckpt_file *f, struct ckpt_err *err) {
    struct ckpt_str bytes = {0};
    uint8_t start[8];
    const size_t n = read_start(f, start, sizeof start);
    for (size_t i = 0; i < n; i++)
        ckpt_str_printf(&bytes, " %02x", start[i]);
    ckpt_fail(err, -EINVAL,
              "not a checkpoint: expected safetensors, burnpack or a PyTorch file (ZIP or legacy "
              "pickle), "
              "found the first bytes%s",
              ckpt_str_text(&bytes).s);
    ckpt_str_fini(&bytes);
    return -EINVAL;
}

int ckpt_fail_unknown(const struct ckpt_file *f, struct ckpt_err *err) {
    const char *what = ckpt_recognise_other(f);
    return what ? ckpt_fail(err, -EINVAL, "not a checkpoint: %s", what) : fail_with_bytes(f, err);
}
