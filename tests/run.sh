#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Usage: tests/run.sh [ctest arguments, e.g. -R dispatcher]
# Of the fuzz targets it replays the corpora. Their instrumented builds take many minutes, so tests/nightly.sh runs them, and the
# sanitizers.
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/setup.sh --tests || echo "run.sh: not everything that tests start is here; those tests are skipped" >&2
tests/classical/pipelines/run.sh --install || echo "run.sh: the packages for pipelines of classical models are not here; their test is skipped" >&2
tests/farm/kubernetes_test.sh --install || echo "run.sh: kubernetes-validate is not here; the check of the manifests is skipped" >&2
tests/page/get_axe.sh >/dev/null || echo "run.sh: axe-core is not here; the check of the page's accessibility is skipped" >&2
deploy/build.sh
status=0
ctest --preset release --timeout 900 --no-tests=ignore --parallel 2 "$@" || status=$?
# What the property tests counted, which ctest itself shows only for tests that fail.
grep -hE '^(onnx cases:|[0-9]+ (pairs|seeds|schedules))' build/release/Testing/Temporary/LastTest.log || true
exit "$status"
