#!/bin/sh
# Usage: library_size.sh STRIP LIBRARY LIMIT: fails if the library without its symbols has more than LIMIT bytes.
set -eu
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
"$1" -o "$stripped" "$2"
size=$(wc -c <"$stripped")
echo "$2: $size bytes stripped, $3 allowed"
[ "$size" -le "$3" ]
