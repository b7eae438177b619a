"""The best few candidates measured again in turns, before one is crowned: what was measured at another time says little on
a machine whose speed changes."""

import statistics
import sys

import turns
from side import SideError

ROUNDS = 5
PATIENCE = 5  # there may be a hundred of these in a run


def load(side, name, candidates):
    """The default schedule, and those of `candidates`, pairs of what a trace is and the trace, that still build: {"id", "trace",
    "from"}. A record of an older compiler may not. The default is always among them: one slow moment when it had its trial must
    not give it away."""
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
    """`loaded`, each with the times of its rounds as "samples_ns", fastest first: by the median, over the rounds, of its time
    beside that of the last one, the same moment's. Medians of times would say which had the quiet moments."""
    contenders = {i: (side, {"id": loaded[i]["id"]}) for i in reversed(range(len(loaded)))}
    times = turns.measure(contenders, ROUNDS, cpus, PATIENCE, settle=True).times if loaded else {}
    measured = [{**kernel, "samples_ns": times[i]} for i, kernel in enumerate(loaded)]

    def slowness(kernel):
        return statistics.median(ours / last for ours, last in zip(kernel["samples_ns"], measured[-1]["samples_ns"]))

    return sorted(measured, key=slowness)
