#include <stdio.h>
#include <string.h>

#include "base/text.h"

/*
 * Characters of texts from a file, which may hold any bytes: read one by one, and shown to people
 * so that no name can drive their terminal or break a line.
 */

uint32_t ckpt_utf8_next(const char *s, size_t n, size_t *used) {
    const unsigned char *p = (const unsigned char *)s;
    const unsigned len = p[0] < 0xc0 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    *used = 1;
    if (len == 1 || len > n || ckpt_utf8_valid(s, len) != len)
        return p[0];
    uint32_t c = p[0] & (0xffu >> (len + 1));
    for (unsigned i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3f);
    *used = len;
    return c;
}

static bool is_obeyed(uint32_t c) {
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
        {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i].from && c <= ranges[i].to)
            return true;
    return false;
}

size_t ckpt_utf8_show(char shown[CKPT_SHOWN_MAX], const char *s, size_t n) {
    size_t used;
    const uint32_t c = ckpt_utf8_next(s, n, &used);
    if (!is_obeyed(c) && (c < 0x80 || used > 1)) {
        memcpy(shown, s, used);
        shown[used] = '\0';
    } else {
        snprintf(shown, CKPT_SHOWN_MAX, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)(c & 0xffff));
    }
    return used;
}
