"""Single operators against oneDNN and OpenBLAS, warm, weights known ahead of time (not those of attention)."""

import os
import statistics

import records
import report
import turns
from side import Side, SideError

CLASSES = [
    ("C1-C12", [f"C{i}" for i in range(1, 13)]),
    ("D1-D9", [f"D{i}" for i in range(1, 10)]),
    (
        "matrix products",
        ["1x1000x512", "1x4096x1024", "128x768x768", "128x3072x768", "128x768x3072", "1024x1024x1024"]
        + ["12x128x128x64", "12x128x64x128"],
    ),
]
TUNE_LIMIT_S = 2 * 3600
CROWN_ROUNDS = 5


def openblas_core():
    """OpenBLAS takes CPUs it does not know for old ones."""
    flags = report.cpu_flags()
    if "avx512f" in flags:
        return {"OPENBLAS_CORETYPE": "SkylakeX"}
    return {"OPENBLAS_CORETYPE": "Haswell"} if "avx2" in flags and "fma" in flags else {}


def start_peers(programs, cpus):
    """The drivers that were built, by name. Their threads wait as they do by default: they spin for a while, then sleep."""
    threads = str(len(cpus))
    onednn = {"OMP_NUM_THREADS": threads, "GOMP_CPU_AFFINITY": " ".join(map(str, cpus))}
    openblas = {"OPENBLAS_NUM_THREADS": threads, **openblas_core()}
    peers = {}
    for name, program, env in [
        ("oneDNN", "heddle-bench-onednn", onednn),
        ("OpenBLAS", "heddle-bench-openblas", openblas),
    ]:
        path = os.path.join(programs, program)
        if os.path.exists(path):
            peers[name] = Side(name, [path], cpus, env)
    return peers


class Operators:
    """One run with kernels of `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = cpus = report.cores_for(threads)
        self.ours = Side("Heddle", [os.path.join(args.programs, "heddle-operator-bench"), "--cpus", ",".join(map(str, cpus))])
        self.peers = start_peers(args.programs, cpus)
        about = self.ours.ask("version")
        self.target = about["target"]
        self.records = records.Records(args.records or records.default_path(self.target, args.root))
        result.versions["Heddle"] = f"{args.commit}, {self.target}"
        for name, peer in self.peers.items():
            result.versions[name] = peer.ask("version")["version"]

    def close(self):
        for side in [self.ours, *self.peers.values()]:
            side.close()

    def measure(self, name):
        """The rows of an operator, one a peer, best peer first."""
        about = self.ours.ask("open", name=name)
        kernel = self.choose_kernel(name, about)
        contenders = {"Heddle": (self.ours, {"id": kernel["id"]})}
        implementations = {}
        for peer_name, peer in self.peers.items():
            if peer_name == "OpenBLAS" and "x" not in name:
                continue
            implementations[peer_name] = peer.ask("open", name=name)["implementation"]
            contenders[peer_name] = (peer, {})
        if not implementations:
            raise SideError("no peer is installed: run deploy/setup.sh --bench and build again")
        peak = self.ours.ask("peak")["gflops"]
        measured = turns.measure(contenders, self.args.rounds, self.cpus)
        times = measured.times
        peak = max(peak, self.ours.ask("peak")["gflops"])
        self.result.peaks.append(peak / self.threads)
        ours_ns = statistics.median(times["Heddle"])
        rows = []
        for peer_name, implementation in implementations.items():
            rows.append(
                {
                    "name": name,
                    "threads": self.threads,
                    "ours_ms": ours_ns * 1e-6,
                    "peer": peer_name,
                    "peer_ms": statistics.median(times[peer_name]) * 1e-6,
                    **turns.compare(times["Heddle"], times[peer_name]),
                    "peer_implementation": implementation,
                    "schedule": kernel["from"],
                    "winograd": "winograd" in kernel["trace"],
                    "flops": about["flops"],
                    "ours_gflops": about["flops"] / ours_ns,
                    "ours_percent_of_peak": 100 * about["flops"] / ours_ns / peak if peak else None,
                    "peak_gflops": peak,
                    "turns_repeated": measured.repeated,
                    "disturbed": measured.disturbed,
                    "ours_rounds_ms": [ns * 1e-6 for ns in times["Heddle"]],
                    "peer_rounds_ms": [ns * 1e-6 for ns in times[peer_name]],
                }
            )
        rows.sort(key=lambda row: row["peer_ms"])
        for row in rows:
            row["best_peer"] = row is rows[0]
        return rows

    def choose_kernel(self, name, about):
        """Loads the schedule to measure: {"id", "from"}. With trials, the finalists and the record meet in turns; the
        fastest of all is kept as the record, the fastest finalist is measured."""
        record = None if self.args.trials == 0 else self.records.find(about["key"], self.target)
        candidates = []  # (what, trace or None)
        tuned = None
        if self.args.trials:
            tuned = self.ours.ask("tune", TUNE_LIMIT_S, trials=self.args.trials, seed=self.args.seed)
            candidates += [(f"{self.args.trials} trials", finalist["trace"]) for finalist in tuned["finalists"]]
        if record:
            candidates.append(("record", record["trace"]))
        if not candidates and self.args.trials is None:
            print(f"  {name}: no record for {self.target}: its default schedule; --trials N tunes", flush=True)
        loaded = self.load(name, candidates) or [{**self.ours.ask("load"), "from": "default"}]
        if not tuned:
            return loaded[0]
        contenders = {i: (self.ours, {"id": kernel["id"]}) for i, kernel in enumerate(loaded)}
        times = turns.measure(contenders, CROWN_ROUNDS, self.cpus).times
        winner = min(times, key=lambda i: statistics.median(times[i]))
        if loaded[winner]["from"] not in ("default", "record"):
            self.records.put(
                {
                    "workload_key": about["key"],
                    "name": name,
                    "label": about["label"],
                    "target": self.target,
                    "cpu": report.cpu_model(),
                    "trace": loaded[winner]["trace"],
                    "median_ns": statistics.median(times[winner]),
                    "trials": tuned["measured"] + tuned["failed"],
                    "command": f"bench/run.sh operators --trials {self.args.trials} --seed {self.args.seed}",
                }
            )
        fresh = [i for i in times if loaded[i]["from"] != "record"] or [winner]
        return loaded[min(fresh, key=lambda i: statistics.median(times[i]))]

    def load(self, name, candidates):
        """Those of `candidates` that still build; a record of an older compiler may not."""
        loaded = []
        for what, trace in candidates:
            try:
                loaded.append({**self.ours.ask("load", trace=trace), "from": what})
            except SideError as error:
                print(f"  warning: {name}, {what}: {error}", flush=True)
        return loaded


def print_row(rows):
    best = rows[0]
    share = "" if best["ours_percent_of_peak"] is None else f"{best['ours_percent_of_peak']:6.1f}"
    line = f"{best['name']:<15}{best['threads']:>3}{best['ours_ms']:>10.4f}{best['ours_gflops']:>9.1f}{share:>7}"
    line += f"  {best['peer']:<9}{best['peer_ms']:>9.4f}{best['ratio']:>7.2f}  {best['ratio_low']:.2f}-{best['ratio_high']:.2f}"
    others = "".join(f"; {row['peer']} {row['peer_ms']:.4f} ms" for row in rows[1:])
    print(f"{line}  {best['schedule'] + best['winograd'] * ', winograd':<12}  {best['peer_implementation']}{others}", flush=True)


def run(args, result):
    known = [name for _, names in CLASSES for name in names]
    names = args.only or known
    for threads in args.threads:
        if report.cores_for(threads) is None:
            result.add_failure(f"{threads} threads", f"only {len(os.sched_getaffinity(0))} cores are allowed")
            continue
        try:
            bench = Operators(args, threads, result)
        except SideError as error:
            result.add_failure(f"{threads} threads", error)
            continue
        print(f"{'operator':<15}{'thr':>3}{'ours ms':>10}{'GFLOP/s':>9}{'% peak':>7}  {'best peer':<9}{'ms':>9}{'ratio':>7}  quartiles  schedule")
        try:
            for name in names:
                try:
                    rows = bench.measure(name)
                except SideError as error:
                    result.add_failure(f"{name}, {threads} threads", error)
                    continue
                result.add_rows(rows)
                print_row(rows)
        finally:
            bench.close()
        for title, class_names in CLASSES:
            result.print_mean(title, threads, class_names)
        result.print_versions()
