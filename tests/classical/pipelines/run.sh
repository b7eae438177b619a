#!/usr/bin/env bash
# Compares modules of classical models with the libraries that made them (pipelines.py), in the environment of bench/run.sh classical.
# Usage: run.sh --install            makes the environment, build/bench/venv-classical: needs PyPI the first time, and some minutes
#        run.sh --push-down BIN_DIR  runs push_down.py instead
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
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/$program" "$@"
