#!/usr/bin/env bash
# Runs one benchmark, prints a table, and lists what could not be measured. Installs and builds what it needs first.
# Usage: bench/run.sh operators|models|graphs|gains|plans|classical|scheduling|search|cuda|large|farm [--json FILE] [--only ROW] [--quick] [--minutes M] [--threads 1,2] [--trials N] [--records FILE]   (--help: all)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# The GPU benchmark is one program that also runs without this repository.
if [ "${1:-}" = cuda ]; then
  shift
  exec "$root/bench/cuda/run.sh" "$@"
fi
. "$root/bench/common/packages.sh"
if [ "${1:-}" = large ]; then
  shift
  case " $* " in *" --help "* | *" -h "*) exec python3 "$root/bench/large/benchmark.py" --help ;; esac
  "$root/deploy/setup.sh" --bench
  install_packages models venv
  "$root/deploy/build.sh" heddle heddle-scheduler heddle-tracker heddle-worker >&2
  exec "$python" "$root/bench/large/benchmark.py" "$@"
fi
if [ "${1:-}" = farm ]; then
  shift
  "$root/deploy/build.sh" heddle-bench-farm heddle-hollow-worker heddle-scheduler heddle-tracker >&2
  exec "$root/build/release/bin/heddle-bench-farm" "$@"
fi
# Arguments are checked before anything is installed.
command -v python3 >/dev/null || { echo "run.sh: python3 is missing; deploy/setup.sh --bench installs it" >&2 && exit 2; }
benchmark=$(python3 -m bench.common.arguments "$@") || exit $?
case "$benchmark" in usage:*) printf '%s\n' "$benchmark" && exit 0 ;; esac
"$root/deploy/setup.sh" --bench
python=python3
service=(heddle heddle-scheduler heddle-tracker heddle-worker)
case "$benchmark" in
  operators)
    targets=(heddle-operator-bench heddle-bench-onednn heddle-bench-openblas)
    install_packages operators venv-onednn
    python=python3
    if [ -e "$venv/lib/libdnnl.so" ]; then targets+=(heddle-bench-onednn3); fi
    ;;
  models)
    targets=(heddle-operator-bench heddle-bench-module heddle_shared "${service[@]}")
    install_packages models venv
    ;;
  graphs | gains)
    targets=(heddle-operator-bench heddle_shared "${service[@]}")
    install_packages models venv
    ;;
  plans)
    targets=(heddle-plan-bench heddle_shared heddle heddle-worker)
    install_packages models venv
    ;;
  classical)
    targets=(heddle-bench-module heddle-bench-call heddle-bench-rotate heddle-plan-bench heddle_shared)
    install_packages classical venv-classical
    ;;
  scheduling) targets=(heddle-operator-bench "${service[@]}") ;;
  search) targets=(heddle-operator-bench heddle-search-bench) ;;
esac
"$root/deploy/build.sh" "${targets[@]}" >&2
exec "$python" -m bench "$@"
