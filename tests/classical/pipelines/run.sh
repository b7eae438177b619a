#!/usr/bin/env bash
# Compares modules of classical models with the libraries that made them (pipelines.py), in the environment of bench/run.sh classical.
# Usage: run.sh --install            makes the environment, build/bench/venv-classical: needs PyPI the first time, and some minutes
#        run.sh --push-down BIN_DIR  runs push_down.py instead
#        run.sh --standard BIN_DIR   runs the standard's own tests of ai.onnx.ml, of which none may be refused (standard_cases.py)
#        run.sh BIN_DIR [--all] ..   the arguments of pipelines.py. The status is 77 without the environment: ctest skips the test
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
if [ "${1:-}" = --install ]; then
  . "$root/bench/common/packages.sh"
  install_packages classical venv-classical
  exit 0
fi
python=$root/build/bench/venv-classical/bin/python
if [ ! -x "$python" ]; then
  echo "skipped: the packages of bench/classical/requirements.txt are not here; tests/classical/pipelines/run.sh --install gets them"
  exit 77
fi
program=pipelines.py
if [ "${1:-}" = --push-down ]; then
  program=push_down.py
  shift
fi
if [ "${1:-}" = --standard ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  PYTHONDONTWRITEBYTECODE=1 "$python" -W ignore "$root/tests/onnx/standard_cases.py" --only ai_onnx_ml --strict --verbose \
    --report "$2/operator-report" "$folder/cases"
  exit
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/$program" "$@"
