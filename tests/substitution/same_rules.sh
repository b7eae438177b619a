#!/usr/bin/env bash
# Makes the rules of one size on one thread and on two: both files have to be the same, byte by byte.
#
# Usage: same_rules.sh HEDDLE_RULES SIZE [FILE]
#   HEDDLE_RULES   the program
#   SIZE           operators of a graph: 2 takes seconds, 3 takes eight minutes of two cores
#   FILE           the rules as they were made before, compiler/substitution/rules.txt for size 3: these have to be the same, too
set -euo pipefail
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for threads in 1 2; do
  "$1" generate --size "$2" --threads "$threads" -o "$folder/$threads.txt" >"$folder/$threads.out" 2>"$folder/$threads.err" || {
    cat "$folder/$threads.err" >&2
    exit 1
  }
  printf '%s thread(s): ' "$threads"
  sha256sum <"$folder/$threads.txt"
done
cat "$folder/1.out"
grep -q ' => ' "$folder/1.txt" || { echo "same_rules.sh: no rules were made" >&2; exit 1; }
for other in "$folder/2.txt" "${@:3}"; do
  cmp "$folder/1.txt" "$other" || { echo "same_rules.sh: the rules of one thread are not those of $other" >&2; exit 1; }
done
