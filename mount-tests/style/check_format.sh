#!/bin/sh
# check_format.sh ROOT: clang-format would change nothing.
command -v clang-format >/dev/null || { echo "skipped: no clang-format here"; exit 77; }
cd "$1" || exit 1
find base formats adapters verify fs mount-tests -name '*.[ch]' -print0 |
    xargs -0 clang-format --dry-run -Werror
