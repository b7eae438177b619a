#!/usr/bin/env bash
# Fuzzers, sanitizers, packages on a clean Debian, all pipelines of classical models, and the rules made anew: what takes too long for every
# change. Prints one table for each part; fails if anything was found.
#
# Usage: tests/nightly.sh [--seconds N] [--targets "NAME.."] [fuzz] [asan] [tsan] [packages] [pipelines] [rules]
#   --seconds   for each fuzz target; default 300
#   --targets   fuzz targets, e.g. "ir_text onnx_model"; default: all
#   the parts   default: all. asan and tsan run the tests that are listed below, in builds of their own. packages needs root: it installs
#               the Debian packages of the release build into a new root and tunes a model there.
#
# What a fuzzer finds lies in build/fuzz/found/NAME/crashes. To see it: build/fuzz/tests/fuzz/fuzz_NAME FILE. Once it is mended, the file
# goes to tests/fuzz/corpus/NAME/found-WHAT, so that every build tests it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Parsers, stores and services without the code generators, whose instrumented build would take most of the time.
asan_tests=(base_test ir_golden_test ir_text_test ir_visit_test independence_test pass_test plan_test
  classical_test onnx_import_test onnx_damage_test runtime_test measured_machine_test
  cost_model_blob_test cost_model_search_test cost_model_model_search_test cost_model_attention_test
  scheduler_core_test scheduler_ledger_test scheduler_store_test scheduler_service_test
  device_pool_test tracker_service_test worker_parts_test guard_test stage_runner_test worker_server_test)
# Whatever has threads.
tsan_tests=(base_test runtime_test scheduler_store_test scheduler_service_test device_pool_test tracker_service_test
  worker_parts_test stage_runner_test worker_server_test)

seconds=300
targets=()
parts=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds=$2; shift ;;
    --targets) read -r -a targets <<<"$2"; shift ;;
    fuzz | asan | tsan | packages | pipelines | rules) parts+=("$1") ;;
    *)
      echo "nightly.sh: '$1' is not understood; there are --seconds, --targets, fuzz, asan, tsan, packages, pipelines and rules" >&2
      exit 2
      ;;
  esac
  shift
done
if [ ${#parts[@]} -eq 0 ]; then parts=(fuzz asan tsan packages pipelines rules); fi
status=0

# configure_and_build PRESET TARGET..
configure_and_build() {
  mkdir -p build
  cmake --preset "$1" >"build/configure-$1.log" 2>&1 || { cat "build/configure-$1.log" >&2; exit 1; }
  ninja -C "build/$1" "${@:2}"
}

# The last number behind a word in a log; 0 if there is none.
last_number() {
  { grep -oE "$1 *[0-9]+" "$2" || true; } | tail -n 1 | grep -oE '[0-9]+$' || echo 0
}

# The official operator tests are further inputs, where they are installed.
collect_models() {
  local model name
  mkdir -p build/fuzz/models
  for model in /usr/share/libonnx-testdata/data/node/*/model.onnx; do
    [ -e "$model" ] || continue
    name=$(basename "$(dirname "$model")")
    [ -e "build/fuzz/models/$name" ] || cp "$model" "build/fuzz/models/$name"
  done
}

run_fuzzers() {
  deploy/setup.sh --fuzz
  configure_and_build fuzz fuzzers
  collect_models
  local program name folder more crashes
  if [ ${#targets[@]} -eq 0 ]; then
    for program in build/fuzz/tests/fuzz/fuzz_*; do
      [ ! -f "$program" ] || [ ! -x "$program" ] || targets+=("$(basename "$program" | cut -c6-)")
    done
  fi
  printf '\n%-18s %12s %8s %8s %8s\n' target executions edges seconds crashes
  for name in "${targets[@]}"; do
    folder=build/fuzz/found/$name
    more=()
    case "$name" in onnx_*) more=(build/fuzz/models) ;; esac
    [ ! -e "tests/fuzz/words/$name" ] || more+=("-dict=tests/fuzz/words/$name")
    mkdir -p "$folder/corpus" "$folder/crashes"
    # The first folder takes what reaches new code. One input may take 10 s and 2 GiB.
    "build/fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -use_value_profile=1 \
      -print_final_stats=1 -artifact_prefix="$folder/crashes/" "$folder/corpus" "tests/fuzz/corpus/$name" "${more[@]}" \
      >"$folder/log" 2>&1 || status=1
    crashes=$(find "$folder/crashes" -type f | wc -l)
    [ "$crashes" -eq 0 ] || status=1
    printf '%-18s %12s %8s %8s %8s\n' "$name" "$(last_number 'stat::number_of_executed_units:' "$folder/log")" \
      "$(last_number 'cov:' "$folder/log")" "$seconds" "$crashes"
  done
}

# run_tests PRESET TEST..: builds and runs tests and the corpora of the fuzz targets.
run_tests() {
  local names
  configure_and_build "$1" "${@:2}" fuzzers
  names=$(IFS='|' && echo "${*:2}")
  ctest --preset "$1" --timeout 900 -R "^($names|fuzz_.*)\$" || status=1
}

run_packages() {
  deploy/setup.sh --tests
  configure_and_build release heddle heddle-scheduler heddle-tracker heddle-worker heddle-sim heddle_shared installed_texts
  tests/install/packages_test.sh --root || status=1
}

run_pipelines() {
  deploy/setup.sh --tests
  configure_and_build release heddle heddle-compile-default operator-report
  tests/classical/pipelines/run.sh --install
  tests/classical/pipelines/run.sh build/release/bin --all || status=1
  tests/classical/pipelines/run.sh --push-down build/release/bin || status=1
  rm -rf build/standard-ml
  build/bench/venv-classical/bin/python tests/onnx/standard_cases.py --only ai_onnx_ml build/standard-ml || status=1
}

# The shipped substitutions are what one thread and two threads make.
run_rules() {
  deploy/setup.sh --tests
  configure_and_build release heddle-rules
  tests/substitution/same_rules.sh build/release/bin/heddle-rules 3 compiler/substitution/rules.txt || status=1
}

for part in "${parts[@]}"; do
  echo "== $part"
  case "$part" in
    fuzz) run_fuzzers ;;
    asan) run_tests asan "${asan_tests[@]}" ;;
    tsan) run_tests tsan "${tsan_tests[@]}" ;;
    packages) run_packages ;;
    pipelines) run_pipelines ;;
    rules) run_rules ;;
  esac
done
exit "$status"
