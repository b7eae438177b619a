"""How good the schedules are that a set-up of `bench/run.sh scheduling` picked, compared with those of dedicated machines.

Both were timed again, in turns. There are two figures: by model (the geometric mean over the models of latency with the dedicated
picks / with the set-up's, which one heavy task may dominate), and by task (the geometric mean over all tasks). Each has a bootstrap
interval of DRAWS draws with replacement, of tasks and of the turns within each task.
"""

import random
import statistics

DRAWS = 1000
INTERVAL = 0.95


def _ratios(models, keys, theirs, ours):
    """The ratios theirs / ours, by model and by task."""
    latencies = [(sum(theirs[key] * uses for key, uses in tasks), sum(ours[key] * uses for key, uses in tasks)) for tasks in models]
    mean = statistics.geometric_mean
    return mean(a / b for a, b in latencies), mean(theirs[key] / ours[key] for key in keys)


def _medians(times, turns):
    return {key: statistics.median([times[key][turn] for turn in of]) for key, of in turns.items()}


def compare(setup, dedicated, turns_of, seed=0):
    """The quality of `setup`. `turns_of` is {set-up: {task: times in ns}}, with the turns of one task in common. Tasks without a
    valid record in both set-ups are left out. None if no task is left."""
    theirs, ours = turns_of[dedicated.name], turns_of[setup.name]
    keys = sorted(theirs.keys() & ours.keys())
    if not keys:
        return None
    models = []  # each a list of (key, uses)
    for job in dedicated.jobs:
        tasks = [((job["spec"]["target"], task["info"]["key"]), task["info"].get("weight", 1)) for task in job["tasks"]]
        models.append([(key, uses) for key, uses in tasks if key in theirs and key in ours])
    models = [tasks for tasks in models if tasks]
    every = {key: range(len(theirs[key])) for key in keys}
    figures = _ratios(models, keys, _medians(theirs, every), _medians(ours, every))
    chance = random.Random(seed)
    draws = []
    for _ in range(DRAWS):
        turns = {key: chance.choices(of, k=len(of)) for key, of in every.items()}
        drawn_models = [chance.choices(tasks, k=len(tasks)) for tasks in models]
        drawn_keys = chance.choices(keys, k=len(keys))
        draws.append(_ratios(drawn_models, drawn_keys, _medians(theirs, turns), _medians(ours, turns)))
    outside = int(DRAWS * (1 - INTERVAL) / 2)
    by_model, by_task = (
        {"ratio": figure, "low": sorted(of)[outside], "high": sorted(of)[-1 - outside]} for figure, of in zip(figures, zip(*draws))
    )
    return {
        "by_model": by_model,
        "by_task": by_task,
        "tasks": len(keys),
        "other_picks": sum(setup.records[key]["trace"] != dedicated.records[key]["trace"] for key in keys),
        "same_candidates": sum(setup.candidates.get(key) == dedicated.candidates.get(key) for key in keys),
    }
