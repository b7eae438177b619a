"""Measuring several things in turns, so that what disturbs the machine disturbs all of them."""

import os
import statistics
import sys

# A turn in which other processes (or other virtual machines) took more than this share of our cores is repeated, at
# most so many times as turns were asked for.
DISTURBED = 0.1
# The kernel counts CPU time in ticks: less than this many say nothing.
TICKS = 4


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
    """Round times in ns, a list for each contender, taken A, B, C, A, B, C, .. on the cores `cpus`.

    `contenders` maps a label to (side, fields of its request "round"). A round's time is the median of its samples.
    Several contenders may share a side. Returns ({label: [ns]}, how many turns had to be repeated).
    """
    times = {label: [] for label in contenders}
    repeated = 0
    while len(next(iter(times.values()))) < rounds:
        turn = {label: _ask_round(side, fields, cpus) for label, (side, fields) in contenders.items()}
        if any(disturbed for _, disturbed in turn.values()) and repeated < rounds:
            repeated += 1
            continue
        for label, (ns, _) in turn.items():
            times[label].append(ns)
    if repeated == rounds:
        print("  warning: other processes kept using these cores; the next row cannot be trusted", file=sys.stderr)
    return times, repeated


def compare(ours, theirs):
    """The ratio of medians, theirs / ours, and the quartiles of the ratios round by round."""
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"ratio": statistics.median(theirs) / statistics.median(ours), "ratio_low": low, "ratio_high": high}
