#!/bin/sh
# What people's own tools make of a mount: cp, tar, rsync, diff, find, cmp, od, sha256sum, du, df, jq.
set -eu
[ -w /dev/fuse ] || { echo "skipped: /dev/fuse cannot be used here"; exit 77; }
work=$(mktemp -d)
cleanup() {
    for m in "$work/a" "$work/b"; do
        mountpoint -q "$m" && { umount "$m" 2>/dev/null || fusermount3 -uz "$m" || true; }
    done
    rm -rf "$work"
}
trap cleanup EXIT INT TERM
mkdir "$work/a" "$work/b" "$work/out"
fail() { echo "FAIL: $*"; exit 1; }

"$MOUNT_CKPT" "$FIXTURES/a1/a1_ckpt.pt" "$work/a"
"$MOUNT_CKPT" "$FIXTURES/a1/a1_ckpt.pt" "$work/b"

cat "$work/a/verify.json" > /dev/null # its last digits may differ between machines, not between mounts here
diff -r "$work/a" "$work/b" || fail "two mounts of one file differ"

cp -r "$work/a" "$work/out/cp"
diff -r "$work/a" "$work/out/cp" || fail "cp -r"
mkdir "$work/out/tar"
(cd "$work/a" && tar cf - .) | (cd "$work/out/tar" && tar xf -)
(cd "$work/a" && tar cf "$work/out/t.tar" . && tar df "$work/out/t.tar") || fail "tar d"
diff -r "$work/a" "$work/out/tar" || fail "tar"

if command -v rsync > /dev/null; then
    rsync -a "$work/a/" "$work/out/rsync/"
    diff -r "$work/a" "$work/out/rsync" || fail "rsync"
    second=$(rsync -a --itemize-changes "$work/a/" "$work/out/rsync/")
    [ -z "$second" ] || fail "a second rsync transferred: $second"
else
    echo "rsync is not here: not tried"
fi

[ "$(find "$work/a" -type f -size -33c -size +31c | wc -l)" -ge 1 ] || fail "find -size"
[ "$(find "$work/a" -name weight -size 128c)" = "$work/a/model_state_dict/fc1/weight" ] || fail "find -size 128c"
cmp "$work/a/model_state_dict/fc1/bias" "$work/a/.source/model_state_dict/fc1/bias" || fail "cmp with .source"
cmp -s "$work/a/model_state_dict/fc1/weight" "$work/a/.source/model_state_dict/fc1/weight" && fail "a transposed weight equals its source"
[ "$(od -A n -t f4 -N 12 "$work/a/model_state_dict/fc2/bias" | wc -w)" = 3 ] || fail "od"
[ "$(sha256sum < "$work/a/model.safetensors")" = "$(sha256sum < "$work/b/model.safetensors")" ] || fail "sha256sum"
[ "$(stat -c %s "$work/a/model.safetensors")" = "$(cat "$work/a/model.safetensors" | wc -c)" ] || fail "st_size"
dd if="$work/a/model.safetensors" bs=7 status=none | cmp - "$work/a/model.safetensors" || fail "dd bs=7"
du -s "$work/a" > /dev/null && df "$work/a" > /dev/null || fail "du, df"
grep -q " $work/a fuse.ckpt ro," /proc/mounts || fail "/proc/mounts: $(grep "$work/a" /proc/mounts)"
if command -v jq > /dev/null; then
    [ "$(jq -r .status "$work/a/verify.json")" = PASS ] || fail "jq on verify.json"
fi
echo "coreutils: all right"
