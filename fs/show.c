#include "fs/show.h"

void ckpt_show_text(struct ckpt_str *out, struct ckpt_text t) {
    char shown[CKPT_SHOWN_MAX];
    for (size_t i = 0; i < t.n;) {
        i += ckpt_utf8_show(shown, t.s + i, t.n - i);
        ckpt_str_puts(out, shown);
    }
}

void ckpt_show_shape(struct ckpt_str *out, const int64_t *shape, uint32_t ndim) {
    ckpt_str_puts(out, "[");
    for (uint32_t i = 0; i < ndim; i++) {
        if (i)
            ckpt_str_puts(out, ", ");
        ckpt_str_i64(out, shape[i]);
    }
    ckpt_str_puts(out, "]");
}

void ckpt_show_count(struct ckpt_str *out, size_t n, const char *what) {
    ckpt_str_printf(out, "%zu %s%s", n, what, n == 1 ? "" : "s");
}

void ckpt_show_size(struct ckpt_str *out, uint64_t n) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (n < 1024) {
        ckpt_str_u64(out, n);
        ckpt_str_puts(out, n == 1 ? " byte" : " bytes");
        return;
    }
    unsigned u = 0;
    double v = (double)n / 1024;
    for (; v >= 1024 && u < 3; u++)
        v /= 1024;
    ckpt_str_printf(out, "%.1f %s", v, units[u]);
}

/* Blocks of East Asian characters and emoji, and of marks that sit on the character before. */
static unsigned char_width(uint32_t c) {
    static const struct {
        uint32_t from, to;
        unsigned width;
    } blocks[] = {
        {0x300, 0x36f, 0},     {0x1100, 0x115f, 2}, {0x200b, 0x200d, 0}, {0x20d0, 0x20ff, 0},
        {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2}, {0xfe00, 0xfe0f, 0},
        {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2}, {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2},
        {0x20000, 0x3fffd, 2},
    };
    if (c < 0x300)
        return 1;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (c >= blocks[i].from && c <= blocks[i].to)
            return blocks[i].width;
    return 1;
}

unsigned ckpt_show_width(struct ckpt_text t) {
    unsigned width = 0;
    size_t used;
    for (size_t i = 0; i < t.n; i += used)
        width += char_width(ckpt_utf8_next(t.s + i, t.n - i, &used));
    return width;
}

/* The bytes of the longest beginning that takes at most `width` columns; *taken: those it takes. */
static size_t head_bytes(struct ckpt_text t, unsigned width, unsigned *taken) {
    size_t i = 0, used;
    *taken = 0;
    while (i < t.n) {
        const unsigned w = char_width(ckpt_utf8_next(t.s + i, t.n - i, &used));
        if (*taken + w > width)
            break;
        *taken += w;
        i += used;
    }
    return i;
}

/* Where the longest end begins that takes at most `width` of the text's `all` columns. */
static size_t tail_start(struct ckpt_text t, unsigned all, unsigned width, unsigned *taken) {
    size_t i = 0, used;
    unsigned passed = 0;
    while (i < t.n && all - passed > width) {
        passed += char_width(ckpt_utf8_next(t.s + i, t.n - i, &used));
        i += used;
    }
    *taken = all - passed;
    return i;
}

static void pad(struct ckpt_str *out, unsigned n) {
    static const char blanks[] = "                                ";
    for (; n > 0; n -= n < 32 ? n : 32)
        ckpt_str_add(out, blanks, n < 32 ? n : 32);
}

void ckpt_show_cell(struct ckpt_str *out, struct ckpt_text t, unsigned width, bool right) {
    const unsigned all = ckpt_show_width(t);
    if (all <= width) {
        pad(out, right ? width - all : 0);
        ckpt_str_add(out, t.s, t.n);
        pad(out, right ? 0 : width - all);
        return;
    }
    if (width == 0)
        return;
    unsigned before, after;
    const size_t head = head_bytes(t, (width - 1) / 2, &before);
    const size_t tail = tail_start(t, all, width - 1 - before, &after);
    ckpt_str_add(out, t.s, head);
    ckpt_str_puts(out, "…");
    ckpt_str_add(out, t.s + tail, t.n - tail);
    pad(out, width - 1 - before - after);
}
