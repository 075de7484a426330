#ifndef CKPT_FS_MADE_H
#define CKPT_FS_MADE_H
/*
 * A text that can be written again whenever it is wanted, the same each time: index.json has
 * hundreds of bytes a tensor, and is seldom read. It is measured when its size is first asked for,
 * and held from the first read until the last reader has closed it.
 *
 * A text that takes long to make, and is worth keeping, is a ckpt_computed.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

/* Appends the text, perhaps to a sink. Called from any thread, with a lock of the text's own. */
typedef int ckpt_made_write(const void *arg, struct ckpt_str *out, struct ckpt_err *err);

struct ckpt_made;

/* A new text at the head of the list. */
int ckpt_made_new(struct ckpt_made **list, ckpt_made_write *write, const void *arg,
                  struct ckpt_err *err) CKPT_CHECKED;
void ckpt_made_free_list(struct ckpt_made *list); /* NULL is fine */

/* Writes it once, into nothing, unless its size is known. */
int ckpt_made_size(struct ckpt_made *m, uint64_t *size, struct ckpt_err *err) CKPT_CHECKED;
/* What ckpt_made_text answers stays until the last that holds it lets go. */
void ckpt_made_hold(struct ckpt_made *m);
void ckpt_made_release(struct ckpt_made *m);
/* Whether ckpt_made_text would answer at once. For who holds it. */
bool ckpt_made_is_there(struct ckpt_made *m);
/* The whole text. For who holds it. */
int ckpt_made_text(struct ckpt_made *m, const char **text, struct ckpt_err *err) CKPT_CHECKED;

#endif
