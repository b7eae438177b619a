"""Rank correlation."""


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return {place: rank for rank, place in enumerate(order)}


def rank_correlation(first, second):
    """Spearman's coefficient; None for fewer than three pairs."""
    n = len(first)
    if n < 3:
        return None
    a, b = ranks(first), ranks(second)
    return 1 - 6 * sum((a[i] - b[i]) ** 2 for i in range(n)) / (n * (n * n - 1))
