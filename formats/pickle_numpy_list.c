#include "formats/pickle_numpy.h"

#include "base/size.h"
#include "formats/tensor.h"
#include "formats/pickle_vm.h"

/*
 * numpy arrays whose elements are no numbers, as nested lists:
 *
 *     strings (U, S)   fixed-size elements in bytes; U is UCS-4, both end with zeros
 *     objects (O)      a list of the elements in C order, which may be anything
 *
 * An element at place i of the flat array goes to the list of its row; rows are made from the
 * innermost dimension outwards.
 */

/* U+XXXX as UTF-8; surrogates too, as everywhere in this reader. */
static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const unsigned n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (unsigned i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

static uint32_t code_point(const unsigned char *p, bool big) {
    return big ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
               : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* One element of `size` characters of UCS-4. NULL in *out: not one. */
static int make_wide(struct pickle_vm *vm, const unsigned char *p, size_t size, bool big,
                     struct ckpt_value **out) {
    char *s = ckpt_arena_alloc(vm->arena, 4 * size + 1);
    size_t n = 0;
    if (!s)
        return pickle_fail_memory(vm);
    while (size && code_point(p + 4 * (size - 1), big) == 0)
        size--;
    for (size_t i = 0; i < size; i++) {
        const uint32_t c = code_point(p + 4 * i, big);
        if (c > 0x10ffff)
            return 0;
        n += put_utf8(s + n, c);
    }
    return pickle_make_str(vm, (struct ckpt_text){s, n}, out);
}

/* One of bytes: a text where it is one. */
static int make_narrow(struct pickle_vm *vm, const char *p, size_t size, struct ckpt_value **out) {
    while (size && p[size - 1] == 0)
        size--;
    return pickle_make_str2(vm, (struct ckpt_text){p, size}, out);
}

static int split_strings(struct pickle_vm *vm, const struct numpy_dtype *d, struct ckpt_text data,
                         uint64_t count, struct ckpt_value **flat) {
    const size_t unit = d->kind == 'U' ? 4 * (size_t)d->size : d->size;
    for (size_t i = 0; i < count; i++) {
        const char *p = data.s + i * unit;
        struct ckpt_value *v = NULL;
        int rc = pickle_charge(vm, 1 + unit / 64);
        if (rc == 0)
            rc = d->kind == 'U' ? make_wide(vm, (const unsigned char *)p, d->size, d->swap, &v)
                                : make_narrow(vm, p, d->size, &v);
        if (rc == 0)
            rc = v ? pickle_append(vm, *flat, &v, 1, CKPT_VALUE_LIST)
                   : pickle_fail(vm, "a numpy string with an impossible character");
        if (rc)
            return rc;
    }
    return 0;
}

/* The elements in one list, or NULL in *flat if the state doesn't fit the shape. */
static int flatten(struct pickle_vm *vm, const struct numpy_dtype *d, const struct ckpt_value *data,
                   uint64_t count, struct ckpt_value **flat) {
    uint64_t bytes;
    const unsigned unit = d->kind == 'U' ? 4 * d->size : d->size;
    if (d->kind == 'O' && pickle_is(data, CKPT_VALUE_LIST) && data->seq.n == count)
        return pickle_make_seq(vm, CKPT_VALUE_LIST, data->seq.item, data->seq.n, flat);
    if ((d->kind != 'U' && d->kind != 'S') || !pickle_is(data, CKPT_VALUE_BYTES) || unit == 0 ||
        !ckpt_mul_u64(count, unit, &bytes) || bytes != data->text.n)
        return 0;
    const int rc = pickle_make_object(vm, CKPT_VALUE_LIST, flat);
    return rc ? rc : split_strings(vm, d, data->text, count, flat);
}

/* Groups the items of *flat into lists of n. */
static int group(struct pickle_vm *vm, struct ckpt_value **flat, size_t n) {
    struct ckpt_value *rows, *row;
    int rc = pickle_make_object(vm, CKPT_VALUE_LIST, &rows);
    for (size_t i = 0; rc == 0 && i + n <= (*flat)->seq.n; i += n) {
        rc = pickle_make_seq(vm, CKPT_VALUE_LIST, (*flat)->seq.item + i, n, &row);
        if (rc == 0)
            rc = pickle_append(vm, rows, &row, 1, CKPT_VALUE_LIST);
    }
    *flat = rows;
    return rc;
}

int pickle_numpy_list(struct pickle_vm *vm, struct ckpt_value *target,
                      const struct ckpt_value *shape, const struct numpy_dtype *d,
                      const struct ckpt_value *data, bool *made) {
    struct ckpt_value *flat = NULL;
    uint64_t count = 1;
    *made = false;
    if (!pickle_is(shape, CKPT_VALUE_TUPLE) || shape->seq.n == 0 || shape->seq.n > CKPT_NDIM_MAX)
        return 0;
    for (size_t i = 0; i < shape->seq.n; i++) {
        const struct ckpt_value *n = shape->seq.item[i];
        if (n->kind != CKPT_VALUE_INT || n->i <= 0 || !ckpt_mul_u64(count, (uint64_t)n->i, &count))
            return 0; /* an array without elements stays an object */
    }
    int rc = count > CKPT_LIMIT_PICKLE_OBJECTS ? 0 : flatten(vm, d, data, count, &flat);
    if (rc || !flat)
        return rc;
    for (size_t i = shape->seq.n; rc == 0 && i-- > 1;)
        rc = group(vm, &flat, (size_t)shape->seq.item[i]->i);
    if (rc)
        return rc;
    *target = *flat;
    *made = true;
    return 0;
}
