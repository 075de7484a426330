/*
 * Replies: a list of iovecs, and what must stay alive while they are read.
 */
#include "adapters/reply.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/guard.h"
#include "base/resident.h"

size_t ckpt_reply_add_bytes(struct ckpt_reply *reply, const void *data, size_t n) {
    if (n == 0)
        return 0;
    struct iovec *const last = reply->niov > 0 ? &reply->iov[reply->niov - 1] : NULL;
    if (last && (const uint8_t *)last->iov_base + last->iov_len == data) {
        last->iov_len += n;
    } else {
        if (reply->niov == CKPT_REPLY_IOV_MAX)
            return 0;
        reply->iov[reply->niov++] =
            (struct iovec){(void *)(uintptr_t)data, n}; /* never written to */
    }
    reply->nbytes += n;
    reply->nafter = 0;
    return n;
}

void ckpt_reply_is_in_file(struct ckpt_reply *reply, const struct ckpt_file *file) {
    const struct iovec *const last = &reply->iov[reply->niov - 1];
    reply->after = (const uint8_t *)last->iov_base + last->iov_len;
    reply->nafter = (size_t)(file->data + file->size - reply->after);
}

size_t ckpt_reply_add_zeros(struct ckpt_reply *reply, size_t n) {
    static const uint8_t zeros[64 << 10];
    size_t added = 0;
    while (added < n && reply->niov < CKPT_REPLY_IOV_MAX) {
        const size_t piece = n - added < sizeof zeros ? n - added : sizeof zeros;
        added += ckpt_reply_add_bytes(reply, zeros, piece);
    }
    return added;
}

/* Not inlined: a local that changes beside sigsetjmp would be indeterminate after the jump. */
__attribute__((noinline)) static void copy_pieces(const struct ckpt_reply *reply, uint8_t *to) {
    for (uint32_t i = 0; i < reply->niov; i++) {
        memcpy(to, reply->iov[i].iov_base, reply->iov[i].iov_len);
        to += reply->iov[i].iov_len;
    }
}

int ckpt_reply_copy(const struct ckpt_reply *reply, void *buf) {
    int rc;
    CKPT_GUARDED(rc, copy_pieces(reply, buf));
    return rc;
}

size_t ckpt_reply_find_lost(const struct ckpt_reply *reply) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = 0;
    for (uint32_t i = 0; i < reply->niov; before += reply->iov[i++].iov_len) {
        const uint8_t *const p = reply->iov[i].iov_base;
        const size_t n = reply->iov[i].iov_len;
        for (size_t at = 0; at < n; at += page - (uintptr_t)(p + at) % page)
            if (ckpt_guard_touch(p + at) < 0)
                return before + at;
    }
    return reply->nbytes;
}

bool ckpt_reply_is_resident(const struct ckpt_reply *reply) {
    for (uint32_t i = 0; i < reply->niov; i++)
        if (!ckpt_is_resident(reply->iov[i].iov_base, reply->iov[i].iov_len))
            return false;
    return true;
}

struct ckpt_reply_hold *ckpt_reply_hold(struct ckpt_reply *reply, size_t n) {
    struct ckpt_reply_hold *const hold = malloc(sizeof *hold + n);
    if (!hold)
        return NULL;
    hold->next = reply->holds;
    hold->band = NULL;
    hold->source.blob = NULL;
    reply->holds = hold;
    return hold;
}
