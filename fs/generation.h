#ifndef CKPT_FS_GENERATION_H
#define CKPT_FS_GENERATION_H
#include "fs/session.h"

/* A number that differs, as good as always, between mounts whose files differ, and is the same when
 * the same source is mounted with the same options. Not 0. */
uint32_t ckpt_session_generation(const struct ckpt_session *s);

#endif
