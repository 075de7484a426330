/*
 * The INIT messages. Of <linux/fuse.h>, where the structs are, this relies on what has been so
 * since protocol 7.36 (Linux 5.17):
 *
 *     fuse_init_in    flags at 12; flags2 at 16, if flags has FUSE_INIT_EXT
 *     fuse_init_out   64 bytes; flags at 12; flags2 at 32, if flags has FUSE_INIT_EXT;
 *                     max_stack_depth at 36 since 7.40 (Linux 6.9), unused before
 *
 * max_stack_depth is how many filesystems are stacked on a passthrough file: 1, which is we. The
 * kernel takes FUSE_PASSTHROUGH for absent when it is 0.
 */
#include "fs/init_flags.h"

#include <assert.h>
#include <linux/fuse.h>
#include <string.h>

#define STACK_DEPTH_AT 36
#define STACK_DEPTH 1

static_assert(sizeof(struct fuse_init_out) == CKPT_INIT_REPLY, "the body of an INIT reply");
static_assert(offsetof(struct fuse_init_out, flags2) + sizeof(uint32_t) == STACK_DEPTH_AT,
              "max_stack_depth follows flags2");

struct ckpt_init_choice ckpt_init_choose(uint64_t offered, bool direct_io, bool passthrough) {
    const bool mmap = offered & CKPT_INIT_ALLOW_MMAP;
    const bool through = offered & CKPT_INIT_PASSTHROUGH;
    struct ckpt_init_choice choice = {.flags =
                                          offered & (CKPT_INIT_PARALLEL | CKPT_INIT_ALLOW_MMAP)};
    if (direct_io && !mmap)
        choice.no_mmap = "-o direct_io: this kernel (before 6.6) cannot map such files: mmap with "
                         "MAP_SHARED fails with ENODEV";
    if (passthrough && through)
        choice.flags |= CKPT_INIT_PASSTHROUGH;
    else if (passthrough)
        choice.no_passthrough = "-o passthrough: this kernel (before 6.9, or built without "
                                "FUSE_PASSTHROUGH) has none: all files are served by the daemon";
    return choice;
}

bool ckpt_init_offered(const void *request, size_t n, uint64_t *unique, uint64_t *offered) {
    struct fuse_in_header head;
    struct fuse_init_in init = {0};
    if (n < sizeof head)
        return false;
    memcpy(&head, request, sizeof head);
    if (head.opcode != FUSE_INIT)
        return false;
    const size_t body = n - sizeof head; /* shorter from old kernels, longer perhaps from new */
    memcpy(&init, (const char *)request + sizeof head, body < sizeof init ? body : sizeof init);
    *unique = head.unique;
    *offered = init.flags;
    if (init.flags & FUSE_INIT_EXT)
        *offered |= (uint64_t)init.flags2 << 32;
    return true;
}

bool ckpt_init_patch(void *body, size_t n, uint64_t flags) {
    struct fuse_init_out init;
    if (n != sizeof init)
        return false;
    memcpy(&init, body, sizeof init);
    if (init.major != FUSE_KERNEL_VERSION)
        return false; /* libfuse asks for another version, and will see a second request */
    init.flags |= (uint32_t)flags | FUSE_INIT_EXT;
    init.flags2 |= (uint32_t)(flags >> 32);
    memcpy(body, &init, sizeof init);
    if (flags & CKPT_INIT_PASSTHROUGH) {
        const uint32_t depth = STACK_DEPTH;
        memcpy((char *)body + STACK_DEPTH_AT, &depth, sizeof depth);
    }
    return true;
}
