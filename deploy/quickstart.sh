#!/usr/bin/env bash
# From a clone to a tuned ResNet-18 in one command: installs, builds, starts the service (scheduler, tracker and workers on this
# machine), generates the model, submits it, shows progress, fetches the module, checks it against the interpreter and measures it
# beside naive loops and the default schedules. Everything it makes lies in build/quickstart; running it again reuses the records.
# Usage: deploy/quickstart.sh [MODEL] [TRIALS]   (default: resnet18, 32 trials per task)
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:-resnet18}
trials=${2:-32}

say() { printf '\n== %s\n' "$*"; }

say "1/6 install and build"
deploy/build.sh heddle heddle-scheduler heddle-tracker heddle-worker
export PATH="$PWD/build/release/bin:$PATH"
work=build/quickstart
mkdir -p "$work"
started=$(date +%s)

say "2/6 start the service"
rm -f "$work/port"
heddle-scheduler --embedded --port-file "$work/port" --data "$work/data" 2>"$work/service.log" &
service=$!
trap 'kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true' EXIT
for _ in $(seq 300); do
  [ -s "$work/port" ] && break
  if ! kill -0 "$service" 2>/dev/null; then
    tail -n 5 "$work/service.log" >&2
    exit 1
  fi
  sleep 0.1
done
export HEDDLE_SERVER="unix:$work/data/sockets/scheduler"
# The workers register within a second or two.
for _ in $(seq 100); do
  [ "$(heddle devices --plain 2>/dev/null | wc -l)" -gt 1 ] && break
  sleep 0.1
done
heddle devices

say "3/6 generate and submit $model"
heddle zoo "$model" -o "$work/$model.onnx" --seed 1
# The best schedules found so far on such a CPU, where the repository has them, are known trials from the start.
cpu=$(heddle submit "$work/$model.onnx" --dry-run --json | sed -n 's/.*-mcpu=\([^ "]*\).*/\1/p')
known=()
[ -f "bench/records/$cpu.jsonl" ] && known=(--records "bench/records/$cpu.jsonl")
job=$(heddle submit "$work/$model.onnx" --trials "$trials" "${known[@]}")
echo "$job"

say "4/6 tune"
heddle watch "$job"
heddle show "$job"

say "5/6 fetch the module, and check its result against the interpreter"
heddle fetch "$job" -o "$work/$model.heddle"
heddle fetch "$job" -o "$work/$model.naive.heddle" --schedules naive
heddle fetch "$job" -o "$work/$model.default.heddle" --schedules default
# The service is not needed to run a module, and an idle machine measures best.
kill "$service"
wait "$service" 2>/dev/null || true
heddle run "$work/$model.heddle" --check "$work/$model.onnx"

say "6/6 measure: naive loops, default schedules, tuned"
heddle run "$work/$model.heddle" --evaluate --against "$work/$model.naive.heddle" --against "$work/$model.default.heddle"
echo
echo "done in $(($(date +%s) - started)) s after the build; the module is $work/$model.heddle"
echo "next: deploy/build.sh heddle-sim heddle_shared builds the simulator and libheddle.so, for programs that run the module"
