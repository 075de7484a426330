#ifndef CKPT_BASE_PAGES_H
#define CKPT_BASE_PAGES_H
/*
 * Large buffers, mapped: what is freed goes back to the system at once, which malloc's arenas would
 * keep. In huge pages where the machine has them and the caller will use them whole: clearing and
 * mapping small ones takes longer than much of what is done with their bytes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CKPT_HUGE_PAGE ((size_t)2 << 20)

size_t ckpt_page_bytes(void);
/* n in whole pages; n is below SIZE_MAX / 2. */
size_t ckpt_pages_round(uint64_t n);

/* Zeros, none of which costs memory before it is touched; NULL: no memory. With `huge` it begins
 * with a huge page, if n is as large as one, and all that are whole in n may be such. */
uint8_t *ckpt_pages_new(uint64_t n, bool huge);
void ckpt_pages_free(uint8_t *pages, uint64_t n); /* NULL is fine */

#endif
