#ifndef CKPT_FS_SHOW_H
#define CKPT_FS_SHOW_H
/* Text for people: names from a file made harmless, shapes, sizes, and cells of a table. */
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* A name from the file. What a terminal would obey is shown escaped: control characters, and the
 * marks that make text run the other way. */
void ckpt_show_text(struct ckpt_str *out, struct ckpt_text t);
/* "[2, 3]" */
void ckpt_show_shape(struct ckpt_str *out, const int64_t *shape, uint32_t ndim);
/* "12 bytes", "1.5 MiB" */
void ckpt_show_size(struct ckpt_str *out, uint64_t n);

/* The columns that text takes on a terminal: two for East Asian characters and emoji, none for
 * combining marks. */
unsigned ckpt_show_width(struct ckpt_text t);
/* The text in exactly `width` columns: filled with blanks, or its middle cut out with an ellipsis,
 * since names differ at their ends. */
void ckpt_show_cell(struct ckpt_str *out, struct ckpt_text t, unsigned width, bool right);

/* "1 tensor", "2 tensors". */
void ckpt_show_count(struct ckpt_str *out, size_t n, const char *what);

#endif
