#!/usr/bin/env bash
# A real Slurm on this host (munged, slurmctld, slurmd as this user, on loopback) starts a worker for a job that waits; the job is tuned,
# the worker leaves, and Slurm has nothing left to run. Usage: slurm_test.sh BIN_DIR. Status 77: a program of Slurm is not here.
set -euo pipefail
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
for program in munged slurmctld slurmd; do
  command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || {
    echo "skipped: $program is not here; apt-get install slurm-wlm munge (deploy/setup.sh --tests) gets it"
    exit 77
  }
done
export PATH="$bin:$PATH:/usr/sbin" PYTHONDONTWRITEBYTECODE=1 HEDDLE_MACHINE=table
folder=$(mktemp -d /tmp/heddle-slurm-XXXXXX)
pids=()
cleanup() {
  scancel --name heddle-cpu --quiet 2>/dev/null || true
  # In turn, the last one first: slurmd ends its steps by itself.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "${pids[i]}" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "${pids[i]}" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap cleanup EXIT
fail() {
  echo "slurm_test.sh: $*" >&2
  for log in "$folder"/*.log; do echo "--- $log" >&2; tail -n 15 "$log" >&2; done
  exit 1
}
# wait_for SECONDS WHAT COMMAND..
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "waited too long for $what"
    sleep 0.3
  done
}
# start NAME COMMAND..: in the background, with a log
start() {
  local name=$1
  shift
  "$@" >"$folder/$name.log" 2>&1 &
  pids+=($!)
}

# ---- Slurm ----
user=$(id -un)
host=$(hostname -s)
cores=$(nproc)
port=$((20000 + $$ % 20000))
chmod 755 "$folder"
mkdir "$folder/state" "$folder/spool"
dd if=/dev/urandom of="$folder/munge.key" bs=1 count=1024 status=none
chmod 400 "$folder/munge.key"
export SLURM_CONF="$folder/slurm.conf"
cat >"$SLURM_CONF" <<CONF
ClusterName=heddle
SlurmctldHost=$host(127.0.0.1)
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=30
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
start munged munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
  --pid-file="$folder/munged.pid" --seed-file="$folder/munge.seed" --log-file="$folder/munged-own.log"
wait_for 20 munged test -S "$folder/munge.socket"
start slurmctld slurmctld -D
start slurmd slurmd -D -N "$host"
wait_for 40 "a node that is idle" sh -c 'sinfo --noheader --format=%t | grep -q "^idle"'
echo "Slurm $(sinfo --version | cut -d' ' -f2) has $cores cores: $(sinfo --noheader --format='%P %D %t')"

# ---- the service, without any worker ----
start tracker heddle-tracker --listen 127.0.0.1:0 --port-file "$folder/tracker.port"
wait_for 20 "the tracker" test -s "$folder/tracker.port"
HEDDLE_TRACKER="127.0.0.1:$(cat "$folder/tracker.port")"
export HEDDLE_TRACKER
http=$((port + 2))
start scheduler heddle-scheduler --listen 127.0.0.1:0 --port-file "$folder/port" --tracker "$HEDDLE_TRACKER" --data "$folder/data" \
  --http "127.0.0.1:$http"
wait_for 20 "the scheduler" test -s "$folder/port"
HEDDLE_SERVER="127.0.0.1:$(cat "$folder/port")"
export HEDDLE_SERVER

cat >"$folder/autoscaler.toml" <<CONF
metrics = "http://127.0.0.1:$http/metrics"
heddle = ["$bin/heddle"]
state = "$folder/autoscaler.json"
every_s = 1
[source]
kind = "slurm"
[classes.cpu]
script = "$root/deploy/slurm/worker.sbatch"
sbatch = ["--partition=cpu", "--cpus-per-task=$cores"]
pools = ["cpu", "any", "other", "local"]
slots = $cores
max = 1
wait_s = 1
idle_s = 4
register_s = 60
CONF
export HEDDLE_WORKER_OPTIONS="--device-key local --blob-cache $folder/blobs --code-cache off"
start autoscaler python3 "$root/deploy/autoscaler" "$folder/autoscaler.toml"
sleep 3
[ -z "$(squeue --noheader)" ] || fail "a worker was started although no work waits"

# ---- a job waits, and gets its worker ----
heddle zoo mlp -o "$folder/mlp.onnx" >/dev/null
begin=$SECONDS
job=$(heddle submit "$folder/mlp.onnx" --trials 4 2>"$folder/submit.log")
wait_for 60 "a job of Slurm" sh -c 'squeue --noheader --states=RUNNING | grep -q heddle-c'
squeue --array --format='%.12i %.12j %.9T %.4C'
wait_for 60 "the worker" sh -c "'$bin/heddle' devices --plain | grep -q cpu-0"
heddle wait "$job" --for=done --timeout 150 >/dev/null 2>"$folder/wait.log" || fail "job $job is not tuned: $(heddle jobs --all --plain)"
heddle jobs --all
echo "tuned $((SECONDS - begin)) s after it was submitted, on $(heddle records --json | grep -o '"worker":"[^"]*"' | sort | uniq -c | tr -s ' ')"

# ---- nothing waits, so the worker leaves ----
wait_for 60 "the worker to leave" sh -c '[ -z "$(squeue --noheader)" ]'
sleep 2
python3 "$root/deploy/autoscaler" "$folder/autoscaler.toml" --status
python3 - "$folder/autoscaler.json" <<'CHECK' || fail "the counts are wrong"
import json, sys
counted = json.load(open(sys.argv[1]))["classes"]["cpu"]
assert (counted["starts"], counted["drains"], counted["failed_starts"]) == (1, 1, 0), counted
assert 2 < counted["node_seconds"] < 300, counted
CHECK
grep -h "heddle-autoscaler:" "$folder/autoscaler.log"
echo "passed"
