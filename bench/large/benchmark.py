"""Submits a large model twice, fetches the module and runs it, and prints the peak memory of every process.

Usage: bench/run.sh large [--gib 3] [--changed 2] [--trials 2] [--json FILE]
The model has that many GiB of weights; the second time, the last --changed layers have others. The daemons are started for this
in a temporary folder, which needs about six times the size of the weights on disk.

Peaks are of resident memory: `all` as the kernel counts it (VmHWM), which includes pages of mapped files that it may drop at any time,
and `own`, without those, the largest of samples taken every 20 ms.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERIOD_S = 0.02


class Meter(threading.Thread):
    """Samples the memory of processes and their children, by name."""

    def __init__(self):
        super().__init__(daemon=True)
        self.names, self.peaks, self.lock, self.on = {}, {}, threading.Lock(), True

    def watch(self, pid, name):
        with self.lock:
            self.names[pid] = name

    def run(self):
        while self.on:
            with self.lock:
                names = dict(self.names)
            for pid, name in names.items():
                self.sample(pid, name)
                try:
                    tasks = os.listdir(f"/proc/{pid}/task")
                    for task in tasks:
                        children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()
                        for child in children:
                            if int(child) not in names:
                                self.sample(int(child), f"{name}: child")
                except OSError:
                    pass
            time.sleep(PERIOD_S)

    def sample(self, pid, name):
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        kib = {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
        if "VmHWM" not in kib:
            return
        peak = self.peaks.setdefault(name, {"all": 0, "own": 0})
        peak["all"] = max(peak["all"], kib["VmHWM"] << 10)
        peak["own"] = max(peak["own"], (kib["RssAnon"] + kib["RssShmem"]) << 10)

    def take(self):
        peaks, self.peaks = self.peaks, {}
        return peaks


class Run:
    def __init__(self, flags, folder):
        self.flags, self.folder, self.meter, self.rows = flags, folder, Meter(), []
        self.daemons = []
        self.meter.start()
        self.tracker = self.daemon("heddle-tracker", "--state", f"{folder}/state")
        self.scheduler = self.daemon("heddle-scheduler", "--data", f"{folder}/data", "--tracker", self.tracker)
        cores = sorted(os.sched_getaffinity(0))
        self.start([f"{flags.bin}/heddle-worker", "--tracker", self.tracker, "--id", "w", "--cpu-slots", str(cores[0]),
                    "--device-slots", str(cores[-1]), "--blob-cache", f"{folder}/cache"], "heddle-worker")

    def start(self, command, name):
        log = open(f"{self.folder}/{name}.log", "ab")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        self.meter.watch(process.pid, name)
        self.daemons.append(process)

    def daemon(self, name, *more):
        port = pathlib.Path(f"{self.folder}/{name}.port")
        self.start([f"{self.flags.bin}/{name}", "--listen", "127.0.0.1:0", "--port-file", str(port), *more], name)
        for _ in range(1000):
            if port.exists() and port.read_text().strip():
                return "127.0.0.1:" + port.read_text().strip()
            time.sleep(0.02)
        raise SystemExit(f"{name} did not start: see {self.folder}")

    def heddle(self, step, *words):
        self.meter.take()
        begin = time.monotonic()
        process = subprocess.Popen([f"{self.flags.bin}/heddle", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=os.environ | {"HEDDLE_SERVER": self.scheduler})
        self.meter.watch(process.pid, f"heddle {words[0]}")
        out, err = process.communicate()
        seconds = time.monotonic() - begin
        time.sleep(5 * PERIOD_S)
        said = [line for line in err.splitlines() if line.startswith("weights:")]
        if process.returncode != 0:
            print(err)
            raise SystemExit(f"heddle {' '.join(words)} ended with {process.returncode}; logs: {self.folder}")
        row = {"step": step, "seconds": seconds, "peaks": self.meter.take(), "said": said}
        self.rows.append(row)
        print(f"\n{step}: {seconds:.1f} s{'; ' + said[0] if said else ''}")
        for name, peak in sorted(row["peaks"].items()):
            print(f"  {name:32} all {peak['all'] / 2**20:8.0f} MiB   own {peak['own'] / 2**20:8.0f} MiB")
        return out.strip()

    def end(self):
        self.meter.on = False
        for process in reversed(self.daemons):
            process.terminate()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=3, help="size of the weights")
    parser.add_argument("--changed", type=int, default=2, help="layers of the second model that have other weights")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"), help="folder of the binaries")
    parser.add_argument("--trials", default="2", help="trials of each task")
    parser.add_argument("--folder", default=str(ROOT / "build"), help="where the temporary folder is made")
    parser.add_argument("--json", help="also write the figures to this file")
    flags = parser.parse_args()
    if not 0.1 <= flags.gib <= 64:
        parser.error("--gib must be from 0.1 to 64")
    with tempfile.TemporaryDirectory(dir=flags.folder) as folder:
        models = []
        for changed in (0, flags.changed):
            models.append(f"{folder}/model{changed}/model.onnx")
            print("writing the model", "with other weights at its end" if changed else "", file=sys.stderr)
            subprocess.run([sys.executable, ROOT / "bench/large/make_model.py", pathlib.Path(models[-1]).parent, "--gib", str(flags.gib),
                            "--changed", str(changed)], check=True)
        run = Run(flags, folder)
        try:
            submit = ["submit", "--trials", flags.trials, "--batch", "2", "--strategy", "random"]
            job = run.heddle("submitted", *submit, models[0])
            run.heddle("imported, tuned, compiled", "wait", job, "--for", "done", "--timeout", "1800")
            run.heddle("submitted again", *submit, models[0])
            run.heddle(f"submitted with {flags.changed} changed layers", *submit, models[1])
            run.heddle("fetched", "fetch", job, "-o", f"{folder}/module.heddle")
            run.heddle("run", "run", f"{folder}/module.heddle")
            size = os.path.getsize(f"{folder}/module.heddle")
            print(f"\nmodule: {size} bytes")
            if flags.json:
                pathlib.Path(flags.json).write_text(json.dumps({"module_bytes": size, "steps": run.rows}, indent=1))
        finally:
            run.end()


if __name__ == "__main__":
    main()
