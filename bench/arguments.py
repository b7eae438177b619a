"""The command line of bench/run.sh. As a program: checks it and prints the name of the benchmark."""

import argparse
import os

BENCHMARKS = ("operators", "models", "scheduling", "search")
ABLATIONS = ("rank", "others", "parts")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def threads_list(text):
    if not all(part.isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers like 1,2")
    threads = [int(part) for part in text.split(",")]
    if not all(1 <= t <= 256 for t in threads):
        raise argparse.ArgumentTypeError("threads are from 1 to 256")
    return threads


def bounded(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is no number from {low} to {high}")
        return int(text)

    return parse


def parse():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="Benchmarks against what users would pick instead.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--only", metavar="ROW,..", type=lambda text: text.split(","), help="these rows alone")
    parser.add_argument("--threads", type=threads_list, default=[1, 2], metavar="1,2")
    parser.add_argument("--trials", type=bounded(0, 100000), help="tune with so many trials a task; 0: default schedules; else the records")
    parser.add_argument("--minutes", type=bounded(1, 10000), metavar="M", help="models: tune each no longer than that")
    parser.add_argument("--direct", action="store_true", help="operators: no Winograd on either side")
    parser.add_argument("--records", metavar="FILE", help="read and kept up to date; else bench/records/<device key>.jsonl")
    parser.add_argument("--seed", type=bounded(0, 2**31), default=0, help="of the search")
    parser.add_argument("--rounds", type=bounded(5, 1000), default=11, help="how often each side has its turn; operators, models: up to three times as often while their ratio is not settled")
    parser.add_argument("--patience", type=bounded(0, 1000), default=30, help="how often a turn is repeated that others disturb")
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "build", "release", "bin"), help="where the binaries are")
    parser.add_argument("--strategy", default="random", help="scheduling: of the jobs' search; one that learns has updates")
    parser.add_argument("--plot", metavar="FILE.svg", help="scheduling: also draw a timeline of each set-up there; search: curves")
    parser.add_argument("--collect", action="store_true", help="search: measure --trials candidates of each operator into tables, or go on with them")
    parser.add_argument("--seconds", type=bounded(1, 1000000), metavar="S", help="search --collect: no longer than that for each operator")
    parser.add_argument("--tables", metavar="DIR", help="search: of the replay tables; else bench/replay/<device key>")
    parser.add_argument("--sources", metavar="DIR", help="search: tables that methods named METHOD+others learn from; never those of the operator itself")
    parser.add_argument("--methods", type=lambda text: text.split(","), metavar="M,..", help="search: these alone; annealing:diversity=0 is one with a change, annealing@3 one whose model lags two batches behind")
    parser.add_argument("--seeds", type=bounded(1, 1000), help="search: how often each method runs")
    parser.add_argument("--live", action="store_true", help="search: on this machine instead of replay tables; what each stage takes")
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="search: how well models rank, each group of features left out; models of the other operators; what parts of the method are worth",
    )
    parser.add_argument("--ablation", choices=ABLATIONS, help="search --ablate: the first, second or third of these alone")
    parser.add_argument("--each", type=bounded(2, 100000), help="search: records of each of the tables that are learned from; else 128, as the service tells")
    parser.add_argument("--transfer", action="store_true", help="search: trials saved by knowing the tables of --sources, else of C1 to C6")
    parser.add_argument("--time", action="store_true", help="search: what proposing and learning take at 1000 records; candidates a second")
    args = parser.parse_args()
    if args.ablation and not args.ablate:
        parser.error("--ablation goes with --ablate")
    if args.ablate and (args.sources or (args.methods and args.ablation not in ("others", "parts"))):
        parser.error("--ablate takes no --sources, and --methods with --ablation others or parts alone")
    if args.json:
        try:
            open(args.json, "a").close()
        except OSError as error:
            parser.error(f"cannot write {args.json}: {error.strerror}")
    return args


if __name__ == "__main__":
    print(parse().benchmark)
