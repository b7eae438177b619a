#!/usr/bin/env bash
# Fuzzers, sanitizers, packages on a clean Debian, all pipelines of classical models, the rules made anew, and thousands of faults and
# attacks: what takes too long for every change. Prints one table for each part; fails if anything was found.
#
# Usage: tests/nightly.sh [--seconds N] [--until N] [--jobs N] [--targets "NAME.."] [--runs N] [PART ..]
#   --seconds   for each fuzz target at a time; default 300
#   --until     seconds that each fuzz target shall have in the end, those of earlier nights on the same code included; default: runs each once
#   --jobs      fuzz targets at a time; default 1
#   --targets   fuzz targets, e.g. "ir_text onnx_model"; default: all
#   --runs      faults or attacks of each part that counts them; the default is the number beside its name
#   the parts   default: all. asan and tsan run the tests that are listed below, in builds of their own. packages needs root: it installs
#               the Debian packages of the release build into a new root and tunes a model there.
#                 fuzz, asan, tsan, packages, pipelines, rules
#                 mutations   10,000  hostile messages of every kind, to scheduler, tracker and worker
#                 kills       10,000  kill -9 of the scheduler, and as many of a process that writes the database; a hundredth in collections
#                 stops        1,000  SIGSTOPs of daemons beyond their leases
#                 fail_overs   1,000  times a scheduler that leads is killed, stopped, ended or cut off, on each store, and a fifth as often a
#                                     tracker; takes hours
#                 nemesis        200  runs with every kind of fault, each about 20 s
#                 fills          100  fills of the scheduler's disk, a small tmpfs; needs root
#                 cuts         1,000  power cuts of the database, and an I/O error at each of its calls; the number is fixed
#                 escapes             all attempts to get out of a stage, as root and as another user
#
# How long each fuzz target has run so far is in build/fuzz/found/hours.tsv (fuzz/run.py). An hour for each, of which this night gives six:
# timeout 6h tests/nightly.sh --until 3600 --jobs 2 fuzz
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
until=
jobs=1
targets=()
runs=
parts=()
usage() {
  echo "nightly.sh: $1; its first lines list the options and parts" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case "$1" in
    --seconds | --until | --jobs | --runs)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || usage "$1 takes a number from 1 on"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --targets)
      [ -n "${2-}" ] || usage "$1 takes names"
      read -r -a targets <<<"$2"
      shift
      ;;
    fuzz | asan | tsan | packages | pipelines | rules | mutations | kills | stops | fail_overs | nemesis | fills | cuts | escapes) parts+=("$1") ;;
    *) usage "'$1' is not understood" ;;
  esac
  shift
done
if [ ${#parts[@]} -eq 0 ]; then
  parts=(fuzz asan tsan packages pipelines rules mutations kills stops fail_overs nemesis fills cuts escapes)
fi
status=0

# configure_and_build PRESET TARGET..
configure_and_build() {
  mkdir -p build
  cmake --preset "$1" >"build/configure-$1.log" 2>&1 || { cat "build/configure-$1.log" >&2; exit 1; }
  ninja -C "build/$1" "${@:2}"
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
  tests/fuzz/run.py --seconds "$seconds" ${until:+--until "$until"} --jobs "$jobs" "${targets[@]}" || status=1
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
  configure_and_build release heddle heddle-scheduler heddle-tracker heddle-worker heddle-sim heddle_shared heddle_python installed_texts
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

# run_faults TEST GTEST_FILTER [NAME=VALUE ..]: tests of the release build, with the number of their faults in a variable. What they printed
# goes to build/nightly.
run_faults() {
  local began=$SECONDS program result=passed
  configure_and_build release "$1"
  program=$(find build/release/tests -type f -name "$1" -perm -u+x)
  mkdir -p build/nightly
  env HEDDLE_MACHINE=table "${@:3}" "$program" --gtest_filter="$2" >"build/nightly/$1.log" 2>&1 || { result=FAILED && status=1; }
  printf '%-24s %-30s %6d s  %s\n' "$1" "${*:3}" $((SECONDS - began)) "$result"
  grep -hE '^[0-9]+ (kills|stops|fail-overs|power cuts|calls failed)|^seed [0-9]+:' "build/nightly/$1.log" | tail -n 3 || true
}

run_mutations() {
  local test
  for test in hostile_scheduler_test hostile_tracker_test worker_server_test proto_test; do
    run_faults "$test" '*' "HEDDLE_MUTATIONS=${runs:-10000}"
  done
}

run_kills() {
  local count=${runs:-10000}
  run_faults scheduler_faults_test '*Kills*:PlantedBugs.*' "HEDDLE_SCHEDULER_KILLS=$count"
  run_faults scheduler_store_test 'StoreCrashTest.*' "HEDDLE_STORE_KILLS=$count"
  run_faults gc_kill_test '*' "HEDDLE_GC_KILLS=$(((count + 99) / 100))"
}

# Status 77: there is no other user here.
run_escapes() {
  run_faults escape_test '*'
  tests/worker/as_user.sh "$(find build/release/tests -type f -name escape_test)" >build/nightly/escape_test_as_user.log 2>&1 ||
    [ $? -eq 77 ] || { echo "escape_test FAILED as another user" && status=1; }
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
    mutations) run_mutations ;;
    kills) run_kills ;;
    stops) run_faults nemesis_test '*StopsBeyond*' "HEDDLE_NEMESIS_STOPS=${runs:-1000}" ;;
    fail_overs)
      run_faults fail_over_test '*NothingTold*' "HEDDLE_FAIL_OVERS=${runs:-1000}"
      run_faults tracker_fail_over_test '*' "HEDDLE_TRACKER_FAIL_OVERS=$(((${runs:-1000} + 4) / 5))"
      ;;
    nemesis) run_faults nemesis_test '*NothingTold*:HistoryTest.*' "HEDDLE_NEMESIS_RUNS=${runs:-200}" ;;
    fills) run_faults scheduler_faults_test '*FullDisk*' "HEDDLE_DISK_FILLS=${runs:-100}" ;;
    cuts) run_faults store_faults_test '*' HEDDLE_STORE_FAULTS=all ;;
    escapes) run_escapes ;;
  esac
done
exit "$status"
