"""What a job's state looks like: its tasks, one line, and HTML for notebooks. States are the JSON objects of the service,
in which what is empty or zero may be missing, and a part that is not there may be null."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._text import escaped, html_table, nanoseconds, printable, ratio, seconds, table

FINAL = ("done", "failed", "cancelled")

# The most rows of a table that is shown; the list itself has all.
_SHOWN = 200

_BAR = 30


@dataclass(frozen=True)
class Task:
    """One distinct operator of a model, and what its search has found so far."""

    number: int
    """From 1, as `heddle explain JOB NUMBER` takes it."""
    label: str
    key: str
    """The workload's key, as records have it."""
    uses: int
    """Calls of the operator in one run of the model."""
    trials: int
    """Candidates that were measured, failed ones included."""
    failed: int
    """Of these."""
    budget: int
    """Trials that it may take so far."""
    best_ns: float
    """The best median; 0: none yet."""
    untuned_ns: float
    """The median of the default schedule; 0: not measured."""
    gain: float
    """How many times as fast as the default schedule: as the whole model was compared, else by the two above; 1: it keeps
    the default kernel; 0: unknown."""
    gflops: float
    """10^9 operations in a second, of the kernel that the module has; 0: unknown."""
    doing: str
    done: bool
    keeps_default: bool
    """The tuned kernel was not faster within the whole model, so the module has the default one."""
    first_error: str
    """Of the failed trials."""


class Tasks(list[Task]):
    """The tasks of a job: a list that shows itself as a table."""

    _HEADER = ("#", "task", "uses", "trials", "failed", "best", "GFLOP/s", "gain", "doing")

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (str(t.number), t.label, str(t.uses), f"{t.trials}/{t.budget}", str(t.failed),
             nanoseconds(t.untuned_ns if t.keeps_default else t.best_ns), f"{t.gflops:.1f}" if t.gflops else "-", ratio(t.gain),
             "keeps the default kernel" if t.keeps_default else t.doing)
            for t in self[:_SHOWN]
        ]

    def _more(self) -> str:
        return f"showing {_SHOWN} of {len(self)} tasks" if len(self) > _SHOWN else ""

    def __repr__(self) -> str:
        return "\n".join(filter(None, (table(self._HEADER, self._rows()), self._more())))

    def _repr_html_(self) -> str:
        return html_table(self._HEADER, self._rows(), numbers=(0, 2, 3, 4, 5, 6, 7)) + escaped(self._more())


def part(message: dict[str, Any], name: str) -> dict[str, Any]:
    """A message within a message; {} if it is not there."""
    return message.get(name) or {}


def tasks_of(job: dict[str, Any]) -> Tasks:
    """The tasks of the job's plan; tasks of other plans are left out."""
    tasks = Tasks()
    for number, task in enumerate(job.get("tasks", ()), 1):
        info = part(task, "info")
        if not info.get("weight"):
            continue
        best, untuned = task.get("best_ns", 0), task.get("untuned_ns", 0)
        keeps = task.get("keeps_default", False)
        kernel = untuned if keeps else best  # of the module
        gain = part(part(task, "compared"), "gain").get("ratio", 0) or (untuned / best if best and untuned else 0)
        tasks.append(Task(
            number=number, label=info.get("label", ""), key=info.get("key", ""), uses=info["weight"],
            trials=task.get("trials", 0), failed=task.get("failed", 0), budget=task.get("budget", 0), best_ns=best,
            untuned_ns=untuned, gain=1.0 if keeps else gain, gflops=info.get("flops", 0) / kernel if kernel else 0, doing=task.get("doing", ""),
            done=task.get("done", False), keeps_default=keeps,
            first_error=task.get("first_error", "")))
    return tasks


def latency_ns(job: dict[str, Any]) -> float:
    """The best known time of one run of the model: as the module was compared, otherwise the sum of its tasks, each timed
    by itself; 0: unknown."""
    compared = _compared(job)
    if compared:
        return float(compared.get("default_ns" if job["comparison"].get("module_is_default") else "ns", 0))
    return _sum(job, "best_ns")


def gain(job: dict[str, Any]) -> float:
    """How many times as fast as with default schedules; 0: unknown."""
    compared = _compared(job)
    if compared:
        return 1.0 if job["comparison"].get("module_is_default") else float(part(compared, "gain").get("ratio", 0))
    tuned, untuned = _sum(job, "best_ns"), _sum(job, "untuned_ns")
    return untuned / tuned if tuned and untuned else 0


def _compared(job: dict[str, Any]) -> dict[str, Any]:
    return part(part(job, "comparison"), "result")


def _sum(job: dict[str, Any], field: str) -> float:
    total = 0.0
    for task in job.get("tasks", ()):
        weight = part(task, "info").get("weight", 0)
        if weight and not task.get(field):
            return 0
        total += weight * task.get(field, 0)
    return total


def why(job: dict[str, Any]) -> str:
    """One line: what the job does or waits for, or why it ended."""
    return str(part(job, "fault").get("message") or job.get("reason", ""))


def line(job: dict[str, Any]) -> str:
    """The job in one line."""
    text = f"{job.get('id', '')} {job.get('state', 'unknown')}"
    if job.get("trials_budget"):
        text += f" {job.get('trials', 0)}/{job['trials_budget']} trials"
    if latency_ns(job):
        compared = bool(_compared(job))  # the whole model was timed, and not only its tasks
        text += f", {'model' if compared else 'tasks add up to'} {nanoseconds(latency_ns(job))}"
        text += f" ({ratio(gain(job))} over {'the default schedules' if compared else 'untuned'})" if gain(job) else ""
    if job.get("eta_ns"):
        text += f", {seconds(job['eta_ns'] / 1e9)} left"
    return printable(text + (f": {why(job)}" if why(job) else ""))


def job_html(job: dict[str, Any]) -> str:
    """The job with its tasks, for notebooks; all text is escaped."""
    spec, budget = part(job, "spec"), job.get("trials_budget", 0)
    parts = [
        f"<p><b>{escaped(job.get('id', ''))}</b> {escaped(spec.get('name', ''))} for {escaped(spec.get('target', ''))}</p>",
        f"<p>{escaped(line(job))}</p>",
    ]
    if budget and job.get("state") not in FINAL:
        parts.append(f'<progress max="{int(budget)}" value="{int(job.get("trials", 0))}"></progress>')
    parts += [f"<p>warning: {escaped(warning)}</p>" for warning in job.get("warnings", ())]
    tasks = tasks_of(job)
    if tasks:
        parts.append(tasks._repr_html_())
    return "".join(parts)


def bar(job: dict[str, Any]) -> str:
    """How many of the trials are made, as a bar of characters."""
    budget = job.get("trials_budget", 0)
    full = min(_BAR, _BAR * job.get("trials", 0) // budget) if budget else 0
    return "█" * full + "░" * (_BAR - full)
