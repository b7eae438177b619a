"""Plans chosen by measured kernels: what they gain over the estimated plan, and how well whole models are predicted.

Every kernel of every contender is measured with its default schedule. Each contender is then compiled and timed in turns with
the others, as a whole module: half of the rounds in one process, half in another, because a process gives a module its addresses
once, and what these cost is no property of the graph.
"""

import itertools
import json
import os
import statistics
import sys

from bench.common import report, turns
from bench.common.ranks import rank_correlation
from bench.common.side import SideError
from bench.common.tool import run_tool
from bench.models import peers
from bench.models.benchmark import zoo
from bench.models.peers import WINOGRAD_TOLERANCE, largest_error

PROCESSES = 2  # that time the modules, one after the other
MISSED = 5  # kernels that are printed for each model


class Plans:
    """One run with `threads` threads."""

    def __init__(self, args, threads, result):
        self.args = args
        self.result = result
        self.threads = threads
        self.cpus = report.cores_for(threads)
        self.work = os.path.join(args.root, "build", "bench", "plans")
        os.makedirs(self.work, exist_ok=True)
        # What a worker measures of this machine. A job chooses its plan by that, too.
        self.machine = os.path.join(self.work, "machine.txt")
        with open(self.machine, "w") as file:
            file.write(run_tool([os.path.join(args.programs, "heddle-worker"), "--measure-machine"]))

    def onnx(self, name):
        """The file of a model, which is one of the zoo or a path."""
        if name.endswith(".onnx"):
            return name
        path = os.path.join(self.work, f"{name}.onnx")
        run_tool([os.path.join(self.args.programs, "heddle"), "zoo", name, "-o", path, "--seed", "1"])
        return path

    def measure(self, name):
        onnx = self.onnx(name)
        stem = os.path.join(self.work, os.path.basename(onnx)[: -len(".onnx")])
        folder = f"{stem}-{self.threads}"
        os.makedirs(folder, exist_ok=True)
        tool = os.path.join(self.args.programs, "heddle-plan-bench")
        cpus = ",".join(map(str, self.cpus))
        argv = [tool, onnx, "-o", folder, "--kernels", "--machine", self.machine, "--threads", str(self.threads), "--cpus", cpus]
        chosen = json.loads(run_tool(argv))
        for failure in chosen["failed"]:
            self.result.add_note(f"{name}: not measured: {failure}")
        for disturbed in chosen["disturbed"]:
            self.result.add_note(f"{name}: disturbed, so its time may be wrong: {disturbed}")
        self.result.versions["Heddle"] = f"{self.args.commit}, {chosen['target']}"
        halves = [self.time(onnx, stem, chosen, -(-self.args.rounds // PROCESSES)) for _ in range(PROCESSES)]
        return self.rows(name, chosen, halves)

    def time(self, onnx, stem, chosen, rounds):
        """The contenders and ONNX Runtime in turns, in processes of their own. Sets the errors of the contenders."""
        import numpy as np  # the tests import this file without it

        ours, peer = (peers.start_side(self.args, label, label, self.threads, self.cpus) for label in ("heddle", "onnxruntime"))
        try:
            files = {"inputs": f"{stem}-inputs.npz"}
            peer.ask("inputs", model=onnx, seed=0, **files)
            expected = f"{stem}-expected.npz"
            contenders = {"ONNX Runtime": (peer, {"id": peer.ask("open", model=onnx, outputs=expected, **files)["id"]})}
            self.result.versions["ONNX Runtime"] = peer.ask("version")["version"]
            for contender in chosen["contenders"]:
                found = f"{stem}-found.npz"
                opened = ours.ask("open", model=contender["path"], outputs=found, **files)
                error = largest_error(dict(np.load(found)), dict(np.load(expected)))
                if error > WINOGRAD_TOLERANCE:
                    raise SideError(f"{contender['name']}: outputs differ from ONNX Runtime's by {error:.1e}; {WINOGRAD_TOLERANCE:.0e} is allowed")
                contender["error"] = error
                contenders[contender["name"]] = (ours, {"id": opened["id"]})
            return turns.measure(contenders, rounds, self.cpus)
        finally:
            ours.close()
            peer.close()

    def rows(self, name, chosen, halves):
        """The row of a model. `halves`: turns.Measured of each process."""
        times = {label: [ns for half in halves for ns in half.times[label]] for label in halves[0].times}
        found = [c for c in chosen["contenders"] if c["name"] in times]
        best = chosen["contenders"][chosen["chosen"]]
        first = chosen["contenders"][0]
        by_records = None if chosen["layouts"] is None else chosen["contenders"][chosen["layouts"]]
        gain = turns.compare(times[best["name"]], times[first["name"]])
        medians = {label: statistics.median(of_label) for label, of_label in times.items()}
        predicted = [c["predicted_ns"] for c in found]
        real = [medians[c["name"]] for c in found]
        return [
            {
                "name": name,
                "threads": self.threads,
                "disturbed": any(half.disturbed for half in halves),
                "turns_repeated": sum(half.repeated for half in halves),
                "chosen": best["name"],
                "gain": gain,  # estimated / chosen
                # The layouts alone: those by estimates / those by the costs of measured kernels, and what the latter are called.
                # None: the model has no layouts to choose.
                "layouts": by_records
                and {"contender": by_records["name"], **turns.compare(times[by_records["name"]], times[first["name"]])},
                "peer": turns.compare(times[best["name"]], times["ONNX Runtime"]),
                "peer_ms": medians["ONNX Runtime"] * 1e-6,
                "rank_correlation": rank_correlation(predicted, real),
                # What the measurement agrees with itself: the graphs in one process against those in another. Where this is low, the
                # graphs take the same time, and no prediction could rank them.
                "repeat_correlation": rank_correlation(*([statistics.median(half.times[c["name"]]) for c in found] for half in halves)),
                "fastest_ratio": medians[best["name"]] / min(real),
                "held_out_median": chosen["held_out_median"],
                "held_out_rms": chosen["held_out_rms"],
                "kernels": chosen["kernels"],
                "contenders": [
                    {
                        **c,
                        "measured_ms": medians[c["name"]] * 1e-6,
                        "rounds_ms": [ns * 1e-6 for ns in times[c["name"]]],
                        "predicted_over_measured": c["predicted_ns"] / medians[c["name"]],
                    }
                    for c in found
                ],
            }
        ]


HEAD = f"{'model':<16}{'thr':>3}  {'contender':<32}{'calls':>6}{'cuts':>5}{'predicted':>11}{'measured ms':>12}{'pred./meas.':>12}"


def print_row(row):
    for i, c in enumerate(row["contenders"]):
        lead = f"{row['name']:<16}{row['threads']:>3}" if i == 0 else " " * 19
        mark = "*" if c["name"] == row["chosen"] else " "
        print(
            f"{lead} {mark}{c['name']:<32}{c['calls']:>6}{c['cuts']:>5}{c['predicted_ns'] * 1e-6:>11.3f}{c['measured_ms']:>12.3f}"
            f"{c['predicted_over_measured']:>12.2f}",
            flush=True,
        )
    gain, peer = row["gain"], row["peer"]
    rank, repeat = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("rank_correlation", "repeat_correlation"))
    print(
        f"{'':<20}chosen: {gain['ratio']:.3f} of estimated ({gain['ratio_low']:.3f}-{gain['ratio_high']:.3f}), {peer['ratio']:.2f} of ONNX Runtime;"
        f" chosen / fastest {row['fastest_ratio']:.3f}; rank correlation {rank}, of the measurement with itself {repeat};"
        f" held-out error of {row['kernels']} kernels: median {100 * row['held_out_median']:.0f} %",
        flush=True,
    )
    if row["layouts"]:
        print(f"{'':<20}layouts by records: {layouts_text(row)}", flush=True)
    for line in missed(row):
        print(f"{'':<20}{line}", flush=True)


def missed(row):
    """What measured kernels of the chosen plan take in its module against what is predicted of them, as lines: all of them, and those
    that are predicted worst."""
    kernels = next(c for c in row["contenders"] if c["name"] == row["chosen"]).get("kernels", [])
    if not kernels:
        return []
    alone, predicted, module = (sum(k[name] for k in kernels) * 1e-6 for name in ("alone_ns", "predicted_ns", "module_ns"))
    lines = [f"its measured kernels: {alone:.3f} ms alone, {predicted:.3f} predicted, {module:.3f} one by one in the module; predicted worst:"]
    worst = sorted(kernels, key=lambda k: -abs(k["predicted_ns"] - k["module_ns"]))[:MISSED]
    return lines + [f"  {k['predicted_ns'] * 1e-6:.3f} predicted, {k['module_ns'] * 1e-6:.3f} in the module: {k['uses']} x {k['label']}" for k in worst]


def has_own_layouts(row):
    """Whether the records choose other layouts than the estimates."""
    return row["layouts"] is not None and row["layouts"]["contender"] != row["contenders"][0]["name"]


def layouts_text(row):
    if not has_own_layouts(row):
        return "those by estimates"
    gain = row["layouts"]
    return f"{gain['ratio']:.3f} of those by estimates ({gain['ratio_low']:.3f}-{gain['ratio_high']:.3f})"


def told_apart(row):
    """Pairs of graphs of a model, (ratio of predictions, ratio of measured times), of which the quartiles of the rounds say that one is faster."""
    pairs = []
    for one, other in itertools.combinations(row["contenders"], 2):
        ratio = turns.compare(one["rounds_ms"], other["rounds_ms"])
        if ratio["ratio_low"] > 1 or ratio["ratio_high"] < 1:
            pairs.append((other["predicted_ns"] / one["predicted_ns"], ratio["ratio"]))
    return pairs


def summary(rows):
    """What all models together say, as lines."""
    graphs = [c for row in rows for c in row["contenders"]]
    errors = [abs(c["predicted_over_measured"] - 1) for c in graphs]

    def mean(name):
        found = [row[name] for row in rows if row[name] is not None]
        return f"{statistics.mean(found):.2f}" if found else "-"

    # Against the estimated graph of the same model, so that the sizes of models say nothing.
    gains = [
        (row["contenders"][0]["predicted_ns"] / c["predicted_ns"], row["contenders"][0]["measured_ms"] / c["measured_ms"])
        for row in rows
        for c in row["contenders"][1:]
    ]
    pooled = rank_correlation(*zip(*gains)) if gains else None
    pairs = [pair for row in rows for pair in told_apart(row)]
    right = sum((predicted > 1) == (real > 1) for predicted, real in pairs)
    return [
        f"{len(rows)} models, {len(errors)} graphs: predicted within {100 * statistics.median(errors):.0f} % in the median; estimated / chosen"
        f" {statistics.geometric_mean(row['gain']['ratio'] for row in rows):.3f} in the mean, least {min(row['gain']['ratio'] for row in rows):.3f}",
        f"rank correlation of predicted and measured times: {mean('rank_correlation')} within a model in the mean, where that of the measurement with itself is"
        f" {mean('repeat_correlation')}; {'-' if pooled is None else f'{pooled:.2f}'} of the gains over the estimated graph, of all models together",
        f"{right} of the {len(pairs)} pairs of graphs of a model that differ by more than their rounds do are in the right order",
    ]


def run(args, result):
    names = args.only or zoo(args.programs)
    for threads in report.possible_threads(args.threads, result):
        try:
            bench = Plans(args, threads, result)
        except SideError as error:
            result.add_failure(f"{threads} threads", error)
            continue
        print(HEAD, flush=True)
        for name in names:
            try:
                rows = bench.measure(name)
            except (SideError, OSError) as error:
                result.add_failure(f"{name}, {threads} threads", error)
                continue
            result.add_rows(rows)
            print_row(rows[0])
        rows = [row for row in result.rows if row["threads"] == threads]
        if rows:
            for line in summary(rows):
                print(line)
            others = [row["layouts"]["ratio"] for row in rows if has_own_layouts(row)]
            least = f", least {min(others):.3f}" if others else ""
            print(f"records choose other layouts than the estimates for {len(others)} of {len(rows)} models{least}")
        result.print_versions()
