"""heddle-autoscaler: looks, decides, does it, and counts what it cost."""

import argparse
import collections
import dataclasses
import http.server
import json
import os
import signal
import socket
import sys
import threading
import time
import tomllib

from . import observe, rules
from .kubernetes import Kubernetes
from .slurm import Slurm, SourceError

SOURCES = {"slurm": Slurm, "kubernetes": Kubernetes}
MOST_COUNTED_S = 120  # of one round: a computer that slept has counted nothing
STUCK_S = 180  # without a new request /healthz says that it hangs: none takes as long, however many a look has
MOST_CLIENTS = 16  # connections at a time of whoever reads /metrics and /healthz
CLIENT_S = 10  # without a word from a client


class ConfigError(Exception):
    """A setting is missing or wrong. The text says which one and what it should be."""


@dataclasses.dataclass(frozen=True)
class Config:
    metrics: list  # URLs of the metrics of all schedulers, of which one leads
    heddle: list  # the command of the client
    state: str  # file of what was counted
    every_s: float
    source: object
    rules: dict  # class -> Rules
    pools: dict  # class -> set of pools


def read_config(path):
    try:
        with open(path, "rb") as file:
            text = tomllib.load(file)
        source = dict(text["source"])
        classes = dict(text["classes"])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; deploy/slurm/autoscaler.toml and deploy/kubernetes show what it holds") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    except KeyError as error:
        raise ConfigError(f"{path}: the table {error} is missing") from error
    kind = source.pop("kind", None)
    if kind not in SOURCES:
        raise ConfigError(f"{path}: source.kind must be one of {', '.join(SOURCES)}")
    if not classes:
        raise ConfigError(f"{path}: there is no class; add a table [classes.NAME]")
    fields = {field.name for field in dataclasses.fields(rules.Rules)}
    of_class, pools, others = {}, {}, {}
    for name, settings in classes.items():
        mine = {key: value for key, value in settings.items() if key in fields}
        for key, value in mine.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise ConfigError(f"{path}: classes.{name}.{key} must be a number of at least 0")
        if "max" not in mine or not 1 <= mine["max"] <= 4096 or mine.get("min", 0) > mine["max"] or mine.get("slots", 1) < 1:
            raise ConfigError(f"{path}: classes.{name} needs 1 <= max <= 4096, min <= max and slots >= 1")
        if not settings.get("pools"):
            raise ConfigError(f"{path}: classes.{name}.pools must list whose waiting work these workers are for, such as [\"cpu\", \"any\"]")
        of_class[name], pools[name] = rules.Rules(**mine), set(settings["pools"])
        others[name] = {key: value for key, value in settings.items() if key not in fields and key != "pools"}
    urls = text.get("metrics", "http://127.0.0.1:9180/metrics")
    urls = [urls] if isinstance(urls, str) else urls
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise ConfigError(f"{path}: metrics must be the URL of the scheduler's metrics, or a list of the URLs of several schedulers")
    try:
        made = SOURCES[kind](source, others)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return Config(
        metrics=urls,
        heddle=list(text.get("heddle", ["heddle"])),
        state=text.get("state", "heddle-autoscaler.json"),
        every_s=float(text.get("every_s", 10)),
        source=made,
        rules=of_class,
        pools=pools,
    )


class Counts:
    """What was done and what it cost, in a file, so that it grows over restarts."""

    FIELDS = ("node_seconds", "starts", "failed_starts", "drains")

    def __init__(self, path):
        self._path = path
        self.classes = {}
        try:
            with open(path) as file:
                for name, counted in json.load(file)["classes"].items():
                    self.classes[name] = {field: counted.get(field, 0) for field in self.FIELDS}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(f"{path}: not a state of the autoscaler ({error}); remove it to count from 0") from error

    def of(self, name):
        return self.classes.setdefault(name, dict.fromkeys(self.FIELDS, 0))

    def write(self, now):
        """`now`: a date, by which --status tells how old this is."""
        part = f"{self._path}.part"
        with open(part, "w") as file:
            json.dump({"unix": now, "classes": self.classes}, file, indent=1)
        os.replace(part, self._path)


def cost(counted):
    return counted["node_seconds"] / 3600


class Autoscaler:
    def __init__(self, config, counts, say):
        self._config, self._counts, self._say = config, counts, say
        self._memory = {name: rules.Memory() for name in config.rules}
        self._last = None
        self._said = {}
        config.source.alive = self._step
        # For health(), which other threads ask for: when the last look ended, when the latest request of one began.
        self.looked = self.stepped = time.monotonic()

    def _step(self):
        self.stepped = time.monotonic()

    def round(self, now):
        """One look and what follows. `now` is monotonic. What cannot be seen changes nothing."""
        elapsed = 0 if self._last is None else min(MOST_COUNTED_S, now - self._last)
        self._last = now
        try:
            samples = observe.fetch_metrics(self._config.metrics, self._step)
            self._step()
            workers = observe.fetch_workers(self._config.heddle)
        except observe.Unobserved as error:
            samples = workers = None
            self._tell("the service", str(error))
        else:
            self._tell("the service", "")
        for name in self._config.rules:
            try:
                instances = self._config.source.list(name)
            except SourceError as error:
                self._tell(name, str(error))
                continue
            self._tell(name, "")
            counted = self._counts.of(name)
            counted["node_seconds"] += elapsed * sum(state != rules.PENDING for state in instances.values())
            counted.update(pending=sum(state == rules.PENDING for state in instances.values()),
                           running=sum(state == rules.RUNNING for state in instances.values()),
                           leaving=sum(state == rules.LEAVING for state in instances.values()))
            if workers is not None:
                self._class_round(name, samples, workers, instances, now)
        self._counts.write(time.time())
        self._step()
        self.looked = self.stepped

    def _class_round(self, name, samples, workers, instances, now):
        limits, memory, counted = self._config.rules[name], self._memory[name], self._counts.of(name)
        pools = self._config.pools[name]
        idle, busy, fit = observe.of_class(workers, name, pools)
        depth, oldest_s = observe.waiting(samples, pools)
        unfit = {number for number, slots in fit.items() if slots == 0}
        counted.update(waiting=depth, busy=busy, idle=sum(unused and number not in unfit for number, unused in idle.items()), unfit=len(unfit))
        failed_before = memory.failed_starts
        decision = rules.decide(limits, memory, rules.Observation(depth, oldest_s, busy, instances, idle, fit), now)
        if decision.start:
            started = decision.start
            try:
                self._config.source.start(name, decision.start)
            except SourceError as error:
                started = error.started
                failed = [number for number in decision.start if number not in started]
                self._say(f"{name}: cannot start {_numbers(failed)}: {error}")
                rules.start_failed(limits, memory, now)
                for number in failed:
                    rules.forget(memory, number)
            counted["starts"] += len(started)
            if started:
                self._say(f"{name}: started {_numbers(started)}, since {depth} stages wait, the longest for {oldest_s:.0f} s")
        for number in decision.drain:
            try:
                self._config.source.drain(name, number)
                counted["drains"] += 1
                why = ", since all its slots are in quarantine" if number in unfit else ""
                self._say(f"{name}: {number} leaves" + (why if idle.get(number) else ", since its worker never came or it still waits"))
            except SourceError as error:
                self._say(f"{name}: cannot end {number}: {error}")
                rules.forget(memory, number)
        counted["failed_starts"] += memory.failed_starts - failed_before
        counted["backs_off_s"] = max(0.0, memory.not_before - now) if memory.failures else 0.0

    def _tell(self, what, problem):
        """Each problem once, and its end."""
        if self._said.get(what, "") != problem:
            self._say(problem or f"{what}: answers again")
        self._said[what] = problem


def _numbers(numbers):
    return ", ".join(map(str, numbers))


GAUGES = {"pending": "wait for a machine", "running": "run", "leaving": "were told to leave, or end"}


def metrics_text(classes):
    lines = ["# HELP heddle_autoscaler_instances Instances of workers, by state.", "# TYPE heddle_autoscaler_instances gauge"]
    for name, counted in sorted(classes.items()):
        lines += [f'heddle_autoscaler_instances{{class="{name}",state="{state}"}} {counted.get(state, 0)}' for state in GAUGES]
    for metric, meaning, value in (
        ("node_hours", "Time that instances had a machine, all together.", cost),
        ("starts", "Instances that were asked for.", lambda counted: counted["starts"]),
        ("failed_starts", "Starts that were refused, or whose worker never came.", lambda counted: counted["failed_starts"]),
        ("drains", "Instances that were told to leave.", lambda counted: counted["drains"]),
    ):
        lines += [f"# HELP heddle_autoscaler_{metric}_total {meaning}", f"# TYPE heddle_autoscaler_{metric}_total counter"]
        lines += [f'heddle_autoscaler_{metric}_total{{class="{name}"}} {value(counted):g}' for name, counted in sorted(classes.items())]
    return "\n".join(lines) + "\n"


def status_text(classes, age_s):
    lines = [f"{'class':<16}{'waiting':>8}{'busy':>6}{'pending':>9}{'running':>9}{'leaving':>9}{'starts':>8}{'failed':>8}{'node hours':>12}"]
    for name, counted in sorted(classes.items()):
        lines.append(f"{name:<16}{counted.get('waiting', 0):>8}{counted.get('busy', 0):>6}{counted.get('pending', 0):>9}{counted.get('running', 0):>9}"
                     f"{counted.get('leaving', 0):>9}{counted['starts']:>8}{counted['failed_starts']:>8}{cost(counted):>12.2f}")
        if counted.get("backs_off_s", 0) > 0:
            lines.append(f"  {name}: starts fail; the next one in {counted['backs_off_s']:.0f} s")
        if counted.get("waiting", 0) > 0 and counted.get("idle", 0) > 0:
            lines.append(f"  {name}: work waits although {counted['idle']} workers are idle: perhaps it needs another target")
        if counted.get("unfit", 0) > 0:
            lines.append(f"  {name}: {counted['unfit']} workers take no work, since all their slots are in quarantine: `heddle devices` says why")
    if age_s > 120:
        lines.append(f"This is {age_s:.0f} s old: does heddle-autoscaler run?")
    return "\n".join(lines)


def health(scaler, every_s, now):
    """(status, text) of /healthz. A look may take long, such as one that starts many pods at a slow API, and is well as long as it goes on."""
    look = f"the last look ended {now - scaler.looked:.0f} s ago"
    still_s = now - scaler.stepped
    if still_s > every_s + STUCK_S:
        return 503, f"it hangs: nothing has happened for {still_s:.0f} s; {look}\n"
    return 200, f"well: {look}\n"


class Pages(http.server.ThreadingHTTPServer):
    """Has a thread for each connection, so that a client which stalls holds nobody up. Of too many connections, the oldest one ends."""

    request_queue_size = MOST_CLIENTS

    def __init__(self, address, handler):
        self._open = collections.deque()  # the oldest first
        self._lock = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request, client_address):
        with self._lock:
            while len(self._open) >= MOST_CLIENTS:
                _end(self._open.popleft())
            self._open.append(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # which says that the client went away, or was ended above
            super().handle_error(request, client_address)


def _end(connection):
    """Its thread wakes up and closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the client was faster


def serve(address, scaler, counts, every_s):
    host, _, port = address.rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]") or not port.isdigit():
        raise ConfigError(f"--http {address}: it must be an address of this machine, such as 127.0.0.1:9181")

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = CLIENT_S

        def do_GET(self):
            pages = {"/metrics": lambda: (200, metrics_text(dict(counts.classes))), "/healthz": lambda: health(scaler, every_s, time.monotonic())}
            status, text = pages.get(self.path, lambda: (404, "there are /metrics and /healthz\n"))()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = Pages((host.strip("[]"), int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="heddle-autoscaler", description="Starts workers by Slurm or Kubernetes when work waits, and lets them leave when none does.")
    parser.add_argument("config", help="TOML file; deploy/slurm/autoscaler.toml is an example")
    parser.add_argument("--status", action="store_true", help="only print what there is, and what it cost so far")
    parser.add_argument("--rounds", type=int, default=0, help="end after so many looks (default: never)")
    parser.add_argument("--http", help="HOST:PORT of this machine to serve /metrics and /healthz at (default: nowhere)")
    args = parser.parse_args(arguments)

    def say(line):
        print(f"heddle-autoscaler: {line}", file=sys.stderr, flush=True)

    try:
        config = read_config(args.config)
        counts = Counts(config.state)
        if args.status:
            try:
                age_s = time.time() - os.path.getmtime(config.state)
            except OSError:
                say(f"{config.state} is not there: it has not run yet")
                return 4
            print(status_text(counts_with_gauges(config.state), age_s))
            return 0
        scaler = Autoscaler(config, counts, say)
        if args.http:
            serve(args.http, scaler, counts, config.every_s)
    except (ConfigError, OSError) as error:
        say(error)
        return 2
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    say(f"looks every {config.every_s:g} s after {', '.join(config.rules)}")
    done = 0
    while not over.is_set():
        scaler.round(time.monotonic())
        done += 1
        if done == args.rounds:
            break
        over.wait(config.every_s)
    # The workers stay: whoever starts this program again finds them.
    return 0


def counts_with_gauges(path):
    with open(path) as file:
        return json.load(file)["classes"]
