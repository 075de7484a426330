#include "formats/pickle_vm.h"

/*
 * Opcode arguments. Nothing is copied or allocated: text points into the stream. Lengths are
 * compared with the bytes that are left before anything else happens (ckpt_buf).
 */

static double double_of_bits(uint64_t bits) {
    double f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static struct ckpt_text take_text(struct ckpt_buf *in, uint64_t n) {
    const uint8_t *p = ckpt_buf_take(in, n);
    return p ? (struct ckpt_text){(const char *)p, (size_t)n} : CKPT_TEXT("");
}

static struct ckpt_text take_line(struct ckpt_buf *in) {
    size_t n;
    const uint8_t *p = ckpt_buf_line(in, &n);
    return p ? (struct ckpt_text){(const char *)p, n} : CKPT_TEXT("");
}

static void read_signed_bytes(struct ckpt_buf *in, struct pickle_arg *arg, bool *negative) {
    const int32_t n = (int32_t)ckpt_buf_u32(in);
    *negative = n < 0;
    if (n >= 0)
        arg->text = take_text(in, (uint64_t)n);
}

bool pickle_read_arg(struct ckpt_buf *in, enum pickle_arg_kind kind, struct pickle_arg *arg,
                     bool *negative) {
    *arg = (struct pickle_arg){.text = CKPT_TEXT(""), .text2 = CKPT_TEXT("")};
    *negative = false;
    switch (kind) {
    case PICKLE_ARG_NONE:
        break;
    case PICKLE_ARG_U8:
        arg->u = ckpt_buf_u8(in);
        break;
    case PICKLE_ARG_U16:
        arg->u = ckpt_buf_u16(in);
        break;
    case PICKLE_ARG_U32:
        arg->u = ckpt_buf_u32(in);
        break;
    case PICKLE_ARG_U64:
        arg->u = ckpt_buf_u64(in);
        break;
    case PICKLE_ARG_I32:
        arg->i = (int32_t)ckpt_buf_u32(in);
        break;
    case PICKLE_ARG_F64:
        arg->f = double_of_bits(ckpt_buf_be64(in));
        break;
    case PICKLE_ARG_LINE:
        arg->text = take_line(in);
        break;
    case PICKLE_ARG_LINES:
        arg->text = take_line(in);
        arg->text2 = take_line(in);
        break;
    case PICKLE_ARG_BYTES1:
        arg->text = take_text(in, ckpt_buf_u8(in));
        break;
    case PICKLE_ARG_BYTES4:
        arg->text = take_text(in, ckpt_buf_u32(in));
        break;
    case PICKLE_ARG_BYTES4_SIGNED:
        read_signed_bytes(in, arg, negative);
        break;
    case PICKLE_ARG_BYTES8:
        arg->text = take_text(in, ckpt_buf_u64(in));
        break;
    }
    return !in->failed;
}

size_t ckpt_pickle_length(const uint8_t *bytes, size_t n) {
    struct ckpt_buf in = {.p = bytes, .n = n};
    for (;;) {
        const uint8_t code = ckpt_buf_u8(&in);
        const struct pickle_op *op = &ckpt_pickle_ops[code];
        struct pickle_arg arg;
        bool negative;
        if (in.failed || !op->name || !pickle_read_arg(&in, op->arg, &arg, &negative) || negative)
            return 0;
        if (code == '.')
            return in.pos;
    }
}

#define MALFORMED_MAX 64 /* bytes of a malformed opcode that the machine may look at */

/* Bytes at the end of the opcode that need not be copied. */
static size_t content_left(uint8_t code, const struct pickle_arg *arg) {
    const bool is_bytes = code == 'B' || code == 0x8e || code == 0x96;
    return is_bytes && arg->text.n >= CKPT_PICKLE_LONG_BYTES ? arg->text.n : 0;
}

size_t ckpt_pickle_copy(uint8_t *to, const uint8_t *from, size_t n, size_t most) {
    struct ckpt_buf in = {.p = from, .n = n};
    size_t copied = 0;
    while (copied <= most) {
        const size_t at = in.pos;
        const uint8_t code = ckpt_buf_u8(&in);
        const struct pickle_op *op = &ckpt_pickle_ops[code];
        struct pickle_arg arg;
        bool negative;
        const bool sound =
            !in.failed && op->name && pickle_read_arg(&in, op->arg, &arg, &negative) && !negative;
        const size_t rest = n - at < MALFORMED_MAX ? n - at : MALFORMED_MAX;
        const size_t length = sound ? in.pos - at - content_left(code, &arg) : rest;
        memcpy(to + at, from + at, length);
        copied += length;
        if (!sound || code == '.')
            break;
    }
    return copied;
}
