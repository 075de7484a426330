#include "formats/checkpoint.h"

#include <errno.h>
#include <string.h>

/* The container of torch before 0.1.10 (2017), a TAR archive: known, and refused by name. */

#define MAGIC_AT 257

static bool detect(const char *source, const struct ckpt_file *file) {
    (void)source;
    return file && file->size > MAGIC_AT + 5 && memcmp(file->data + MAGIC_AT, "ustar", 5) == 0;
}

static int read_file(struct ckpt_checkpoint *c, const char *source,
                     const struct ckpt_open_options *options, struct ckpt_err *err) {
    (void)c;
    (void)source;
    (void)options;
    return ckpt_fail(err, -ENOTSUP,
                     "a TAR archive (a checkpoint of torch before 0.1.10?): not supported; load it "
                     "with torch.load and save it again");
}

const struct ckpt_format ckpt_format_torch_tar = {
    .name = "torch-tar", .detect = detect, .read = read_file};
