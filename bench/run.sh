#!/usr/bin/env bash
# Runs one benchmark, prints a table, and lists what could not be measured. Installs and builds what it needs first.
# Usage: bench/run.sh operators|models|plans|scheduling|search|cuda|large [--json FILE] [--only ROW] [--threads 1,2] [--trials N] [--records FILE]   (--help: all)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# The GPU benchmark is one program that also runs without this repository.
if [ "${1:-}" = cuda ]; then
  shift
  exec "$root/bench/cuda/run.sh" "$@"
fi
# The packages from PyPI live in a virtual environment, which is rebuilt when their list changes. Sets `python`.
install_packages() {
  local requirements=$root/bench/models venv=$root/build/bench/venv
  python="$venv/bin/python"
  if ! cat "$requirements"/requirements*.txt | cmp -s - "$venv/installed.txt"; then
    echo "bench/run.sh: installing packages into build/bench/venv" >&2
    rm -rf "$venv"
    mkdir -p "$root/build/bench"
    python3 -m venv "$venv"
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements/requirements.txt" >&2
    # Apache TVM has no wheel on some systems. It is then left out.
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements/requirements-tvm.txt" >&2 ||
      echo "bench/run.sh: the wheel of Apache TVM does not install here; it will not be measured" >&2
    cat "$requirements"/requirements*.txt > "$venv/installed.txt"
  fi
}
if [ "${1:-}" = large ]; then
  shift
  case " $* " in *" --help "* | *" -h "*) exec python3 "$root/bench/large/benchmark.py" --help ;; esac
  "$root/deploy/setup.sh" --bench
  install_packages
  "$root/deploy/build.sh" heddle heddle-scheduler heddle-tracker heddle-worker >&2
  exec "$python" "$root/bench/large/benchmark.py" "$@"
fi
# Arguments are checked before anything is installed.
benchmark=$(python3 -m bench.common.arguments "$@") || exit $?
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
  install_packages
fi
if [ "$benchmark" = plans ]; then
  targets=(heddle-plan-bench heddle_shared heddle)
  install_packages
fi
"$root/deploy/build.sh" "${targets[@]}" >&2
exec "$python" -m bench "$@"
