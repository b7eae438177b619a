"""Measures several contenders in turns, so that a disturbance of the machine reaches all of them."""

import dataclasses
import os
import statistics
import time

# A turn is disturbed if other processes or virtual machines took more than this share of our cores, or if our threads waited
# for a core for this share of the time. It is repeated after a pause.
DISTURBED = 0.1
PAUSE_S = 1.0
most_repeated = 30  # disturbed turns of one measurement that are repeated; --patience
# The kernel counts the use of a core in ticks, and a turn lasts only about six of them: this many ticks of others are within
# the error. The waiting time of our own threads is known to the nanosecond.
TICKS = 2
# A ratio is settled when its quartiles are at most this share of it apart and the ratio of medians lies between them. While the
# ratio of the first contender to any other is not settled, more rounds are taken, up to MOST_ROUNDS times those asked for.
# Which side is ahead does not matter.
SPREAD = 0.1
MOST_ROUNDS = 3


@dataclasses.dataclass
class Measured:
    times: dict  # round times in ns, a list for each contender
    repeated: int = 0  # disturbed turns that were repeated
    disturbed: bool = False  # some kept turns are disturbed: the repeats were used up


def busy_ticks(cpus):
    """Ticks in which the cores were not idle, including stolen ticks."""
    names = {f"cpu{cpu}" for cpu in cpus}
    total = 0
    with open("/proc/stat") as file:
        for line in file:
            name, *ticks = line.split()
            if name in names:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
    return total


def siblings(cpus):
    """`cpus` and the CPUs that share a physical core with them, since work there slows ours down."""
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
    """The time of the round in ns, and whether other processes disturbed it."""
    watched = siblings(cpus)
    busy, (used, waited) = busy_ticks(watched), side.cpu_seconds()
    start = time.monotonic()
    samples = side.ask("round", **fields)["samples_ns"]
    seconds = (time.monotonic() - start) * len(cpus)
    used_now, waited_now = side.cpu_seconds()
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    others = busy_ticks(watched) - busy - (used_now - used) * ticks_per_second
    # Time in which our threads only waited for each other is not disturbed: OpenVINO hands each call to another thread.
    taken = min(waited_now - waited, seconds - (used_now - used))
    disturbed = others > max(TICKS, DISTURBED * seconds * ticks_per_second) or taken > DISTURBED * seconds
    return statistics.median(samples), disturbed


def is_settled(times):
    """Whether the ratios of the first contender to all others are settled."""
    first, *others = times.values()
    found = [compare(first, other) for other in others]
    return all(c["ratio_low"] <= c["ratio"] <= c["ratio_high"] <= c["ratio_low"] + SPREAD * c["ratio"] for c in found)


def measure(contenders, rounds, cpus, patience=None, settle=False):
    """Round times of all contenders, taken in the order A, B, C, A, B, C, .. on the cores `cpus`.

    `contenders` maps a label to (side, fields of its request "round"); several contenders may share a side. The time of a round
    is the median of its samples. With `settle`, more than `rounds` rounds are taken until the ratios are settled. `patience` is
    how many disturbed turns are repeated, at most `most_repeated`.
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
    """The ratio of the medians, theirs / ours, and the quartiles of the ratios of single rounds."""
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"ratio": statistics.median(theirs) / statistics.median(ours), "ratio_low": low, "ratio_high": high}
