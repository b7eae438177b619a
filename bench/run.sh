#!/usr/bin/env bash
# Runs one benchmark against its peers, prints a table, and says what could not be measured. Installs and builds what it needs.
# Usage: bench/run.sh operators|models [--json FILE] [--only ROW] [--threads 1,2] [--trials N] [--records FILE]   (--help: all)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1
for argument in "$@"; do
  case "$argument" in -h | --help) exec python3 "$root/bench/run.py" "$@" ;; esac
done
"$root/deploy/setup.sh" --bench
"$root/deploy/build.sh" heddle-operator-bench heddle-bench-onednn heddle-bench-openblas >&2
exec python3 "$root/bench/run.py" "$@"
