#ifndef CKPT_BASE_RESIDENT_H
#define CKPT_BASE_RESIDENT_H
/* Whether mapped bytes are in memory, so that reading them waits for no disk. */
#include <stdbool.h>
#include <stddef.h>

/* Of any memory. True too where the system does not tell: of files of other users. */
bool ckpt_is_resident(const void *p, size_t n);
/* Maps pages that are in memory already, so that who reads them next takes no page faults. What is
 * not in memory, or not there any more, is left alone. */
void ckpt_fault_in(const void *p, size_t n);

#endif
