#!/usr/bin/env bash
# Runs one benchmark against its peers, prints a table, and says what could not be measured. Installs and builds what it needs.
# Usage: bench/run.sh operators|models|scheduling|search|cuda [--json FILE] [--only ROW] [--threads 1,2] [--trials N] [--records FILE]   (--help: all)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1
# The GPU's benchmark is one program that also runs without this repository.
if [ "${1:-}" = cuda ]; then
  shift
  exec "$root/bench/cuda.sh" "$@"
fi
# What is wrong with the arguments is said before anything is installed.
benchmark=$(python3 "$root/bench/arguments.py" "$@") || exit $?
case "$benchmark" in usage:*) printf '%s\n' "$benchmark" && exit 0 ;; esac
"$root/deploy/setup.sh" --bench
python=python3
targets=(heddle-operator-bench heddle-bench-onednn heddle-bench-openblas)
if [ "$benchmark" = scheduling ]; then
  targets=(heddle-operator-bench heddle heddle-scheduler heddle-tracker heddle-worker)
fi
if [ "$benchmark" = search ]; then
  targets=(heddle-operator-bench heddle-search-bench)
fi
if [ "$benchmark" = models ]; then
  targets=(heddle-operator-bench heddle-bench-module heddle_shared heddle heddle-scheduler heddle-tracker heddle-worker)
  # The peers live in a virtual environment, made anew when the list of them changes.
  venv="$root/build/bench/venv"
  python="$venv/bin/python"
  if ! cat "$root"/bench/requirements*.txt | cmp -s - "$venv/installed.txt"; then
    echo "bench/run.sh: installing the peers into build/bench/venv" >&2
    rm -rf "$venv"
    mkdir -p "$root/build/bench"
    python3 -m venv "$venv"
    "$python" -m pip install --quiet --disable-pip-version-check -r "$root/bench/requirements.txt" >&2
    # Not everywhere has Apache TVM a wheel; the table says so then.
    "$python" -m pip install --quiet --disable-pip-version-check -r "$root/bench/requirements-tvm.txt" >&2 ||
      echo "bench/run.sh: Apache TVM's wheel does not install here; it will not be measured" >&2
    cat "$root"/bench/requirements*.txt > "$venv/installed.txt"
  fi
fi
"$root/deploy/build.sh" "${targets[@]}" >&2
exec "$python" "$root/bench/run.py" "$@"
