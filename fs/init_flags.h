#ifndef CKPT_FS_INIT_FLAGS_H
#define CKPT_FS_INIT_FLAGS_H
/*
 * What is agreed upon with the kernel when a mount begins, as far as libfuse before 3.17 has no
 * words for it. Bytes and decisions only, free of libfuse; fs/fuse_init.c moves the messages.
 *
 *     kernel   INIT request:  the features that it offers      ckpt_init_offered
 *     we                      of these, those that we want     ckpt_init_choose
 *     libfuse  INIT reply:    the features that it knows       ckpt_init_patch adds ours
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of flags | flags2 << 32 in both messages, as in <linux/fuse.h> of the kernels named. */
#define CKPT_INIT_PARALLEL (UINT64_C(1) << 18)    /* lookups in one folder side by side */
#define CKPT_INIT_ALLOW_MMAP (UINT64_C(1) << 36)  /* 6.6: shared maps of files opened direct_io */
#define CKPT_INIT_PASSTHROUGH (UINT64_C(1) << 37) /* 6.9: reads that never reach us */

struct ckpt_init_choice {
    uint64_t flags; /* to be added to the reply */
    /* What the user asked for and won't get, a line for the log; NULL: nothing. */
    const char *no_mmap, *no_passthrough;
};

/* PARALLEL and ALLOW_MMAP are taken whenever they are offered: the tree never changes, and
 * verify.json is opened direct_io by itself while it is not computed yet. */
struct ckpt_init_choice ckpt_init_choose(uint64_t offered, bool direct_io, bool passthrough);

/* Whether a message from the kernel is the INIT request; then *unique names it, as its reply will,
 * and *offered has the features. */
bool ckpt_init_offered(const void *request, size_t n, uint64_t *unique, uint64_t *offered);

#define CKPT_INIT_REPLY 64 /* bytes of the body of a reply, since protocol 7.23 */

/* Adds features to the body of an INIT reply. False: it is none that has room for them. */
bool ckpt_init_patch(void *body, size_t n, uint64_t flags);

#endif
