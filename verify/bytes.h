#ifndef CKPT_VERIFY_BYTES_H
#define CKPT_VERIFY_BYTES_H
/*
 * The byte check: every element that is served equals the naive scalar transform of its source
 * element, and every storage has the checksum that its file records.
 */
#include "adapters/reader.h"
#include "verify/op.h"
#include "verify/status.h"

#define CKPT_MISMATCHES_MAX 1000
#define CKPT_MISMATCHES_PER_TENSOR 4 /* a wrong walk is wrong everywhere: the first few tell */
#define CKPT_FAULT_TENSORS_MAX 100   /* named of one storage */
#define CKPT_ELEMENT_HEX 36          /* "0x", 16 bytes, NUL */

struct ckpt_mismatch {
    struct ckpt_text key;
    uint64_t index;                                          /* in the adapted tensor */
    char source[CKPT_ELEMENT_HEX], served[CKPT_ELEMENT_HEX]; /* what it should be, what it is */
};

struct ckpt_storage_fault {
    const struct ckpt_blob *blob;
    struct ckpt_reason why;
};

struct ckpt_bytes_result {
    enum ckpt_status status;
    struct ckpt_reason reason; /* of a status that is no PASS and no DIFF */
    uint64_t tensors, elements, mismatches, unchecked, storages;
    uint64_t computed; /* parts compared with an evaluation of their own, within its rounding */
    struct ckpt_mismatch *mismatch;
    uint32_t nmismatch;
    struct ckpt_storage_fault *fault;
    uint32_t nfaults;
    bool truncated;
};

/* 0 whatever was found; negative only for -EINTR and -ENOMEM. */
int ckpt_bytes_check(struct ckpt_reader *r, const struct ckpt_model *m,
                     const struct ckpt_exec *exec, struct ckpt_bytes_result *result,
                     struct ckpt_err *err) CKPT_CHECKED;
void ckpt_bytes_fini(struct ckpt_bytes_result *result);
#define ckpt_auto_bytes ckpt_bytes_fini

#endif
