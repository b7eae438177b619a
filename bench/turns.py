"""Measuring several things in turns, so that what disturbs the machine disturbs all of them."""

import dataclasses
import os
import statistics
import time

# A turn in which other processes (or other virtual machines) took more than this share of our cores is repeated after a
# pause, so many times.
DISTURBED = 0.1
PAUSE_S = 1.0
MOST_REPEATED = 30
# The kernel counts CPU time in ticks: less than this many say nothing.
TICKS = 4


@dataclasses.dataclass
class Measured:
    times: dict  # round times in ns, a list for each contender
    repeated: int = 0  # turns that were disturbed and taken again
    disturbed: bool = False  # some turns still were when there had been enough of that


def _busy_ticks(cpus):
    """Ticks in which the cores were not idle, stolen ones included."""
    names = {f"cpu{cpu}" for cpu in cpus}
    total = 0
    with open("/proc/stat") as file:
        for line in file:
            name, *ticks = line.split()
            if name in names:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
    return total


def _ask_round(side, fields, cpus):
    """The round's time in ns, and whether others disturbed it."""
    busy, own = _busy_ticks(cpus), side.cpu_seconds()
    samples = side.ask("round", **fields)["samples_ns"]
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    own_ticks = (side.cpu_seconds() - own) * ticks_per_second
    others = _busy_ticks(cpus) - busy - own_ticks
    return statistics.median(samples), others > max(TICKS, DISTURBED * own_ticks)


def measure(contenders, rounds, cpus):
    """Round times of all contenders, taken A, B, C, A, B, C, .. on the cores `cpus`.

    `contenders` maps a label to (side, fields of its request "round"). A round's time is the median of its samples.
    Several contenders may share a side.
    """
    result = Measured({label: [] for label in contenders})
    while len(next(iter(result.times.values()))) < rounds:
        turn = {label: _ask_round(side, fields, cpus) for label, (side, fields) in contenders.items()}
        if any(disturbed for _, disturbed in turn.values()):
            if result.repeated < MOST_REPEATED:
                result.repeated += 1
                time.sleep(PAUSE_S)
                continue
            result.disturbed = True
        for label, (ns, _) in turn.items():
            result.times[label].append(ns)
    return result


def compare(ours, theirs):
    """The ratio of medians, theirs / ours, and the quartiles of the ratios round by round."""
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"ratio": statistics.median(theirs) / statistics.median(ours), "ratio_low": low, "ratio_high": high}
