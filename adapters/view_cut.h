#ifndef CKPT_ADAPTERS_VIEW_CUT_H
#define CKPT_ADAPTERS_VIEW_CUT_H
/* What the files of the view algebra share; nobody else includes it. */
#include "adapters/view.h"

/* A walk cut at the borders of n groups, outermost first. */
struct ckpt_cut {
    struct ckpt_dim pair[CKPT_WALK_MAX];
    uint32_t first[CKPT_NDIM_MAX + 1]; /* group g is pair[first[g]] .. pair[first[g+1] - 1] */
};

/* sizes are units and multiply to the walk's count. False if a border lies inside a pair: then no
 * walk has it, because the canonical walk is unique. */
bool ckpt_view_cut(const struct ckpt_view *v, const int64_t *sizes, uint32_t n,
                   struct ckpt_cut *cut);
/* Cuts around one dimension into three groups: outside it, the dimension, inside it. */
bool ckpt_view_cut_around(const struct ckpt_view *v, uint32_t dim, struct ckpt_cut *cut);

/* Makes the pairs canonical and puts them in place of the view's. */
void ckpt_view_set_pairs(struct ckpt_view *v, const struct ckpt_dim *pair, uint32_t n);
/* An empty tensor has a label and nothing else. */
void ckpt_view_set_empty(struct ckpt_view *v);

/* Units along a dimension of the label, and of all the dimensions from `from` up to `to`. */
int64_t ckpt_view_units(const struct ckpt_view *v, uint32_t dim);
int64_t ckpt_view_units_between(const struct ckpt_view *v, uint32_t from, uint32_t to);

/* Whether units of a sub-byte type reach over the ends of rows ([4, 2] of F6: two rows in three
 * bytes): such a tensor is served as it lies, and nothing but its label can change. */
bool ckpt_view_straddles(const struct ckpt_view *v);
/* The dimension exists and its borders are borders of units. */
int ckpt_view_check_dim(const struct ckpt_view *v, const char *operation, uint32_t dim,
                        struct ckpt_err *err) CKPT_CHECKED;
/* -EOPNOTSUPP: `operation` (a phrase with its arguments) crosses a stride. */
int ckpt_view_refuse(const struct ckpt_view *v, const char *operation,
                     struct ckpt_err *err) CKPT_CHECKED;
/* -EOPNOTSUPP: the operation would break up a packed unit of a sub-byte type. */
int ckpt_view_refuse_packed(const struct ckpt_view *v, const char *operation,
                            struct ckpt_err *err) CKPT_CHECKED;

#define CKPT_SHAPE_TEXT 256
/* "[2, 3]", cut with "..." if long; returns buf. */
const char *ckpt_shape_text(char buf[CKPT_SHAPE_TEXT], const int64_t *shape, uint32_t ndim);

#endif
