/*
 * File names made of key segments. The encoding is injective: a '%' of the segment is itself
 * encoded, and a cut name is told apart by a digest of the whole.
 */
#include "fs/name.h"

#include <sha256.h>
#include <stdio.h>

#define DIGEST_DIGITS 16

static bool must_encode(unsigned char c) {
    return c < 0x20 || c == 0x7f || c == '/' || c == '%' || c == '.';
}

/* How many bytes from s on stand for themselves: nearly all, in nearly all keys. */
static size_t plain_run(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && (unsigned char)s[i] < 0x80 && !must_encode((unsigned char)s[i]))
        i++;
    return i;
}

/* Appends the character at s (n > 0 bytes are left) and returns how many bytes it took. */
static size_t encode_character(struct ckpt_str *out, const char *s, size_t n) {
    const unsigned char c = (unsigned char)s[0];
    size_t len = 1;
    while (len < n && len < 4 && ((unsigned char)s[len] & 0xc0) == 0x80)
        len++;
    if (c < 0x80)
        len = 1;
    if (must_encode(c) || ckpt_utf8_valid(s, len) != len) {
        ckpt_str_printf(out, "%%%02X", c);
        return 1;
    }
    ckpt_str_add(out, s, len);
    return len;
}

static void add_digest(struct ckpt_str *out, struct ckpt_text segment) {
    SHA2_CTX ctx;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&ctx);
    SHA256Update(&ctx, (const uint8_t *)segment.s, segment.n);
    SHA256Final(digest, &ctx);
    ckpt_str_puts(out, "%~");
    for (size_t i = 0; i < DIGEST_DIGITS / 2; i++)
        ckpt_str_printf(out, "%02x", digest[i]);
}

void ckpt_name_encode(struct ckpt_str *out, struct ckpt_text segment) {
    const size_t start = out->n;
    const size_t room = CKPT_NAME_MAX - 2 - DIGEST_DIGITS;
    size_t cut = start; /* where the name ends if it must be cut */
    if (segment.n == 0)
        ckpt_str_puts(out, "%");
    if (segment.n && segment.n <= CKPT_NAME_MAX && plain_run(segment.s, segment.n) == segment.n) {
        ckpt_str_add(out, segment.s, segment.n);
        return;
    }
    for (size_t i = 0; i < segment.n && out->n - start <= CKPT_NAME_MAX;) {
        if (out->n - start <= room)
            cut = out->n;
        i += encode_character(out, segment.s + i, segment.n - i);
        if (out->failed)
            return;
    }
    if (out->n - start <= CKPT_NAME_MAX)
        return;
    ckpt_str_cut(out, cut);
    add_digest(out, segment);
}
