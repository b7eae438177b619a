#!/usr/bin/env bash
# Every C++ file is as clang-format leaves it.
set -euo pipefail
cd "$1"
git ls-files '*.h' '*.cc' '*.c' | xargs clang-format --dry-run -Werror
