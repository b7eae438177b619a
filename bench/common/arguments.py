"""The command line of bench/run.sh. Run as a program, it checks the arguments and prints the name of the benchmark."""

import argparse
import os

BENCHMARKS = ("operators", "models", "graphs", "gains", "plans", "classical", "scheduling", "search")
ROUNDS, QUICK_ROUNDS = 11, 5
QUICK_MINUTES = 10
ONE_THREAD = ("graphs", "gains")  # they measure with one thread unless told otherwise
ABLATIONS = ("rank", "others", "parts")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def list_of(what, most):
    def parse(text):
        if not all(part.isdecimal() for part in text.split(",")):
            raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers such as 1,2")
        numbers = [int(part) for part in text.split(",")]
        if not all(1 <= n <= most for n in numbers):
            raise argparse.ArgumentTypeError(f"the number of {what} must be from 1 to {most}")
        return numbers

    return parse


def bounded(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {low} to {high}")
        return int(text)

    return parse


def parse():
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="Compares Heddle with what users would pick instead.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--only", metavar="ROW,..", type=lambda text: text.split(","), help="measure only these rows; classical: NAME, or NAME@100 for 100 rows in a call")
    parser.add_argument("--quick", action="store_true", help=f"classical: 12 rows of all kinds instead of all rows, with fewer rounds and --minutes {QUICK_MINUTES}")
    parser.add_argument("--resume", action="store_true", help="classical: take the rows that earlier runs have measured with the same programs, and measure the others")
    parser.add_argument("--isa", choices=("native", "avx2"), default="native", help="classical: make our code for any CPU with AVX2 instead of this one; peers cannot be told")
    parser.add_argument("--blocks", type=list_of("rows", 1000000), metavar="1,64", help="classical: blocks of rows of the module for any number of rows, instead of those by default")
    parser.add_argument("--threads", type=list_of("threads", 256), metavar="1,2", help="default: 1,2; graphs and gains: 1")
    parser.add_argument("--trials", type=bounded(0, 100000), help="tune with this many trials a task; 0: use default schedules, graphs: the modules of the last run; without it: use the kept records, graphs: only --minutes ends a job, gains: 16")
    parser.add_argument("--minutes", type=bounded(1, 10000), metavar="M", help="models: tune each model for at most this long; graphs: tuning time of every job; gains: of a job, at most; classical: begin no row after this long")
    parser.add_argument("--tvm-minutes", type=bounded(0, 10000), default=0, metavar="M", help="graphs: tune Apache TVM for at most this long for each model; 0: not at all")
    parser.add_argument("--direct", action="store_true", help="operators: no Winograd form on either side")
    parser.add_argument("--records", metavar="FILE", help="records to read and to keep up to date; default: bench/records/<device key>.jsonl, classical: none")
    parser.add_argument("--seed", type=bounded(0, 2**31), default=0, help="seed of the search")
    parser.add_argument("--rounds", type=bounded(5, 1000), help=f"turns of each side, default: {ROUNDS}, with --quick {QUICK_ROUNDS}; operators, models and classical take up to three times as many while a ratio is not settled")
    parser.add_argument("--patience", type=bounded(0, 1000), default=30, help="how often a turn is repeated that other processes disturb")
    parser.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "build", "release", "bin"), help="folder of the binaries")
    parser.add_argument("--strategy", default="random", help="scheduling: search strategy of the jobs; only a learning one has update stages")
    parser.add_argument("--plot", metavar="FILE.svg", help="scheduling: draw a timeline of each set-up; search: draw the curves")
    parser.add_argument("--collect", action="store_true", help="search: measure --trials candidates of each operator into tables, or extend existing tables")
    parser.add_argument("--seconds", type=bounded(1, 1000000), metavar="S", help="search --collect: at most this long for each operator")
    parser.add_argument("--tables", metavar="DIR", help="search: folder of the replay tables; default: bench/replay/<device key>")
    parser.add_argument("--sources", metavar="DIR", help="search: folder of tables that methods named METHOD+others learn from; an operator's own table is left out")
    parser.add_argument("--methods", type=lambda text: text.split(","), metavar="M,..", help="search: run only these methods; annealing:diversity=0 changes a parameter, annealing@3 lets the model lag two batches behind")
    parser.add_argument("--seeds", type=bounded(1, 1000), help="search: runs of each method")
    parser.add_argument("--live", action="store_true", help="search: measure on this machine instead of replay tables; also reports the time of each stage")
    parser.add_argument(
        "--ablate",
        action="store_true",
        help="search: how well models rank without each group of features and on unseen operators, and what each part of the method is worth",
    )
    parser.add_argument("--ablation", choices=ABLATIONS, help="search --ablate: run only one of its three parts")
    parser.add_argument("--each", type=bounded(2, 100000), help="search: records taken from each source table; default: 128, as the service does")
    parser.add_argument("--transfer", action="store_true", help="search: trials saved by learning from the tables of --sources; default: C1 to C6")
    parser.add_argument("--all-tasks", action="store_true", help="search: what a transfer model gains from all records of the other operators over --sample of them")
    parser.add_argument("--sample", type=bounded(2, 1000000), default=2000, help="search --all-tasks: records of the sample, as many of each operator; default: 2000")
    parser.add_argument("--time", action="store_true", help="search: time of propose and update at 1000 records, and candidates a second")
    args = parser.parse_args()
    if args.threads is None:
        args.threads = [1] if args.benchmark in ONE_THREAD else [1, 2]
    if args.rounds is None:
        args.rounds = QUICK_ROUNDS if args.quick else ROUNDS
    if args.quick and args.minutes is None:
        args.minutes = QUICK_MINUTES
    if args.quick and (args.benchmark != "classical" or args.only):
        parser.error("--quick is for classical, without --only")
    if (args.resume or args.isa != "native" or args.blocks) and args.benchmark != "classical":
        parser.error("--resume, --isa and --blocks are for classical")
    if args.benchmark == "gains" and args.trials == 0:
        parser.error("gains measures what tuning gains, so --trials is at least 1")
    if args.ablation and not args.ablate:
        parser.error("--ablation needs --ablate")
    if args.ablate and (args.sources or (args.methods and args.ablation not in ("others", "parts"))):
        parser.error("--ablate takes no --sources, and takes --methods only with --ablation others or parts")
    if args.json:
        try:
            open(args.json, "a").close()
        except OSError as error:
            parser.error(f"cannot write {args.json}: {error.strerror}")
    return args


if __name__ == "__main__":
    print(parse().benchmark)
