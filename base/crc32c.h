#ifndef CKPT_BASE_CRC32C_H
#define CKPT_BASE_CRC32C_H
/* CRC-32C (Castagnoli: reflected polynomial 82F63B78), as iSCSI, ext4 and OCDBT use it. Any thread.
 */
#include <stddef.h>
#include <stdint.h>

/* The checksum of `crc`'s bytes followed by these; begin with 0. */
uint32_t ckpt_crc32c(uint32_t crc, const void *data, size_t n);
/* The same without the processor's instruction: for the tests. */
uint32_t ckpt_crc32c_portable(uint32_t crc, const void *data, size_t n);

#endif
