#ifndef CKPT_BASE_ARENA_H
#define CKPT_BASE_ARENA_H
/*
 * An arena: many small objects that live and die together. What a checkpoint says about itself is
 * read once, is immutable afterwards and is freed in one go, so cycles and sharing in a hostile
 * pickle can neither leak nor be freed twice. Not thread-safe while allocating; reading what it
 * holds is.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ckpt_arena_block;

struct ckpt_arena {
    struct ckpt_arena_block *blocks; /* newest first */
    size_t used;                     /* bytes handed out in all */
    size_t limit;                    /* refuse to hand out more than this; 0: no limit */
    bool exceeded;                   /* the limit, not the machine, has refused something */
};

/* Zeroed memory, aligned to 8 bytes; NULL when out of memory or over the limit. size may be 0. */
void *ckpt_arena_alloc(struct ckpt_arena *a, size_t size) __attribute__((malloc));

/* count * size with an overflow check. */
void *ckpt_arena_array(struct ckpt_arena *a, size_t count, size_t size) __attribute__((malloc));

/* A larger place for an array that was n bytes at p (NULL: none), which it keeps; zeroed behind it.
 * A long one is moved by the kernel, and its old place freed; a short one's stays in the arena. p
 * must be all that an allocation returned. */
void *ckpt_arena_grow(struct ckpt_arena *a, void *p, size_t n, size_t bigger);

/* A copy of n bytes with a NUL after them. */
char *ckpt_arena_copy(struct ckpt_arena *a, const void *data, size_t n) __attribute__((malloc));

/* printf into the arena; NULL when out of memory. */
char *ckpt_arena_printf(struct ckpt_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Moves all that `from` holds to `a`: pointers stay valid and now live as long as `a`. */
void ckpt_arena_move(struct ckpt_arena *a, struct ckpt_arena *from);

/* Frees everything; the arena is then empty and usable again. */
void ckpt_arena_fini(struct ckpt_arena *a);

#define ckpt_auto_arena ckpt_arena_fini

#endif
