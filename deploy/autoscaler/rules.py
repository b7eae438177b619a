"""When to start workers and which ones leave: pure, with the time as an argument.

A class of workers is a kind of machine. Its workers have numbers from 0 on, and are called CLASS-NUMBER, so that certificates can be
made beforehand. An instance is what the source of machines (Slurm, Kubernetes) knows of one number; a worker is what the tracker knows.

What holds, whatever is observed:
- no more than `max` instances are wanted at a time, and a number is used by one instance only;
- only an instance without work is told to leave: its worker was idle in every observation for `idle_s`, or it never came;
- as many stay as the work that runs and waits could use; so no observation both starts one and tells another that works to leave;
- slots in quarantine take no work, so they do not count: others are started for it, and a worker that has no other slots leaves after
  `idle_s`. Until then it counts for `max`, since its machine costs as much as any;
- after starts that failed, nothing is started for a time that doubles with each failure in a row."""

import dataclasses
import math

PENDING, RUNNING, LEAVING = "pending", "running", "leaving"


@dataclasses.dataclass(frozen=True)
class Rules:
    """Of one class. Times are in seconds."""

    max: int
    min: int = 0
    slots: int = 1  # of one worker, in the pools of the class
    wait_s: float = 10  # work has waited so long before workers are started for it
    idle_s: float = 300  # a worker has been idle for so long before it leaves
    register_s: float = 300  # an instance that runs for so long without a worker has failed
    backoff_s: float = 30  # after the first failed start
    most_backoff_s: float = 1800
    most_at_once: int = 16  # starts of one decision


@dataclasses.dataclass(frozen=True)
class Observation:
    """What was seen of one class. `instances`: number -> PENDING, RUNNING or LEAVING. `workers`: number -> whether it is idle, of those
    that the tracker lists. `fit`: number -> its slots of the class that are not in quarantine, of workers with some that are.
    `waiting`, `busy`: stages that wait for a slot of the class, and slots in use. `oldest_s`: the longest wait."""

    waiting: int = 0
    oldest_s: float = 0
    busy: int = 0
    instances: dict = dataclasses.field(default_factory=dict)
    workers: dict = dataclasses.field(default_factory=dict)
    fit: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Memory:
    """What decisions remember of one class; decide() changes it."""

    started: dict = dataclasses.field(default_factory=dict)  # number -> when; of starts whose worker has not come yet
    ran: dict = dataclasses.field(default_factory=dict)  # number -> since when the instance of such a start runs
    idle: dict = dataclasses.field(default_factory=dict)  # number -> since when it has been idle in every observation
    told: set = dataclasses.field(default_factory=set)  # numbers that were told to leave and are still there
    failures: int = 0  # starts in a row that failed
    not_before: float = -math.inf  # of the next start
    failed_starts: int = 0  # ever


@dataclasses.dataclass(frozen=True)
class Decision:
    start: tuple = ()
    drain: tuple = ()


def start_failed(rules, memory, now):
    """Notes a start that failed: the source refused it, the instance ended before its worker came, or the worker never came."""
    memory.failures += 1
    memory.failed_starts += 1
    pause = min(rules.most_backoff_s, rules.backoff_s * 2 ** min(memory.failures - 1, 30))
    memory.not_before = max(memory.not_before, now + pause)


def decide(rules, memory, seen, now):
    """Returns what to do now. The caller starts and drains, and calls start_failed() and forget() where that is refused."""
    never_came = _follow_starts(rules, memory, seen, now)
    memory.told &= set(seen.instances)
    here = {n for n, state in seen.instances.items() if state != LEAVING and n not in memory.told}
    # A start that the source does not list yet counts as an instance.
    wanted = here | set(memory.started)
    _follow_idle(memory, seen, here, now)

    slots = {n: min(rules.slots, seen.fit.get(n, rules.slots)) for n in wanted}  # that take work, or will
    work = seen.busy + seen.waiting
    calls = seen.waiting > 0 and seen.oldest_s >= rules.wait_s
    lack = max(math.ceil((work - sum(slots.values())) / rules.slots) if calls else 0, rules.min - _useful(slots))
    lack = min(lack, rules.max - len(wanted), rules.most_at_once)
    start = ()
    if now >= memory.not_before and lack > 0:
        taken = set(seen.instances) | set(memory.started)
        start = tuple([n for n in range(rules.max) if n not in taken][:lack])
        for n in start:
            memory.started[n] = now

    drain = [n for n in never_came if n in here]
    for n in drain:
        slots.pop(n)
    idle = sorted((since, n) for n, since in memory.idle.items() if now - since >= rules.idle_s and n not in drain)
    for _, n in idle:
        stays = {other: count for other, count in slots.items() if other != n}
        if slots[n] == 0 or (sum(stays.values()) >= work and _useful(stays) >= rules.min):
            drain.append(n)
            slots = stays
    for n in drain:
        memory.told.add(n)
        memory.started.pop(n, None)
        memory.ran.pop(n, None)
        memory.idle.pop(n, None)
    return Decision(start, tuple(drain))


def _useful(slots):
    return sum(count > 0 for count in slots.values())


def forget(memory, number):
    """The start, or the order to leave, did not reach the source."""
    memory.started.pop(number, None)
    memory.ran.pop(number, None)
    memory.told.discard(number)


def _follow_starts(rules, memory, seen, now):
    """Ends the wait for workers that came, and notes failures. Returns the numbers of instances that run without a worker for too long."""
    never_came = []
    for n, state in seen.instances.items():  # its worker has ended, or this program was started after it
        if state == RUNNING and n not in seen.workers and n not in memory.told:
            memory.started.setdefault(n, now)
    for n, since in list(memory.started.items()):
        state = seen.instances.get(n)
        if n in seen.workers and state == RUNNING:
            del memory.started[n]
            memory.ran.pop(n, None)
            memory.failures = 0
            memory.not_before = -math.inf
        elif state == RUNNING:
            if now - memory.ran.setdefault(n, now) >= rules.register_s:
                never_came.append(n)
                start_failed(rules, memory, now)
        elif state == LEAVING or (state is None and (n in memory.ran or now - since >= rules.register_s)):
            del memory.started[n]  # it ended before its worker came, or was never there
            memory.ran.pop(n, None)
            start_failed(rules, memory, now)
    return never_came


def _follow_idle(memory, seen, here, now):
    """Instances without work: workers that are idle, and, while nothing waits, instances that still wait for a machine."""
    idle = {n for n in here if seen.workers.get(n, False)}
    if seen.waiting == 0:
        idle |= {n for n in here if seen.instances[n] == PENDING}
    memory.idle = {n: memory.idle.get(n, now) for n in idle}
