"""Measures the best few candidates again, in turns, to choose the fastest. Times measured at different moments do not compare
on a machine whose speed changes."""

import statistics
import sys

from bench.common import turns
from bench.common.side import SideError

ROUNDS = 5
PATIENCE = 5  # repeats of a disturbed turn; a run may choose a hundred times


def load(side, name, candidates):
    """Loads `candidates`, pairs of (where the trace is from, trace), and the default schedule: {"id", "trace", "from"} each.

    Candidates that no longer build, such as records of an older compiler, are skipped with a warning. The default schedule is
    always among the results: its trial may have met a slow moment.
    """
    loaded = []
    for what, trace in candidates:
        if any(trace == other["trace"] for other in loaded):
            continue
        try:
            loaded.append({**side.ask("load", trace=trace), "from": what})
        except SideError as error:
            print(f"  warning: {name}, {what}: {error}", file=sys.stderr, flush=True)
    default = side.ask("load")
    if all(default["trace"] != other["trace"] for other in loaded):
        loaded.append({**default, "from": "default"})
    return loaded


def crown(side, loaded, cpus):
    """`loaded`, fastest first, each with the times of its rounds as "samples_ns".

    The order is by the median, over the rounds, of the ratio to the last contender's time in the same round. Plain medians would
    prefer the contender that had the quiet moments.
    """
    contenders = {i: (side, {"id": loaded[i]["id"]}) for i in reversed(range(len(loaded)))}
    times = turns.measure(contenders, ROUNDS, cpus, PATIENCE, settle=True).times if loaded else {}
    measured = [{**kernel, "samples_ns": times[i]} for i, kernel in enumerate(loaded)]

    def slowness(kernel):
        return statistics.median(ours / last for ours, last in zip(kernel["samples_ns"], measured[-1]["samples_ns"]))

    return sorted(measured, key=slowness)
