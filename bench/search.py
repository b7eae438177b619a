"""Search methods against each other on replay tables (bench/replay_table.h): candidates that were measured once, so that a
comparison takes seconds and always gives the same result. --collect makes the tables, --ablate judges models alone.

Speeds are shares of the best one a table knows. A curve is the best share so far after each trial, the mean over seeds.
"""

import glob
import json
import os
import statistics
import subprocess
import sys

import operators
import records
import report
from side import Side, SideError

OURS, PUBLISHED = "annealing", "published"
PLAIN = ("random", "genetic")  # without a model; also run with twice the trials
METHODS = (OURS, "evolutionary", "regression", "ensemble-ei", "ensemble-ucb", PUBLISHED, *PLAIN)
POINTS = (50, 100, 200, 400, 800)
GOOD = 0.95
DEFAULT_TRIALS, DEFAULT_SEEDS, DEFAULT_CANDIDATES = 800, 5, 3200  # a table has twice as many as the longest run has trials


def mean_curve(runs, trials):
    """The best share after each of `trials` trials; a run whose table ended keeps what it had."""
    whole = [run["best"] + run["best"][-1:] * (trials - len(run["best"])) for run in runs]
    return [statistics.fmean(curve[t] for curve in whole) for t in range(trials)]


def trials_to(curve, share):
    """Trials until the curve reaches the share; None if it never does."""
    return next((t + 1 for t, value in enumerate(curve) if value >= share), None)


def make_row(name, method, runs, trials):
    plain = method in PLAIN
    limit = 2 * trials if plain else trials  # of a run; what does not get there counts as so many
    long = mean_curve(runs, limit)
    curve = long[:trials]
    row = {
        "name": name,
        "method": method,
        "threads": 1,
        "disturbed": False,
        "seeds": len(runs),
        "area": statistics.fmean(curve),
        "areas": [statistics.fmean(mean_curve([run], trials)) for run in runs],
        "bests_at": {str(n): [mean_curve([run], limit)[n - 1] for run in runs] for n in POINTS if n <= trials},
        "best_at": {str(n): curve[n - 1] for n in POINTS if n <= trials},
        "trials_to_95": [trials_to(run["best"], GOOD) or limit for run in runs],
        "propose_s": statistics.fmean(run["propose_s"] for run in runs),
        "update_s": statistics.fmean(run["update_s"] for run in runs),
        "curve": [round(value, 4) for value in curve],
        "low": [round(min((run["best"] + run["best"][-1:] * trials)[t] for run in runs), 4) for t in range(trials)],
        "high": [round(max((run["best"] + run["best"][-1:] * trials)[t] for run in runs), 4) for t in range(trials)],
    }
    if plain:
        row["areas_twice"] = [statistics.fmean(mean_curve([run], limit)[1::2]) for run in runs]
        row["area_twice"] = statistics.fmean(row["areas_twice"])
    return row


def margin(ours, theirs):
    """How far the mean over the seeds of ours is above theirs, beyond the standard error of the difference."""
    error = sum(statistics.variance(values) / len(values) for values in (ours, theirs) if len(values) > 1) ** 0.5
    return statistics.fmean(ours) - statistics.fmean(theirs) - error


def print_table(rows, trials):
    columns = [n for n in POINTS if n <= trials]
    print(f"{'operator':<15}{'method':<15}{'area':>7}" + "".join(f"{n:>7}" for n in columns) + f"{'to 95 %':>9}{'propose s':>11}{'update s':>10}")
    last = None
    for row in rows:
        name, last = ("" if row["name"] == last else row["name"]), row["name"]
        at = "".join(f"{100 * row['best_at'][str(n)]:>7.1f}" for n in columns)
        to = statistics.median(row["trials_to_95"])
        print(f"{name:<15}{row['method']:<15}{100 * row['area']:>7.1f}{at}{to:>9.0f}{row['propose_s']:>11.2f}{row['update_s']:>10.2f}")


def print_summary(rows, trials):
    """What the figures say, in words."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    of = {(row["name"], row["method"]): row for row in rows}
    # Where the default schedule is that good, trials to get there say nothing of a method.
    easy = [name for name in names if any(row["name"] == name and row["curve"][0] >= GOOD for row in rows)]
    if easy:
        print(f"\nnot in the trials to 95 %, as the default schedule is there: {', '.join(easy)}")
    print(f"\n{'all operators':<15}{'method':<15}{'area':>7}{'geometric mean of trials to 95 %':>36}")
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [of[name, method] for name in names if (name, method) in of]
        to = [statistics.fmean(row["trials_to_95"]) for row in own if row["name"] not in easy]
        mean = f"{statistics.geometric_mean(to):.0f}" if to else "-"
        print(f"{'':<15}{method:<15}{100 * statistics.fmean(row['area'] for row in own):>7.1f}{mean:>36}")
    ours = {name: of[name, OURS] for name in names if (name, OURS) in of}
    if not ours:
        return
    print()
    for method in PLAIN:
        for field, what in (("areas", method), ("areas_twice", f"{method} with twice the trials")):
            both = [name for name in ours if (name, method) in of]
            if both:
                won = sum(margin(ours[name]["areas"], of[name, method][field]) > 0 for name in both)
                print(f"{OURS} has a larger area than {what}, beyond the seeds' standard error, on {won} of {len(both)} operators")
    both = [name for name in ours if (name, "random") in of]
    if both and trials >= 800:
        won = sum(margin(ours[name]["bests_at"]["200"], of[name, "random"]["bests_at"]["800"]) >= 0 for name in both)
        print(f"200 trials of {OURS} find more than 800 of random, beyond the seeds' standard error, on {won} of {len(both)}")
    both = [name for name in ours if (name, PUBLISHED) in of and name not in easy]
    if both:
        ratio = statistics.geometric_mean(
            statistics.fmean(ours[name]["trials_to_95"]) / statistics.fmean(of[name, PUBLISHED]["trials_to_95"]) for name in both
        )
        print(f"to 95 % of the best known {OURS} needs {ratio:.2f} of the trials of the published method (geometric mean)")


COLOURS = ("#0072b2", "#009e73", "#56b4e9", "#cc79a7", "#e69f00", "#d55e00", "#999999", "#000000")


def plot(rows, path):
    """A panel for each operator: mean curves, bands from the worst to the best seed."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    width, height, across = 300, 200, 4
    parts = []
    for k, method in enumerate(methods):
        colour = COLOURS[k % len(COLOURS)]
        parts.append(f'<rect x="{20 + 130 * k}" y="10" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{36 + 130 * k}" y="20" font-size="12">{method}</text>')
    for n, name in enumerate(names):
        left, top = 40 + n % across * (width + 40), 50 + n // across * (height + 50)
        own = [row for row in rows if row["name"] == name]
        trials = len(own[0]["curve"])
        floor = min(row["curve"][min(15, trials - 1)] for row in own)

        def at(t, value):
            x = left + width * t / trials
            return f"{x:.1f},{top + height * (1 - max(value - floor, 0) / max(1 - floor, 1e-9)):.1f}"

        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#cccccc"/>')
        parts.append(f'<text x="{left}" y="{top - 6}" font-size="13">{name}: {100 * floor:.0f} to 100 % of the best known, {trials} trials</text>')
        steps = range(0, trials, max(1, trials // 200))
        for row in own:
            colour = COLOURS[methods.index(row["method"]) % len(COLOURS)]
            band = [at(t, row["high"][t]) for t in steps] + [at(t, row["low"][t]) for t in reversed(steps)]
            parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.08"/>')
            line = " ".join(at(t, row["curve"][t]) for t in steps)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    rows_of_panels = (len(names) + across - 1) // across
    size = f'width="{60 + across * (width + 40)}" height="{60 + rows_of_panels * (height + 50)}"'
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">\n')
        file.write('<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def run_lines(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SideError(f"{os.path.basename(argv[0])} {argv[1]} failed")
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_tables(args):
    """The tables of a device, by operator in the order of the operator table."""
    directories = [args.tables] if args.tables else sorted(glob.glob(os.path.join(args.root, "bench", "replay", "*", "")))
    if not directories:
        raise SideError("there are no replay tables: bench/run.sh search --collect makes them")
    found = {os.path.basename(path)[: -len(".jsonl.gz")]: path for path in glob.glob(os.path.join(directories[0], "*.jsonl.gz"))}
    order = [name for _, names in operators.CLASSES for name in names]
    names = args.only or sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
    missing = [name for name in names if name not in found]
    if missing or not names:
        raise SideError(f"no table of {', '.join(missing) or 'any operator'} in {directories[0]}: bench/run.sh search --collect makes it")
    return [found[name] for name in names]


def collect(args, program):
    for threads in args.threads[:1]:
        cpus = report.cores_for(threads)
        if cpus is None:
            raise SideError(f"only {len(os.sched_getaffinity(0))} cores are allowed")
        ours = Side("Heddle", [os.path.join(args.programs, "heddle-operator-bench"), "--cpus", ",".join(map(str, cpus))])
        key = records.device_key(ours.ask("version")["target"], warm=True)
        ours.close()
        tables = args.tables or os.path.join(args.root, "bench", "replay", key if threads == 1 else f"{key}-{threads}")
        names = args.only or [name for _, names in operators.CLASSES for name in names]
        argv = [program, "collect", *names, "--tables", tables, "--cpus", ",".join(map(str, cpus)), "--seed", str(args.seed)]
        argv += ["--candidates", str(args.trials or DEFAULT_CANDIDATES)] + (["--seconds", str(args.seconds)] if args.seconds else [])
        return subprocess.run(argv).returncode


def ablate(args, result, program):
    """How well models rank what they were not fitted to, with and without each group of features."""
    lines = run_lines([program, "rank", *find_tables(args), "--seeds", str(args.seeds or DEFAULT_SEEDS)])
    result.rows += [{"threads": 1, "name": line["operator"], "disturbed": False, **line} for line in lines]
    result._save()
    sizes = sorted({line["records"] for line in lines})
    for across in sorted({line["across"] for line in lines}):
        print("fitted to the other operators" if across else "fitted to the operator itself, judged by candidates it has not seen")
        print(f"{'model':<24}" + "".join(f"{f'{n} records':>22}" for n in sizes) + "   pairs in order / 64 best among 64, %")
        for model in dict.fromkeys(line["model"] for line in lines):
            cells = ""
            for n in sizes:
                own = [line for line in lines if (line["model"], line["records"], line["across"]) == (model, n, across)]
                pairs, recall = (100 * statistics.fmean(line[what] for line in own) for what in ("pairs", "recall"))
                cells += f"{f'{pairs:.1f} / {recall:.1f}':>22}"
            print(f"{model:<24}{cells}")


def compare(args, result, program):
    trials, methods = args.trials or DEFAULT_TRIALS, args.methods or METHODS
    argv = [program, "compare", *find_tables(args), "--methods", ",".join(methods), "--trials", str(trials)]
    if args.sources:
        sources = sorted(glob.glob(os.path.join(args.sources, "*.jsonl.gz")))
        if not sources:
            raise SideError(f"no tables in {args.sources}: bench/run.sh search --collect --tables {args.sources} makes them")
        argv += ["--sources", ",".join(sources)]
    lines = run_lines(argv + ["--seeds", str(args.seeds or DEFAULT_SEEDS)])
    for name in dict.fromkeys(line["operator"] for line in lines):
        for method in methods:
            runs = [line for line in lines if (line["operator"], line["method"]) == (name, method)]
            result.add_rows([make_row(name, method, runs, trials)])
    print_table(result.rows, trials)
    print_summary(result.rows, trials)
    if args.plot:
        plot(result.rows, args.plot)


def run(args, result):
    program = os.path.join(args.programs, "heddle-search-bench")
    try:
        if args.collect:
            sys.exit(collect(args, program))
        elif args.ablate:
            ablate(args, result, program)
        else:
            compare(args, result, program)
    except SideError as error:
        result.add_failure("search", error)
