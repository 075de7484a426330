/*
 * TAR containers of torch before 0.1.10. Checksums of headers are made right first, so that the
 * fuzzer gets behind them. Property: that of checkpoint_property.h, and every member that is found
 * lies inside the file.
 */
#include "checkpoint_property.h"
#include "formats/tar.h"

#define BLOCK 512u
#define SIZE_MAX_FUZZED ((size_t)1 << 20)

/* A block that says "ustar" where a header does gets the checksum that it should have. */
static void repair(uint8_t *block) {
    unsigned sum = 8 * ' ';
    char text[8];
    if (memcmp(block + 257, "ustar", 5) != 0)
        return;
    for (unsigned i = 0; i < BLOCK; i++)
        sum += i < 148 || i >= 156 ? block[i] : 0u;
    snprintf(text, sizeof text, "%06o", sum & 0777777u);
    memcpy(block + 148, text, 7);
    block[155] = ' ';
}

static void check_members(void) {
    struct ckpt_tar_member m[] = {{"storages", 0, 0}, {"tensors", 0, 0}, {"pickle", 0, 0}};
    struct ckpt_file *f = NULL;
    struct ckpt_err err = {0};
    require(ckpt_file_open(path, &f, &err) == 0);
    if (ckpt_tar_find(f, m, 3, &err) == 0)
        for (size_t i = 0; i < 3; i++)
            require(m[i].data <= f->size && m[i].size <= f->size - m[i].data);
    else
        require(err.text[0] != '\0');
    ckpt_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    CKPT_AUTO(free) uint8_t *copy = size && size <= SIZE_MAX_FUZZED ? malloc(size) : NULL;
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    for (size_t at = 0; at + BLOCK <= size; at += BLOCK)
        repair(copy + at);
    check_file_twice(copy, size);
    check_members();
    return 0;
}
