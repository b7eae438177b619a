#!/usr/bin/env bash
# Every C++ file is as clang-format leaves it, new files included.
set -euo pipefail
cd "$1"
git ls-files -co --exclude-standard --deduplicate '*.h' '*.cc' '*.c' | while read -r file; do
  [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 clang-format --dry-run -Werror || {
  echo "run clang-format -i on the files above" >&2
  exit 1
}
