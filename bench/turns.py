"""Measuring several things in turns, so that what disturbs the machine disturbs all of them."""

import dataclasses
import os
import statistics
import time

# A turn in which other processes (or other virtual machines) took more than this share of our cores, or our threads waited
# that share of the time for a core, is repeated after a pause, so many times of one measurement.
most_repeated = 30
DISTURBED = 0.1
PAUSE_S = 1.0
# The kernel counts who used a core in ticks, and a turn is only some six of them: this many say nothing. What our threads
# waited is known to the nanosecond.
TICKS = 2
# Rounds go on while a ratio of the first contender and another is not settled: while its quartiles are further apart than
# that share of it, or the ratio of medians is not between them; so many times the rounds asked for at most. Which side is
# ahead has no part in it.
SPREAD = 0.1
MOST_ROUNDS = 3


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


def _siblings(cpus):
    """`cpus` and those that share a physical core with them: what runs there slows ours down too."""
    shared = set(cpus)
    for cpu in cpus:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
                for part in file.read().strip().split(","):
                    first, _, last = part.partition("-")
                    shared.update(range(int(first), int(last or first) + 1))
        except (OSError, ValueError):
            continue
    return shared


def _ask_round(side, fields, cpus):
    """The round's time in ns, and whether others disturbed it."""
    watched = _siblings(cpus)
    busy, (used, waited) = _busy_ticks(watched), side.cpu_seconds()
    start = time.monotonic()
    samples = side.ask("round", **fields)["samples_ns"]
    seconds = (time.monotonic() - start) * len(cpus)
    used_now, waited_now = side.cpu_seconds()
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    others = _busy_ticks(watched) - busy - (used_now - used) * ticks_per_second
    # While our threads wait for one another (OpenVINO hands a call over on one core), nobody else has the core.
    taken = min(waited_now - waited, seconds - (used_now - used))
    disturbed = others > max(TICKS, DISTURBED * seconds * ticks_per_second) or taken > DISTURBED * seconds
    return statistics.median(samples), disturbed


def is_settled(times):
    """Whether more rounds would say little more about how the first contender compares with each of the others."""
    first, *others = times.values()
    found = [compare(first, other) for other in others]
    return all(c["ratio_low"] <= c["ratio"] <= c["ratio_high"] <= c["ratio_low"] + SPREAD * c["ratio"] for c in found)


def measure(contenders, rounds, cpus, patience=None, settle=False):
    """Round times of all contenders, taken A, B, C, A, B, C, .. on the cores `cpus`: `rounds`, and more until they are settled
    if `settle` says so.

    `contenders` maps a label to (side, fields of its request "round"). A round's time is the median of its samples.
    Several contenders may share a side. `patience`: how many disturbed turns are repeated, at most `most_repeated`.
    """
    limit = most_repeated if patience is None else min(patience, most_repeated)
    result = Measured({label: [] for label in contenders})

    def is_enough():
        taken = len(next(iter(result.times.values())))
        return taken >= rounds and (not settle or taken >= MOST_ROUNDS * rounds or is_settled(result.times))

    while not is_enough():
        turn = {label: _ask_round(side, fields, cpus) for label, (side, fields) in contenders.items()}
        if any(disturbed for _, disturbed in turn.values()):
            if result.repeated < limit:
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
