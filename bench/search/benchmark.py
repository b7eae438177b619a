"""Compares search methods on replay tables (bench/search/replay_table.h). Their candidates were measured once, so that a comparison
takes seconds and always gives the same result. --collect makes tables; --ablate evaluates models and each part of the method;
--transfer evaluates learning from other operators, and --all-tasks from all of their records; --live runs methods on the machine itself; --time times the search itself.

A speed is a share of the best speed in the table. A curve is the best share so far after each trial, the mean over seeds. The
default schedule is the first trial of every method. It does not count in speeds or curves; its share is printed beside them.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys

from bench.common import records, report
from bench.common.side import Side, SideError
from bench.operators import benchmark as operators
from bench.search.plot import plot
from bench.search.tables import PART_TRIALS, find_tables, name_of, tables_in, trials_of

OURS, PUBLISHED = "annealing", "published"
PLAIN = ("random", "genetic")  # methods without a model; they also run with twice the trials
METHODS = (OURS, PUBLISHED, *PLAIN)
POINTS = (50, 100, 200, 400, 800)
# Our method with one part changed, to see what each part is worth.
PARTS = (OURS, "annealing:beside=0", "annealing:beside_steps=1", "annealing:drafts=8", "annealing:drafts=128", "annealing:cold_start=0")
PARTS += ("annealing:cold_start=0.5", "annealing:without=estimate", "annealing:smallest=8", "annealing:beside=0:smallest=8")
PARTS += ("regression", "annealing:levels=0", "annealing:diversity=1", "annealing:diversity=4", "ensemble-ei", "ensemble-ucb")
PARTS += ("annealing:epsilon=0", "annealing:elites=0", "evolutionary", "attention")
# Models that are fitted to all other operators.
RANKED = (OURS, "annealing:rounds=100", "annealing:depth=5", "annealing:relative=0", "annealing:with=reuse", "attention")
RANKED_RECORDS = 4096
TIMED = (*(f"C{n}" for n in range(1, 13)), "D5", "128x768x768")
LIVE = ("C2", "C9", "D5", "128x768x768")
SOURCES = tuple(f"C{n}" for n in range(1, 7))
CHOSEN_ON = tuple(f"C{n}" for n in range(2, 13, 2))  # the parameters of our method were chosen on these operators only
STAGES = ("propose", "build", "measure", "update")
GOOD = 0.95
DEFAULT_TRIALS, DEFAULT_SEEDS, DEFAULT_CANDIDATES = 400, 5, 1600  # a table needs twice as many candidates as the longest run has trials


def mean_curve(runs, trials):
    """The mean of the best share after each of `trials` trials. A run that ended early keeps its last value."""
    whole = [run["best"] + run["best"][-1:] * (trials - len(run["best"])) for run in runs]
    return [statistics.fmean(curve[t] for curve in whole) for t in range(trials)]


def trials_to(curve, share):
    """Trials until the curve reaches the share; None if it never does."""
    return next((t + 1 for t, value in enumerate(curve) if value >= share), None)


def make_row(name, method, runs, trials):
    plain = method in PLAIN
    limit = 2 * trials if plain else trials  # a run that never reaches the share counts as this many trials
    long = mean_curve(runs, limit)
    curve = long[:trials]
    row = {
        "name": name,
        "method": method,
        "threads": 1,
        "disturbed": False,
        "seeds": len(runs),
        "untuned": runs[0]["untuned"],
        "area": statistics.fmean(curve),
        "areas": [statistics.fmean(mean_curve([run], trials)) for run in runs],
        "bests_at": {str(n): [mean_curve([run], limit)[n - 1] for run in runs] for n in POINTS if n <= limit},
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
    """The mean over the seeds of ours minus theirs, minus the standard error of the difference."""
    error = sum(statistics.variance(values) / len(values) for values in (ours, theirs) if len(values) > 1) ** 0.5
    return statistics.fmean(ours) - statistics.fmean(theirs) - error


def print_table(rows, trials):
    columns = [n for n in POINTS if n <= trials]
    print(f"{'operator':<15}{'default':>8}  {'method':<15}{'area':>7}" + "".join(f"{n:>7}" for n in columns) + f"{'to 95 %':>9}{'propose s':>11}{'update s':>10}")
    last = None
    for row in rows:
        again, last = row["name"] == last, row["name"]
        name, untuned = ("", "") if again else (row["name"], f"{100 * row['untuned']:.1f}")
        at = "".join(f"{100 * row['best_at'][str(n)]:>7.1f}" for n in columns)
        to = statistics.median(row["trials_to_95"])
        print(f"{name:<15}{untuned:>8}  {row['method']:<15}{100 * row['area']:>7.1f}{at}{to:>9.0f}{row['propose_s']:>11.2f}{row['update_s']:>10.2f}")


def print_summary(rows, trials):
    """Prints the conclusions in words."""
    every = list(dict.fromkeys(row["name"] for row in rows))
    of = {(row["name"], row["method"]): row for row in rows}
    best = [name for name in every if of[name, rows[0]["method"]]["untuned"] >= 1]
    if best:
        print(f"\nno candidate of the tables beats the default schedule of {', '.join(best)}")
    chosen = [name for name in every if name in CHOSEN_ON]
    print_group("all operators", every, of, rows)
    if chosen and len(chosen) < len(every):
        print_group(f"{', '.join(chosen)}, on which the defaults were chosen", chosen, of, rows)
        print_group("the others", [name for name in every if name not in chosen], of, rows)


def print_group(title, names, of, rows):
    print(f"\n{title}\n{'':<15}{'method':<15}{'area':>7}{'geometric mean of trials to 95 %':>36}")
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [of[name, method] for name in names if (name, method) in of]
        mean = statistics.geometric_mean(statistics.fmean(row["trials_to_95"]) for row in own)
        print(f"{'':<15}{method:<15}{100 * statistics.fmean(row['area'] for row in own):>7.1f}{mean:>36.0f}")
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
    if both and all("800" in of[name, "random"]["bests_at"] and "200" in ours[name]["bests_at"] for name in both):
        won = sum(statistics.fmean(ours[name]["bests_at"]["200"]) >= statistics.fmean(of[name, "random"]["bests_at"]["800"]) for name in both)
        sure = sum(margin(ours[name]["bests_at"]["200"], of[name, "random"]["bests_at"]["800"]) >= 0 for name in both)
        print(f"200 trials of {OURS} find as much as 800 of random on {won} of {len(both)}, on {sure} beyond the seeds' standard error")
    both = [name for name in ours if (name, PUBLISHED) in of]
    if both:
        ratio = statistics.geometric_mean(
            statistics.fmean(ours[name]["trials_to_95"]) / statistics.fmean(of[name, PUBLISHED]["trials_to_95"]) for name in both
        )
        print(f"to 95 % of the best known {OURS} needs {ratio:.2f} of the trials of the published method (geometric mean)")


def run_lines(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SideError(f"{os.path.basename(argv[0])} {argv[1]} failed")
    return [json.loads(line) for line in done.stdout.splitlines()]


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


def keep_ranks(result, lines):
    result.rows += [{"threads": 1, "name": line["operator"], "disturbed": False, **line} for line in lines]
    result.save()


def evaluate_ranks(args, result, program):
    """How well models rank candidates that they were not fitted to, with and without each group of features."""
    lines = run_lines([program, "rank", *find_tables(args), "--seeds", str(args.seeds or DEFAULT_SEEDS)])
    sizes = sorted({line["records"] for line in lines})
    for across in sorted({line["across"] for line in lines}):
        print("fitted to the other operators" if across else "fitted to the operator itself, evaluated on unseen candidates")
        print(f"{'model':<24}" + "".join(f"{f'{n} records':>22}" for n in sizes) + "   pairs in order / 64 best among 64, %")
        for model in dict.fromkeys(line["model"] for line in lines):
            cells = ""
            for n in sizes:
                own = [line for line in lines if (line["model"], line["records"], line["across"]) == (model, n, across)]
                pairs, recall = (100 * statistics.fmean(line[what] for line in own) for what in ("pairs", "recall"))
                cells += f"{f'{pairs:.1f} / {recall:.1f}':>22}"
            print(f"{model:<24}{cells}")
    keep_ranks(result, lines)


def evaluate_others(args, result, program):
    """How soon models of all other operators find a good candidate."""
    tables, models, seeds = find_tables(args), args.methods or RANKED, args.seeds or 1
    if len(tables) < 2 and args.ablation is None:
        return
    if len(tables) < 2:
        raise SideError("a model of the other operators needs more than one table")
    argv = [program, "rank", *tables, "--methods", ",".join(models), "--records", str(RANKED_RECORDS), "--sources", ",".join(tables)]
    lines = run_lines(argv + ["--seeds", str(seeds)])
    print(f"\nfitted to {RANKED_RECORDS} records of the other operators, {seeds} seed{'s'[:seeds > 1]}; candidates: in the model's order until one has 95 % of the best speed")
    print(f"{'model':<26}{'candidates':>11}{'pairs, %':>10}")
    for model in models:
        own = [line for line in lines if line["model"] == model]
        first = statistics.geometric_mean(line["first"] for line in own)
        print(f"{model:<26}{first:>11.1f}{100 * statistics.fmean(line['pairs'] for line in own):>10.1f}")
    keep_ranks(result, lines)


def evaluate_parts(args, result, program):
    """Our method against itself with one part changed. Runs are short, since that is where parts differ."""
    tables, seeds = find_tables(args), str(args.seeds or DEFAULT_SEEDS)
    trials = args.trials or trials_of(tables)
    parts = (OURS, *(part for part in args.methods or PARTS if part != OURS))
    argv = [program, "compare", *tables, "--methods", ",".join(parts), "--trials", str(trials), "--seeds", seeds]
    lines = run_lines(argv)
    areas, curves = {}, {}  # by part and operator, over the seeds
    for line in lines:
        curve = mean_curve([line], trials)
        areas.setdefault(line["method"], {}).setdefault(line["operator"], []).append(statistics.fmean(curve))
        curves.setdefault((line["method"], line["operator"]), []).append(line)
    names = list(areas[OURS])
    print(f"\nruns of {trials} trials, {seeds} seeds: trials until the mean curve reaches 95 % of what {OURS} finds (geometric mean), area under it, %;")
    print("better, worse: operators whose area is, beyond the seeds' standard error")
    print(f"{'part changed':<31}{'trials':>8}{'area':>8}{'change':>8}{'better':>8}{'worse':>8}")
    goals = {name: GOOD * mean_curve(curves[OURS, name], trials)[-1] for name in names}
    own = statistics.fmean(statistics.fmean(areas[OURS][name]) for name in names)
    for part in parts:
        mean = statistics.fmean(statistics.fmean(areas[part][name]) for name in names)
        to = {name: trials_to(mean_curve(curves[part, name], trials), goals[name]) or trials for name in names}
        better = sum(margin(areas[part][name], areas[OURS][name]) > 0 for name in names)
        worse = sum(margin(areas[OURS][name], areas[part][name]) > 0 for name in names)
        needed = statistics.geometric_mean(to.values())
        print(f"{part:<31}{needed:>8.1f}{100 * mean:>8.1f}{100 * (mean - own):>+8.1f}{better:>8}{worse:>8}")
        for name in names:
            result.rows.append({"name": name, "method": part, "threads": 1, "disturbed": False, "areas": areas[part][name], "trials_to": to[name]})
    result.save()


# Column titles of the methods beside OURS and KNOWING[0], which change one part of transfer or the features.
SHORT = {"annealing:beside=1": "scratch, beside", "annealing:hedge=0+others": "no estimate"}
SHORT |= {"annealing:others_drafts=1+others": "in order", "annealing:with=reuse+others": "with reuse", "annealing:relative=0+others": "absolute", OURS + "+others+knobs": "knobs"}
KNOWING = (OURS + "+others", *SHORT)
ASKED = 3  # the goal: this many times fewer trials with transfer
FIRST_BATCH = 16
# The first batch with transfer was tuned on the odd ones of D1-D9, so they give no verdict. The others were looked at where the
# odd ones did not decide (docs/search.md).
HELD_OUT = (("C7, C8, C9", ("C7", "C8", "C9")), ("C7-C12", tuple(f"C{n}" for n in range(7, 13))))
HELD_OUT += (("D2, D4, D6, D8", ("D2", "D4", "D6", "D8")), operators.CLASSES[2])
GROUPS = (*HELD_OUT, ("odd of D1-D9", ("D1", "D3", "D5", "D7", "D9")))
THREADED = "one thread to two"


def transfer(args, result, program):
    """Our method from scratch against our method with transfer. It learns from the tables of --sources; by default from C1 to C6 for
    the others, and from one thread for two threads."""
    if args.sources:
        pairs = [(find_tables(args, every=True), tables_in(args.sources))]
    else:
        every = find_tables(argparse.Namespace(**{**vars(args), "only": None}), every=True)
        tables = [path for path in find_tables(args, every=True) if name_of(path) not in SOURCES]
        pairs = [(tables, [path for path in every if name_of(path) in SOURCES])]
        threaded = tables_in(os.path.dirname(every[0]) + "-2")
        pairs.append(([path for path in threaded if args.only is None or name_of(path) in args.only], every))
    pairs = [(tables, sources) for tables, sources in pairs if sources and tables]
    if not pairs:
        raise SideError("transfer needs tables to learn from and other tables to search: bench/run.sh search --collect makes them")
    for tables, sources in pairs:
        transfer_between(args, result, program, tables, sources)


def transfer_between(args, result, program, tables, sources):
    trials, knowing = args.trials or trials_of(tables), args.methods or KNOWING
    argv = [program, "compare", *tables, "--methods", ",".join((OURS, *knowing)), "--trials", str(trials), "--sources", ",".join(sources)]
    argv += ["--each", str(args.each)] if args.each else []
    lines = run_lines(argv + ["--seeds", str(args.seeds or DEFAULT_SEEDS)])
    threads = threads_of(tables[0])
    print(f"\nlearning from {', '.join(map(name_of, sources))}; with {threads} threads trials to {100 * GOOD:.0f} % of what {trials} from scratch find")
    titles = [SHORT.get(method, method) for method in knowing[1:]]
    print(f"{'operator':<16}{'scratch':>9}{'knowing':>9}{'fewer':>8}{'end':>8}{f'best of {FIRST_BATCH}':>16}" + "".join(f"  {title:>9}" for title in titles))
    rows = []
    for name in dict.fromkeys(line["operator"] for line in lines):
        curves = {m: mean_curve([line for line in lines if (line["operator"], line["method"]) == (name, m)], trials) for m in (OURS, *knowing)}
        goal = GOOD * curves[OURS][-1]
        row = {"name": name, "method": "transfer", "threads": threads, "disturbed": False}
        row["trials_to"] = {method: trials_to(curve, goal) or trials for method, curve in curves.items()}
        row["never"] = [method for method, curve in curves.items() if trials_to(curve, goal) is None]
        row["ends"] = {method: curve[-1] / curves[OURS][-1] for method, curve in curves.items()}
        row["first"] = {method: curve[min(FIRST_BATCH, trials) - 1] for method, curve in curves.items()}
        rows.append(row)
        to, first = {m: f"{'>' if m in row['never'] else ''}{n}" for m, n in row["trials_to"].items()}, row["first"]
        fewer = row["trials_to"][OURS] / row["trials_to"][knowing[0]]
        cells = "".join(f"  {to[method]:>{max(9, len(title))}}" for method, title in zip(knowing[1:], titles))
        both = f"{100 * first[OURS]:.1f} / {100 * first[knowing[0]]:.1f}"
        print(f"{name:<16}{to[OURS]:>9}{to[knowing[0]]:>9}{fewer:>7.1f}x{row['ends'][knowing[0]]:>8.3f}{both:>16}{cells}")
    result.rows += rows
    result.save()
    print_groups(rows, GROUPS if threads == 1 else [(THREADED, [row["name"] for row in rows])], knowing)


def print_groups(rows, groups, methods=KNOWING):
    """Prints, for groups of operators: geometric means of trials to 95 % (">": some runs never got there and count whole), how many
    times fewer they are, the mean best after the first batch in %, and the worst end as a share of the end from scratch."""
    print(f"\n{'operators':<19}{'who knows others':<35}{'scratch':>8}{'knowing':>9}{'fewer':>8}{f'best of {FIRST_BATCH}':>16}{'worst end':>11}")
    for title, names in groups:
        own = [row for row in rows if row["name"] in names]
        for method in methods if own else ():
            scratch, knowing = (statistics.geometric_mean(row["trials_to"][m] for row in own) for m in (OURS, method))
            before, after = (100 * statistics.fmean(row["first"][m] for row in own) for m in (OURS, method))
            worst = min(row["ends"][method] for row in own)
            shown = f"{'>' if any(method in row['never'] for row in own) else ''}{knowing:.1f}"
            both = f"{before:.1f} / {after:.1f}"
            print(f"{title:<19}{method:<35}{scratch:>8.1f}{shown:>9}{scratch / knowing:>7.1f}x{both:>16}{worst:>11.3f}")
        if own and (title, names) in (*HELD_OUT, *(group for group in groups if group[0] == THREADED)):
            fewer = statistics.geometric_mean(row["trials_to"][OURS] / row["trials_to"][methods[0]] for row in own)
            print(f"{title}: {'' if fewer >= ASKED else 'not '}{ASKED} times fewer trials")


SAMPLE, ALL = "sample", "all"  # models of heddle-search-bench fit --sample
FIT_SEEDS = 3
# Of a line of the program: title, field, factor, digits.
FITTED = (("pairs, %", "pairs", 100, 1), ("correlation", "correlation", 1, 3), ("64 best, %", "recall", 100, 1), ("fit, s", "fit_s", 1, 1), ("fit, MiB", "fit_mib", 1, 0))


def threads_of(table):
    return 2 if os.path.dirname(table).endswith("-2") else 1


def all_tasks(args, result, program):
    """How well transfer models rank an operator of which they have seen nothing: fitted in memory to a sample of the others' records, as a
    search was told of others before, and to all of them, from pages of samples with the features on disk, as a worker fits the model that
    new tasks begin with."""
    directories = [args.tables] if args.tables else sorted(glob.glob(os.path.join(args.root, "bench", "replay", "*")))
    tables = [path for directory in directories for path in tables_in(directory)]
    held_out = [path for path in tables if args.only is None or name_of(path) in args.only]
    if args.only and not held_out:
        raise SideError(f"no table of {', '.join(args.only)}: bench/run.sh search --collect makes it")
    if len({name_of(path) for path in tables}) < 2:
        raise SideError("a model of other tasks needs tables of two operators: bench/run.sh search --collect makes them")
    seeds = args.seeds or FIT_SEEDS
    argv = [program, "fit", *held_out, "--sample", str(args.sample), "--seeds", str(seeds)]
    lines = run_lines(argv + (["--sources", ",".join(tables)] if held_out != tables else []))
    print(f"each operator is held out in turn; fitted to {args.sample} records of the others in memory / to all of them from pages; {seeds} seed{'s'[:seeds > 1]}, one core")
    titles = [f"{title:>19}" for title, *_ in FITTED]
    print(f"{'operator':<17}{'records':>15}" + "".join(titles))
    of = {table: {model: [line for line in lines if (line["table"], line["model"]) == (table, model)] for model in (SAMPLE, ALL)} for table in held_out}
    means = {table: {model: {field: statistics.fmean(line[field] for line in own) for _, field, *_ in (*FITTED, (0, "samples"))} for model, own in models.items()} for table, models in of.items()}

    def print_row(name, rows):
        cells = ""
        for _, field, factor, digits in FITTED:
            both = " / ".join(f"{factor * statistics.fmean(row[model][field] for row in rows):.{digits}f}" for model in (SAMPLE, ALL))
            cells += f"{both:>19}"
        records = " / ".join(f"{statistics.fmean(row[model]['samples'] for row in rows):.0f}" for model in (SAMPLE, ALL))
        print(f"{name:<17}{records:>15}{cells}")

    for table in held_out:
        print_row(name_of(table) + (", two" if threads_of(table) == 2 else ""), [means[table]])
    groups = [(title, [table for table in held_out if threads_of(table) == 1 and name_of(table) in names]) for title, names in operators.CLASSES]
    for title, group in (*groups, ("two threads", [table for table in held_out if threads_of(table) == 2]), ("all", held_out)):
        if len(group) > 1:
            print_row(title, [means[table] for table in group])
    for title, field in (("orders more pairs", "pairs"), ("finds more of the 64 best", "recall")):
        values = [{model: [line[field] for line in own] for model, own in models.items()} for models in of.values()]
        better, worse = (sum(margin(row[a], row[b]) > 0 for row in values) for a, b in ((ALL, SAMPLE), (SAMPLE, ALL)))
        print(f"the model of all {title} on {better} of {len(held_out)} operators, fewer on {worse}, beyond the seeds' standard error")
    result.rows += [{"name": line["operator"], "threads": threads_of(line["table"]), "disturbed": False, **line} for line in lines]
    result.save()


def time_search(args, result, program):
    lines = run_lines([program, "time", *(args.only or TIMED), "--methods", ",".join(args.methods or (OURS,))])
    print(f"{'operator':<15}{'method':<15}{'propose':>9}{'update':>9}{'both':>9}{'candidates/s':>14}   batches of 64 at 1000 records, one core")
    print("includes making the search and restoring and saving its state; candidates/s: distinct feasible ones of random points")
    for line in lines:
        both = line["propose_s"] + line["update_s"]
        seconds = "".join(f"{value:>7.2f} s" for value in (line["propose_s"], line["update_s"], both))
        print(f"{line['operator']:<15}{line['method']:<15}{seconds}{line['candidates_per_s']:>14.0f}")
    result.rows += [{"name": line["operator"], "threads": 1, "disturbed": False, **line} for line in lines]
    result.save()


def live(args, result, program):
    """Runs methods on the machine itself. Curves are shares of the best time that any run found."""
    trials, methods = args.trials or PART_TRIALS, args.methods or METHODS
    cpus = report.cores_for(args.threads[0])
    if cpus is None:
        raise SideError(f"only {len(os.sched_getaffinity(0))} cores are allowed")
    argv = [program, "live", *(args.only or LIVE), "--methods", ",".join(methods), "--trials", str(trials), "--cpus", ",".join(map(str, cpus))]
    lines = run_lines(argv + ["--seeds", str(args.seeds or DEFAULT_SEEDS)])
    for name in dict.fromkeys(line["operator"] for line in lines):
        own = [line for line in lines if line["operator"] == name]
        # In units of the default schedule's time when the run began, since the machine's speed changes between runs.
        best = min(ns / line["untuned_ns"] for line in own for ns in line["best_ns"] if ns)
        for line in own:
            line["best"] = [best * line["untuned_ns"] / ns if ns else 0 for ns in line["best_ns"]]
            line["untuned"] = best
        for method in methods:
            result.add_rows([make_row(name, method, [line for line in own if line["method"] == method], trials)])
    print_table(result.rows, trials)
    print_summary(result.rows, trials)
    print(f"\n{'method':<15}{'trials/s':>10}" + "".join(f"{stage:>10}" for stage in STAGES) + f"{'update beside measure':>24}   shares of the time, one after the other")
    for method in methods:
        own = [line for line in lines if line["method"] == method]
        seconds = {stage: sum(line[f"{stage}_s"] for line in own) for stage in STAGES}
        every = sum(seconds.values())
        shares = "".join(f"{100 * seconds[stage] / every:>8.1f} %" for stage in STAGES)
        print(f"{method:<15}{sum(len(line['best_ns']) for line in own) / every:>10.1f}{shares}{100 * seconds['update'] / seconds['measure']:>22.1f} %")
    if args.plot:
        plot(result.rows, args.plot)


def compare(args, result, program):
    trials, methods = args.trials or DEFAULT_TRIALS, args.methods or METHODS
    argv = [program, "compare", *find_tables(args), "--methods", ",".join(methods), "--trials", str(trials)]
    if args.sources:
        sources = sorted(glob.glob(os.path.join(args.sources, "*.jsonl.gz")))
        if not sources:
            raise SideError(f"no tables in {args.sources}: bench/run.sh search --collect --tables {args.sources} makes them")
        argv += ["--sources", ",".join(sources)] + (["--each", str(args.each)] if args.each else [])
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
        elif args.live:
            live(args, result, program)
        elif args.ablate:
            for part, evaluate in (("rank", evaluate_ranks), ("others", evaluate_others), ("parts", evaluate_parts)):
                if args.ablation in (None, part):
                    evaluate(args, result, program)
        elif args.transfer:
            transfer(args, result, program)
        elif args.all_tasks:
            all_tasks(args, result, program)
        elif args.time:
            time_search(args, result, program)
        else:
            compare(args, result, program)
    except SideError as error:
        result.add_failure("search", error)
