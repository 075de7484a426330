#ifndef CKPT_FS_LAYOUT_NAME_H
#define CKPT_FS_LAYOUT_NAME_H
#include "adapters/model.h"

/* The layout as -o layout= spells it. */
static inline const char *ckpt_layout_name(enum ckpt_layout layout) {
    static const char *const names[] = {[CKPT_LAYOUT_BURN] = "burn",
                                        [CKPT_LAYOUT_TORCH] = "torch",
                                        [CKPT_LAYOUT_SOURCE] = "source"};
    return names[layout];
}

#endif
