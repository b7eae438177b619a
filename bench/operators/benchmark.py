"""Single operators against oneDNN (Debian's, and today's) and OpenBLAS on warm caches. Weights are known ahead of time, except in attention. Each side
takes its activations in the layout it prefers; the conversion is not timed."""

import os
import statistics

from bench.common import crown, records, report, turns
from bench.common.side import Side, SideError

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
ONEDNN_3 = "oneDNN 3"  # from PyPI; "oneDNN" is Debian's, an older one. Measured where its wheel installs


def openblas_core():
    """OpenBLAS treats a CPU that it does not know as an old one, so the kind of core is set here."""
    flags = report.cpu_flags()
    if "avx512f" in flags:
        return {"OPENBLAS_CORETYPE": "SkylakeX"}
    return {"OPENBLAS_CORETYPE": "Haswell"} if "avx2" in flags and "fma" in flags else {}


def onednn_wheel(root):
    """What today's oneDNN needs to run. It is built on SYCL, whose CPU device is a library of Intel's for any x86."""
    lib = os.path.join(root, "build", "bench", "venv-onednn", "lib")
    return {"OCL_ICD_FILENAMES": os.path.join(lib, "libintelocl.so"), "LD_LIBRARY_PATH": lib}


def start_peers(args, cpus, result):
    """The peers' drivers that were built, by name. Their threads wait as they do by default: they spin, then sleep."""
    threads = str(len(cpus))
    onednn = {"OMP_NUM_THREADS": threads, "GOMP_CPU_AFFINITY": " ".join(map(str, cpus))}
    openblas = {"OPENBLAS_NUM_THREADS": threads, **openblas_core()}
    peers = {}
    for name, program, env in [
        ("oneDNN", "heddle-bench-onednn", onednn),
        (ONEDNN_3, "heddle-bench-onednn3", {"DPCPP_CPU_NUM_CUS": threads, **onednn_wheel(args.root)}),
        ("OpenBLAS", "heddle-bench-openblas", openblas),
    ]:
        path = os.path.join(args.programs, program)
        if not os.path.exists(path):
            if name == ONEDNN_3:
                result.add_note(f"{name} is not installed, and not measured")
            continue
        peer = Side(name, [path], cpus, env)
        try:
            result.versions[name] = peer.ask("version")["version"]
            if name == ONEDNN_3:
                overhead_us = peer.ask("overhead")["ns"] * 1e-3
                result.versions[name] += f", built on SYCL: {overhead_us:.1f} us of each call, included in its times"
        except SideError as error:
            peer.close()
            if name != ONEDNN_3:
                raise
            result.add_note(f"{name} does not run here: {error}")
            continue
        peers[name] = peer
    return peers


class Operators:
    """One run with kernels of `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = cpus = report.cores_for(threads)
        argv = [os.path.join(args.programs, "heddle-operator-bench"), "--cpus", ",".join(map(str, cpus))]
        self.ours = Side("Heddle", argv + ["--no-winograd"] * args.direct)
        self.peers = start_peers(args, cpus, result)
        about = self.ours.ask("version")
        self.target = about["target"]
        self.device = records.device_key(self.target, warm=True)
        self.records = records.Records(args.records or records.default_path(self.device, args.root))
        result.versions["Heddle"] = f"{args.commit}, {self.target}"

    def close(self):
        for side in [self.ours, *self.peers.values()]:
            side.close()

    def measure(self, name):
        """The rows of an operator, one for each peer, fastest peer first."""
        about = self.ours.ask("open", name=name)
        kernel = self.choose_kernel(name, about)
        default = {**self.ours.ask("load"), "from": "default"}
        contenders = {"Heddle": (self.ours, {"id": kernel["id"]})}
        if default["trace"] != kernel["trace"]:
            contenders["default"] = (self.ours, {"id": default["id"]})
        implementations = {}
        for peer_name, peer in list(self.peers.items()):
            if peer_name == "OpenBLAS" and "x" not in name:
                continue
            try:
                opened = peer.ask("open", name=name, winograd=not self.args.direct)
            except SideError as error:
                if peer_name != ONEDNN_3:
                    raise
                self.result.add_note(f"{name}: no figure of {peer_name}: {error}")
                if peer.has_ended():
                    del self.peers[peer_name]
                continue
            implementations[peer_name] = opened["implementation"]
            contenders[peer_name] = (peer, {})
        if not implementations:
            raise SideError("no peer is installed: run deploy/setup.sh --bench and build again")
        peak = self.measure_peak()
        measured = turns.measure(contenders, self.args.rounds, self.cpus, settle=True)
        times = measured.times
        peak = max(peak, self.measure_peak())
        ours_ns = statistics.median(times["Heddle"])
        default_ns = statistics.median(times.get("default", times["Heddle"]))
        rows = []
        for peer_name, implementation in implementations.items():
            rows.append(
                {
                    "name": name,
                    "threads": self.threads,
                    "layout": about["layout"],
                    "direct": self.args.direct,
                    "ours_ms": ours_ns * 1e-6,
                    "default_ms": default_ns * 1e-6,
                    "default_ratio": default_ns / ours_ns,
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

    def measure_peak(self):
        """The peak of all cores of a kernel at once, in GFLOP/s. The peak of one core is recorded too: it shows whether two cores
        are physical ones."""
        self.result.add_peak(1, self.ours.ask("peak", cores=1)["gflops"])
        peak = self.ours.ask("peak")["gflops"]
        self.result.add_peak(self.threads, peak)
        return peak

    def find_record(self, about):
        """The record, or None. With --direct, a record of the plain target counts too if its trace has no Winograd."""
        for target in (self.target, self.target.replace(" -winograd=off", "")):
            record = self.records.find(about["key"], target, self.device)
            if record and not (self.args.direct and "winograd" in record["trace"]):
                return record
        return None

    def choose_kernel(self, name, about):
        """Loads the schedule to measure: {"id", "trace", "from"}.

        With --trials the search starts from the record. Its finalists, the record and the default schedule are measured in turns;
        the fastest is kept as the record and measured.
        """
        record = None if self.args.trials == 0 else self.find_record(about)
        candidates = []  # (where it is from, trace)
        if self.args.trials:
            known = [{field: record[field] for field in ("trace", "median_ns")}] if record else []
            tuned = self.ours.ask("tune", TUNE_LIMIT_S, trials=self.args.trials, seed=self.args.seed, known=known)
            candidates += [(f"{self.args.trials} trials", finalist["trace"]) for finalist in tuned["finalists"]]
        elif self.args.trials is None and not record:
            print(f"  {name}: no record for {self.target}: its default schedule; --trials N tunes", flush=True)
        if record:
            candidates.insert(0, ("record", record["trace"]))
        loaded = crown.load(self.ours, name, candidates)
        if not self.args.trials:
            return loaded[0]
        winner = crown.crown(self.ours, loaded, self.cpus)[0]
        command = f"bench/run.sh operators --trials {self.args.trials} --seed {self.args.seed}" + " --direct" * self.args.direct
        if winner["from"] != "record":
            labelled = {**about, "label": f"{name} {about['label']}"}
            self.records.put(records.make(labelled, self.target, self.device, winner["trace"], winner["samples_ns"], command))
        return winner


def print_row(rows):
    best = rows[0]
    share = "" if best["ours_percent_of_peak"] is None else f"{best['ours_percent_of_peak']:6.1f}"
    line = f"{best['name']:<15}{best['threads']:>3}{best['ours_ms']:>10.4f}{best['ours_gflops']:>9.1f}{share:>7}"
    line += f"{best['default_ratio']:>9.2f}  {best['peer']:<9}{best['peer_ms']:>9.4f}{best['ratio']:>7.2f}  {best['ratio_low']:.2f}-{best['ratio_high']:.2f}"
    others = "".join(f"; {row['peer']} {row['peer_ms']:.4f} ms" for row in rows[1:])
    print(f"{line}  {best['schedule'] + best['winograd'] * ', winograd':<12}  {best['layout']:<24}  {best['peer_implementation']}{others}", flush=True)


def run(args, result):
    known = [name for _, names in CLASSES for name in names]
    names = args.only or known
    for threads in report.possible_threads(args.threads, result):
        try:
            bench = Operators(args, threads, result)
        except SideError as error:
            result.add_failure(f"{threads} threads", error)
            continue
        print(f"{'operator':<15}{'thr':>3}{'ours ms':>10}{'GFLOP/s':>9}{'% peak':>7}{'default':>9}  {'best peer':<9}{'ms':>9}{'ratio':>7}  quartiles  schedule      layout (each side has its own; conversion is not timed)")
        try:
            for name in names:
                try:
                    rows = bench.measure(name)
                except SideError as error:
                    result.add_failure(f"{name}, {threads} threads", error)
                    bench.close()  # a side may have died
                    bench = Operators(args, threads, result)
                    continue
                result.add_rows(rows)
                print_row(rows)
        finally:
            bench.close()
        for title, class_names in CLASSES:
            result.print_mean(title, threads, class_names)
        print("default: time of the default schedule / ours")
        result.print_versions()
