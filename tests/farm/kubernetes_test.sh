#!/usr/bin/env bash
# Validates deploy/kubernetes against the schema of the Kubernetes API (kubernetes_test.py), in an environment of its own.
# Usage: kubernetes_test.sh --install              makes the environment, build/farm/venv: needs PyPI the first time
#        kubernetes_test.sh SOURCE_DIR BIN_DIR     The status is 77 without the environment: ctest skips the test
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=$(cd "$here/../.." && pwd)/build/farm/venv
if [ "${1:-}" = --install ]; then
  if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
    rm -rf "$venv"
    mkdir -p "$(dirname "$venv")"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed.txt"
  fi
  exit 0
fi
if [ ! -e "$venv/installed.txt" ]; then
  echo "skipped: kubernetes-validate is not here; tests/farm/kubernetes_test.sh --install gets it"
  exit 77
fi
PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" "$here/kubernetes_test.py" "$@"
