#!/usr/bin/env bash
# Fetches axe-core for the accessibility checks of the page: a package of PyPI that carries it goes into build/tests/axe. What else that package
# wants is left out, since only its script is used.
set -euo pipefail
folder=$(cd "$(dirname "$0")/../.." && pwd)/build/tests/axe
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps axe-playwright-python==0.1.8
ls "$folder"/lib/python*/site-packages/*/axe.min.js
