#!/usr/bin/env bash
# Runs one benchmark, prints a table, and lists what could not be measured. Installs and builds what it needs first.
# Usage: bench/run.sh operators|models|graphs|gains|plans|classical|scheduling|search|cuda|large [--json FILE] [--only ROW] [--quick] [--minutes M] [--threads 1,2] [--trials N] [--records FILE]   (--help: all)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
# The GPU benchmark is one program that also runs without this repository.
if [ "${1:-}" = cuda ]; then
  shift
  exec "$root/bench/cuda/run.sh" "$@"
fi
# install_packages FOLDER VENV: makes the virtual environment build/bench/VENV with the packages of bench/FOLDER/requirements*.txt,
# anew when their lists change. What requirements-NAME.txt lists is left out where it does not install. Sets `python` and `venv`.
install_packages() {
  local requirements=$root/bench/$1 optional
  venv=$root/build/bench/$2
  python="$venv/bin/python"
  cat "$requirements"/requirements*.txt | cmp -s - "$venv/installed.txt" && return
  echo "bench/run.sh: installing packages into build/bench/$2" >&2
  rm -rf "$venv"
  mkdir -p "$root/build/bench"
  python3 -m venv "$venv"
  if [ -e "$requirements/requirements.txt" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check -r "$requirements/requirements.txt" >&2
  fi
  for optional in "$requirements"/requirements-*.txt; do
    "$python" -m pip install --quiet --disable-pip-version-check -r "$optional" >&2 ||
      echo "bench/run.sh: the packages of ${optional#"$root/"} do not install here; what needs them is not measured" >&2
  done
  cat "$requirements"/requirements*.txt > "$venv/installed.txt"
}
if [ "${1:-}" = large ]; then
  shift
  case " $* " in *" --help "* | *" -h "*) exec python3 "$root/bench/large/benchmark.py" --help ;; esac
  "$root/deploy/setup.sh" --bench
  install_packages models venv
  "$root/deploy/build.sh" heddle heddle-scheduler heddle-tracker heddle-worker >&2
  exec "$python" "$root/bench/large/benchmark.py" "$@"
fi
# Arguments are checked before anything is installed.
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
