/*
 * A whole checkpoint of any of torch's containers, opened from a file. Property: it is refused with
 * a sentence, or every tensor passes ckpt_tensor_check and its first and last element can be read;
 * every path has its segments; with keep_going no more is refused than without; opening it again
 * gives the same listing.
 */
#include "checkpoint_property.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_file_twice(data, size);
    return 0;
}
