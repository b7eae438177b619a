#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Usage: tests/run.sh [ctest arguments, e.g. -R dispatcher]
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/build.sh
# One test at a time: several measure, and the cluster tests want both cores.
exec ctest --preset release --timeout 900 "$@"
