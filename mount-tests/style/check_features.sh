#!/bin/sh
# check_features.sh FOUND EXPECTED: the build found exactly the libraries that it should have.
cat "$1"
awk 'NF != 2 { print "no version: " $0; bad = 1 } END { exit bad }' "$1" || exit 1
cut -d' ' -f1 "$1" | diff "$2" -
