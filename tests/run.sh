#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Usage: tests/run.sh [ctest arguments, e.g. -R dispatcher]
# Of the fuzz targets it replays the corpora. Their instrumented builds take many minutes, so tests/nightly.sh runs them, and the
# sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/build.sh
# One test at a time: several measure, and the cluster tests want both cores.
status=0
ctest --preset release --timeout 900 "$@" || status=$?
# What the property tests counted, which ctest itself shows only for tests that fail.
grep -hE '^(onnx cases:|[0-9]+ (pairs|seeds|schedules))' build/release/Testing/Temporary/LastTest.log || true
exit "$status"
