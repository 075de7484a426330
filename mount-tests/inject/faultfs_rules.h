#ifndef FAULTFS_RULES_H
#define FAULTFS_RULES_H
/*
 * What is wrong with which file of faultfs. A rule is said in words, one a line:
 *
 *     read EIO 4096 512       reads that touch bytes 4096 to 4607 fail
 *     read short 4096         reads end at byte 4096
 *     read hang 0 1           reads of the first byte wait until the rule is gone
 *     read hang 0             reads of any byte do
 *     write ENOSPC            no byte is written
 *     open EACCES | stat hang | sync EIO | rename EIO
 *
 * The rules of a folder hold for all in it.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum fault_call { FAULT_READ, FAULT_WRITE, FAULT_OPEN, FAULT_STAT, FAULT_SYNC, FAULT_RENAME };

/* Adds the rules of a text to those of a path. -EINVAL: it isn't understood. */
int fault_add(const char *path, const char *text, size_t n);
/* Removes the rules of a path and lets go who waits because of them. */
void fault_clear(const char *path);
/* How many calls wait because of a path's rules. */
unsigned fault_waiting(const char *path);

/* What becomes of a call that touches bytes [off, off + n): 0 and the bytes that are left of it in
 * *n, or negative errno. Waits as long as a rule says so. */
int fault_meet(const char *path, enum fault_call call, off_t off, size_t *n);

#endif
