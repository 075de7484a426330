#!/bin/sh
# check_manual.sh ROOT: the manual page has no mistake that mandoc knows.
command -v mandoc >/dev/null || { echo "skipped: no mandoc here"; exit 77; }
exec mandoc -T lint -W warning "$1/docs/mount.ckpt.8"
