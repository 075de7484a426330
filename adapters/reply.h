#ifndef CKPT_ADAPTERS_REPLY_H
#define CKPT_ADAPTERS_REPLY_H
/* Inside a reply: what its iovecs point into and must be let go of afterwards. */
#include "adapters/reader_compute.h"

/* Something that a reply points into. */
struct ckpt_reply_hold {
    struct ckpt_reply_hold *next;
    struct ckpt_band *band;          /* or NULL */
    struct ckpt_source_bytes source; /* .blob NULL: none */
    uint8_t data[];                  /* a private buffer */
};
/* A hold with a buffer of n bytes, in the reply's list; NULL when out of memory. */
struct ckpt_reply_hold *ckpt_reply_hold(struct ckpt_reply *reply, size_t n);

#endif
