#!/usr/bin/env bash
# Installs what is missing and builds the release preset into build/release. Usage: deploy/build.sh [TARGET..]
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh
mkdir -p build
log=build/configure.log
if ! cmake --preset release >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
targets=()
for target in "$@"; do targets+=(--target "$target"); done
# A line every 20 seconds is progress enough off a terminal; on one ninja redraws its own.
if [ -t 1 ]; then
  cmake --build --preset release "${targets[@]}"
else
  cmake --build --preset release "${targets[@]}" >build/build.log 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    for _ in $(seq 20); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 1
    done
    kill -0 "$pid" 2>/dev/null && tail -n 1 build/build.log | cut -c1-100
  done
  if ! wait "$pid"; then
    grep -E -A4 'error|FAILED' build/build.log | head -n 60 >&2
    echo "build.sh: the build failed; the whole log is build/build.log" >&2
    exit 1
  fi
fi
