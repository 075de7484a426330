#!/bin/sh
# tidy.sh ROOT BUILD: clang-tidy with .clang-tidy on every source, two at a time. BUILD must have been
# configured with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON (the presets do).
cd "$1" || exit 1
find base formats adapters verify fs -name '*.c' -print0 |
    xargs -0 -n 4 -P 2 clang-tidy --quiet --warnings-as-errors='*' -p "$2"
