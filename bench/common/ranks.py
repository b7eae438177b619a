"""Rank correlation."""

import statistics


def ranks(values):
    """The place of each value among all, from 0; equal values share the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def rank_correlation(first, second):
    """Spearman's coefficient; None for fewer than three pairs, or where one side is the same throughout."""
    if len(first) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return None
    return statistics.correlation(ranks(first), ranks(second))
