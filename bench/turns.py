"""Measuring several things in turns, so that what disturbs the machine disturbs all of them."""

import statistics


def measure(contenders, rounds):
    """Round times in ns, a list for each contender, taken A, B, C, A, B, C, ..

    `contenders` maps a label to (side, fields of its request "round"). A round's time is the median of its samples.
    Several contenders may share a side.
    """
    times = {label: [] for label in contenders}
    for _ in range(rounds):
        for label, (side, fields) in contenders.items():
            times[label].append(statistics.median(side.ask("round", **fields)["samples_ns"]))
    return times


def compare(ours, theirs):
    """The ratio of medians, theirs / ours, and the quartiles of the ratios round by round."""
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"ratio": statistics.median(theirs) / statistics.median(ours), "ratio_low": low, "ratio_high": high}
