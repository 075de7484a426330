#include "formats/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/*
 *     header, 512 bytes │ data, padded to 512 │ header │ data │ ... │ zeros
 *
 *     0 name │ 100 mode, owner │ 124 size │ 136 mtime │ 148 checksum │ 156 type │ 157 link │
 *     257 "ustar" │ 265 names, devices │ 345 prefix of the name │ 500
 *
 * Numbers are octal text; a size that needs more is big-endian binary with its first bit set (GNU).
 */
#define BLOCK 512u
#define NAME_BYTES 100
#define SIZE_AT 124
#define SIZE_BYTES 12
#define CHECKSUM_AT 148
#define CHECKSUM_BYTES 8
#define TYPE_AT 156
#define PREFIX_AT 345

static bool is_zero(const uint8_t *block) {
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static bool parse_octal(const uint8_t *field, size_t n, uint64_t *out) {
    size_t i = 0;
    uint64_t value = 0;
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0'); /* 12 digits are 36 bits */
    *out = value;
    return i == n || field[i] == ' ' || field[i] == '\0';
}

static bool parse_size(const uint8_t *field, uint64_t *out) {
    if (!(field[0] & 0x80))
        return parse_octal(field, SIZE_BYTES, out);
    *out = 0;
    for (size_t i = SIZE_BYTES - 8; i < SIZE_BYTES; i++)
        *out = *out << 8 | field[i];
    return field[0] == 0x80 && field[1] == 0 && field[2] == 0 && field[3] == 0;
}

/* The sum of all bytes, those of the checksum counted as blanks. */
static bool checksum_is_right(const uint8_t *block) {
    uint64_t said, sum = CHECKSUM_BYTES * ' ';
    for (size_t i = 0; i < BLOCK; i++)
        if (i < CHECKSUM_AT || i >= CHECKSUM_AT + CHECKSUM_BYTES)
            sum += block[i];
    return parse_octal(block + CHECKSUM_AT, CHECKSUM_BYTES, &said) && said == sum;
}

static struct ckpt_tar_member *wanted(const uint8_t *block, struct ckpt_tar_member *members,
                                      size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strncmp((const char *)block, members[i].name, NAME_BYTES) == 0 && !block[PREFIX_AT])
            return &members[i];
    return NULL;
}

/* Notes where a wanted member lies. */
static int take(struct ckpt_tar_member *m, uint8_t type, uint64_t data, uint64_t size,
                struct ckpt_err *err) {
    if (type != '0' && type != '\0')
        return ckpt_fail(err, -EINVAL,
                         "TAR member \"%s\" at byte %llu is a link or special file, expected a "
                         "regular one",
                         m->name, (unsigned long long)(data - BLOCK));
    if (m->data)
        return ckpt_fail(err, -EINVAL, "two TAR members are named \"%s\"", m->name);
    m->data = data;
    m->size = size;
    return 0;
}

static int fail_header(uint64_t at, struct ckpt_err *err) {
    return ckpt_fail(err, -EINVAL, "damaged TAR archive: no valid header at byte %llu",
                     (unsigned long long)at);
}

int ckpt_tar_find(const struct ckpt_file *f, struct ckpt_tar_member *members, size_t n,
                  struct ckpt_err *err) {
    uint8_t block[BLOCK];
    for (uint64_t at = 0; f->size >= BLOCK && at <= f->size - BLOCK;) {
        uint64_t size;
        int rc = ckpt_file_read(f, at, block, sizeof block, err);
        if (rc || is_zero(block))
            return rc;
        if (!checksum_is_right(block) || !parse_size(block + SIZE_AT, &size))
            return fail_header(at, err);
        at += BLOCK;
        if (size > f->size - at)
            return ckpt_fail(err, -EINVAL,
                             "the TAR member at byte %llu has %llu bytes, which end behind the "
                             "file's %llu: cut short?",
                             (unsigned long long)at, (unsigned long long)size,
                             (unsigned long long)f->size);
        struct ckpt_tar_member *m = wanted(block, members, n);
        if (m)
            rc = take(m, block[TYPE_AT], at, size, err);
        if (rc)
            return rc;
        at += (size + BLOCK - 1) / BLOCK * BLOCK;
    }
    return 0;
}
