#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)64 * 1024)
#define FIRST_BLOCK_BYTES ((size_t)4 * 1024) /* each shard of thousands has an arena */
#define ALIGN alignof(int64_t)               /* nothing of ours asks for more */

struct ckpt_arena_block {
    struct ckpt_arena_block *next;
    size_t used, size;
    alignas(ALIGN) unsigned char data[];
};

static struct ckpt_arena_block *add_block(struct ckpt_arena *a, size_t need) {
    const size_t usual = a->used < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES
                         : a->used < BLOCK_BYTES     ? a->used
                                                     : BLOCK_BYTES;
    const size_t size = need > usual ? need : usual;
    if (size > SIZE_MAX - sizeof(struct ckpt_arena_block))
        return NULL;
    struct ckpt_arena_block *b = calloc(1, sizeof *b + size);
    if (!b)
        return NULL;
    b->size = size;
    /* A large object gets a block of its own behind the current one, which keeps its free tail. */
    if (a->blocks && need > BLOCK_BYTES / 4) {
        b->next = a->blocks->next;
        a->blocks->next = b;
    } else {
        b->next = a->blocks;
        a->blocks = b;
    }
    return b;
}

/* The free bytes at the block's end that do not begin at a multiple of align. */
static size_t gap(const struct ckpt_arena_block *b, size_t align) {
    return (align - b->used % align) % align;
}

static bool exceeds(struct ckpt_arena *a, size_t more) {
    const bool over = a->limit && (more > a->limit || a->used > a->limit - more);
    a->exceeded |= over;
    return over;
}

static void *take(struct ckpt_arena *a, size_t need, size_t align) {
    struct ckpt_arena_block *b = a->blocks;
    size_t skip = b ? gap(b, align) : 0;
    const size_t bytes = need + skip;
    if (bytes < need)
        return NULL;
    if (exceeds(a, bytes))
        return NULL;
    if (!b || b->size - b->used < bytes) {
        b = add_block(a, need);
        skip = 0;
    }
    if (!b)
        return NULL;
    void *p = b->data + b->used + skip;
    b->used += need + skip;
    a->used += need + skip;
    return p;
}

void *ckpt_arena_alloc(struct ckpt_arena *a, size_t size) {
    return take(a, size ? size : 1, ALIGN);
}

void *ckpt_arena_array(struct ckpt_arena *a, size_t count, size_t size) {
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? NULL : ckpt_arena_alloc(a, total);
}

/* What is larger than an ordinary block has a block to itself. Returns the link that leads to it.
 */
static struct ckpt_arena_block **own_block(struct ckpt_arena *a, const void *p, size_t n) {
    struct ckpt_arena_block **link = &a->blocks;
    while (n > BLOCK_BYTES && *link && (*link)->data != p)
        link = &(*link)->next;
    return n > BLOCK_BYTES && *link && (*link)->used == (*link)->size ? link : NULL;
}

void *ckpt_arena_grow(struct ckpt_arena *a, void *p, size_t n, size_t bigger) {
    struct ckpt_arena_block **link = own_block(a, p, n);
    if (!link) {
        void *moved = ckpt_arena_alloc(a, bigger);
        if (moved && n)
            memcpy(moved, p, n);
        return moved;
    }
    const size_t old = (*link)->size;
    if (bigger < old || bigger > SIZE_MAX - sizeof **link || exceeds(a, bigger - old))
        return NULL;
    struct ckpt_arena_block *b = realloc(*link, sizeof *b + bigger);
    if (!b)
        return NULL;
    memset(b->data + old, 0, bigger - old);
    b->used = b->size = bigger;
    a->used += bigger - old;
    *link = b;
    return b->data;
}

char *ckpt_arena_copy(struct ckpt_arena *a, const void *data, size_t n) {
    if (n == SIZE_MAX)
        return NULL;
    char *p = take(a, n + 1, 1); /* texts lie end to end: there are many short ones */
    if (p && n)
        memcpy(p, data, n);
    return p;
}

char *ckpt_arena_printf(struct ckpt_arena *a, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : take(a, (size_t)n + 1, 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void ckpt_arena_move(struct ckpt_arena *a, struct ckpt_arena *from) {
    struct ckpt_arena_block **end = &a->blocks;
    while (*end)
        end = &(*end)->next;
    *end = from->blocks;
    a->used += from->used;
    from->blocks = NULL;
    from->used = 0;
}

void ckpt_arena_fini(struct ckpt_arena *a) {
    for (struct ckpt_arena_block *b = a->blocks; b;) {
        struct ckpt_arena_block *next = b->next;
        free(b);
        b = next;
    }
    a->blocks = NULL;
    a->used = 0;
}
