"""What the scheduler and the tracker say: its metrics (HTTP on this machine), and `heddle devices --json`."""

import json
import re

from .commands import CommandError, output_of
from .web import ask

LIMIT_S = 20
MOST_BYTES = 16 << 20  # of the metrics

_LINE = re.compile(r'^(\w+)\{([^}]*)\} ([0-9.eE+-]+)$')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Unobserved(Exception):
    """The scheduler or the tracker does not answer. The text says which."""


def read_metrics(text):
    """{name: [(labels, value)]} of the samples that have labels."""
    samples = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            samples.setdefault(match[1], []).append((dict(_LABEL.findall(match[2])), float(match[3])))
    return samples


def fetch_metrics(urls, step=lambda: None):
    """The samples of the scheduler that leads: a standby has no queues. `step` is called before each request."""
    silent = []
    for url in urls:
        step()
        try:
            status, text = ask(url, LIMIT_S, MOST_BYTES)
            if status != 200:
                raise ValueError(f"status {status}")
            samples = read_metrics(text.decode())
        except (OSError, ValueError) as error:
            silent.append(f"{url}: {error}; is heddle-scheduler running there with --http?")
            continue
        if "heddle_queue_depth" in samples:
            return samples
        silent.append(f"{url}: this scheduler does not lead; `metrics` may list the URLs of all schedulers")
    raise Unobserved("; ".join(silent))


def fetch_workers(command):
    """The workers that the tracker lists, as `heddle devices --json` prints them."""
    command = [*command, "devices", "--json"]
    try:
        return json.loads(output_of(command, LIMIT_S))["workers"]
    except CommandError as error:
        raise Unobserved(str(error)) from error
    except (ValueError, KeyError) as error:
        raise Unobserved(f"{' '.join(command)}: it does not print the list of workers") from error


def waiting(samples, pools):
    """(stages that wait for a slot of these pools, the longest wait in seconds)."""
    depth = sum(value for labels, value in samples.get("heddle_queue_depth", ()) if labels.get("pool") in pools)
    ages = [value for labels, value in samples.get("heddle_queue_oldest_seconds", ()) if labels.get("pool") in pools]
    return int(depth), max(ages, default=0.0)


def of_class(workers, name, pools):
    """(number -> whether the worker is idle, slots of the class in use, number -> slots of the class that are not in quarantine, where some
    are) of the workers CLASS-NUMBER. A slot is of the pool `cpu`, or of its device key. A worker that drains is not idle: it leaves by
    itself."""
    idle, busy, fit = {}, 0, {}
    pattern = re.compile(re.escape(name) + r"-([0-9]{1,9})$")
    for worker in workers:
        match = pattern.match(worker["worker"])
        if not match:
            continue
        states = [slot["state"] for slot in worker["slots"]]
        idle[int(match[1])] = all(state in ("free", "quarantined") for state in states)
        mine = [slot["state"] for slot in worker["slots"] if _pool(slot["slot"]) in pools]
        busy += mine.count("held")
        if "quarantined" in mine:
            fit[int(match[1])] = len(mine) - mine.count("quarantined")
    return idle, busy, fit


def _pool(slot):
    return "cpu" if slot["kind"] == "cpu" else slot["device_key"]
