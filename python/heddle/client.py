"""Jobs of a scheduler: submit, wait, look, fetch."""
from __future__ import annotations

import datetime
import difflib
import json
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from . import _views
from ._models import as_file
from ._progress import Progress
from ._text import html_table, nanoseconds, table
from ._views import Task, Tasks
from .errors import Cancelled, Error, InternalError, NothingValid, TimedOut, UsageError
from .module import Module

if TYPE_CHECKING:
    import pandas

__all__ = ["Client", "Job", "Jobs", "Task", "Tasks", "TuningOptions"]

# Trials that Job.trials returns unless it is asked for more or fewer.
_TRIALS = 100_000

Schedules = Literal["best", "default", "naive"]


class TuningOptions(TypedDict, total=False):
    """How a model is to be tuned: the flags of `heddle submit`, by the same names. None stands for what is usual."""

    target: str
    """What to tune for, as "llvm -mcpu=native -threads=2" or "cuda -arch=sm_90"; usual: "llvm -mcpu=native"."""
    device: str
    """Only devices with this key (`heddle devices`); usual: any that runs the target."""
    name: str
    """For people; usual: the name of the file or class."""
    trials: int
    """Candidates measured for each task, on average; 1 to 100000, usual: 64."""
    time_limit: str | float | datetime.timedelta
    """Ends tuning after this time without pauses: "30m", seconds, or a timedelta."""
    deadline: str | datetime.datetime
    """When it should be done: "2h", "18:30", "2030-01-31 18:30", or a datetime. Urgent jobs go first."""
    target_latency: str | float | datetime.timedelta
    """Ends tuning when the tasks add up to this: "5ms", seconds, or a timedelta."""
    plateau: int
    """A task ends after this many trials without a gain of more than 1 %; usual: never."""
    priority: int
    """-10 to 10, larger first, among the jobs of one user."""
    max_devices: int
    """Device slots held at a time; usual: no limit."""
    allocation: Literal["gradient", "uniform"]
    """"gradient" gives trials to the tasks with the largest expected gain, "uniform" the same number to each."""
    batch: int
    """Candidates in one round; usual: 16."""
    depth: int
    """Most rounds in flight; usual: one more than devices."""
    strategy: str
    """How candidates are found; usual: "annealing"."""
    seed: int
    """Of the search."""
    shapes: Mapping[str, int | Sequence[int]]
    """Of inputs with dynamic dimensions, or extents of dimensions by name: {"x": (1, 3, 224, 224), "batch": 1}. For models
    of independent rows, {"rows": (1, 16, 256)}: the numbers of rows that the module computes at once."""
    input_values: Mapping[str, float | Sequence[float]]
    """Inputs that become constants."""
    disabled_passes: Sequence[str]
    """Graph passes to leave out."""
    winograd: bool
    """False: no Winograd convolutions, so results to 1e-4 instead of 1e-3."""
    compare: bool
    """False: the module is not timed against the default schedules in the end."""
    transfer: bool
    """False: searches learn nothing from other tasks and jobs."""
    plan: Literal["joint", "sequential", "off"]
    """How the graph is rewritten and laid out; usual: the service decides."""
    force: bool
    """True: measure again, even if the database has enough records."""


def _service() -> ModuleType:
    """The client's extension. It needs more libraries than running a module does, so it is loaded when it is used."""
    try:
        from . import _service as native
    except ImportError as error:
        raise UsageError(
            f"the client cannot be loaded: {error} (it needs Debian's libgrpc++1.51, libprotobuf32, libabsl20220623, "
            f"libllvm19 and libfmt9; heddle.Module works without)") from error
    return native


def _setting(value: str | os.PathLike[str] | None, variable: str) -> str:
    """What was given, even if that is empty; otherwise the environment's."""
    return os.environ.get(variable, "") if value is None else os.fspath(value)


def _span(name: str, value: Any) -> str:
    """A duration in the words of the command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name}={value!r} is no duration; give seconds, a timedelta, or a text such as \"30m\"")
    if not 0 < value < 1e9:
        raise UsageError(f"{name}={value!r} is no duration; give a positive number of seconds")
    return f"{max(1, round(value * 1e9))}ns"


def _moment(value: Any) -> str:
    return value.astimezone().isoformat() if isinstance(value, datetime.datetime) else value


def _list(value: Any) -> list[Any]:
    return [value] if isinstance(value, (int, float)) else list(value)


_OF_JOB = ("deadline", "time_limit", "target_latency", "allocation", "priority", "plateau", "max_devices")
_OF_IMPORT = ("shapes", "input_values", "disabled_passes")
_FORMS: dict[str, Callable[[Any], Any]] = {
    "deadline": _moment,
    "time_limit": lambda value: _span("time_limit", value),
    "target_latency": lambda value: _span("target_latency", value),
    "shapes": lambda value: [f"{name}={','.join(map(str, _list(shape)))}" for name, shape in value.items()],
    "input_values": lambda value: [f"{name}={','.join(map(str, _list(of)))}" for name, of in value.items()],
    "disabled_passes": list,
}


def submit_options(path: str | os.PathLike[str], options: Mapping[str, Any]) -> Any:
    """The extension's options. TypeError: there is no option of a name, as with any other keyword of Python."""
    made = _service().SubmitOptions()
    made.model = os.fsencode(path)
    for name, value in options.items():
        if name not in TuningOptions.__annotations__:
            near = difflib.get_close_matches(name, TuningOptions.__annotations__, 1)
            hint = f", did you mean '{near[0]}'?" if near else "; heddle.TuningOptions lists all"
            raise TypeError(f"there is no option '{name}'{hint}")
        if value is None:
            continue
        place = made.job if name in _OF_JOB else made.imports if name in _OF_IMPORT else made
        try:
            setattr(place, name, _FORMS.get(name, lambda same: same)(value))
        except (TypeError, AttributeError) as error:
            wanted = TuningOptions.__annotations__[name]
            wanted = getattr(wanted, "__forward_arg__", wanted)
            raise UsageError(f"{name}={value!r} is no {wanted}") from error
    return made


class Client:
    """A connection to a scheduler. Several threads may use it. After a fork, only the process that made it may.

    Waiting for the service ends within 0.2 s of Ctrl-C. What was already asked of the service goes on there.
    """

    def __init__(
        self,
        server: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Connects when it is first used.

        server: "HOST:PORT", or "unix:PATH" on this machine; several with commas between, where schedulers stand by for
            each other; None: HEDDLE_SERVER, otherwise the scheduler of this user's data directory.
        token_file: the file with the token that says who you are; None: HEDDLE_TOKEN_FILE, otherwise none.
        tls_dir: for a scheduler on another machine, the folder with ca.pem, and with cert.pem and key.pem unless there is
            a token; None: HEDDLE_TLS_DIR, otherwise none.
        """
        native = _service()
        self.server: str = _setting(server, "HEDDLE_SERVER") or native.default_server()
        self._access = (self.server, _setting(tls_dir, "HEDDLE_TLS_DIR"), _setting(token_file, "HEDDLE_TOKEN_FILE"))
        self._native = native.Client(*self._access)

    def submit(self, model: Any, *, example_inputs: Any = None, **options: Unpack[TuningOptions]) -> Job:
        """Submits a model, and returns its job, which goes on without this program.

        model: the path of an ONNX file, or of a model of XGBoost or LightGBM; its bytes; an onnx.ModelProto; a
            torch.nn.Module (exported by torch.onnx, with example_inputs); an estimator or pipeline of scikit-learn
            (exported by skl2onnx); a Booster of xgboost or lightgbm.
        example_inputs: of a torch module, what its forward takes: a tensor, or a tuple. Of scikit-learn, some rows of
            data, an array or a data frame, if their columns have names or are not all numbers; float64 becomes float32.
        options: heddle.TuningOptions.

        UsageError: the model or an option is refused. Unreachable: no scheduler answers.
        """
        with as_file(model, example_inputs) as (path, name):
            made = submit_options(path, {"name": name, **options})
            return Job(self, self._native.submit(made))

    def jobs(self, all: bool = False) -> Jobs:
        """Unfinished jobs, oldest first; with `all` also finished ones (the newest 100,000)."""
        return Jobs(Job(self, state["id"], state) for state in map(json.loads, self._native.jobs(all)))

    def job(self, id: str) -> Job:
        """The job of this id. NotFound: there is none."""
        return Job(self, id, json.loads(self._native.job(id)))

    def devices(self) -> list[dict[str, Any]]:
        """The workers with their slots, as `heddle devices --json` shows them."""
        return list(json.loads(self._native.devices()).get("workers", []))

    def __repr__(self) -> str:
        return f"<heddle.Client {self.server!r}>"


class Job:
    """A job of a scheduler. What it says of itself is asked of the service, until the job has ended."""

    def __init__(self, client: Client, id: str, state: dict[str, Any] | None = None) -> None:
        self.id: str = id
        """Its name in the service: "j12"."""
        self._client = client
        self._last = state or {}
        self._kept: list[dict[str, Any]] | None = None

    def info(self) -> dict[str, Any]:
        """All that the service says of the job, as `heddle show --json` prints it. Empty fields may be missing."""
        if self._last.get("state") not in _views.FINAL:
            self._last = json.loads(self._client._native.job(self.id))
        return self._last

    @property
    def state(self) -> str:
        """importing, planning, tuning, compiling, comparing, paused, done, failed or cancelled."""
        return str(self.info().get("state", "unknown"))

    @property
    def why(self) -> str:
        """One line: what it does or waits for, or why it ended."""
        return _views.why(self.info())

    @property
    def gain(self) -> float:
        """How many times as fast the model is as with default schedules; 0: unknown."""
        return _views.gain(self.info())

    @property
    def latency_ns(self) -> float:
        """The best known time of one run of the model: compared as a whole, or the sum of its tasks; 0: unknown."""
        return _views.latency_ns(self.info())

    def tasks(self) -> Tasks:
        """The distinct operators of the model, and what was found for each."""
        return _views.tasks_of(self.info())

    def trials(self, limit: int = _TRIALS) -> pandas.DataFrame | list[dict[str, Any]]:
        """The measured candidates, oldest first: a pandas.DataFrame if pandas is there, otherwise a list of dicts.

        limit: only the newest `limit` trials, with a warning if there are more.
        Columns: task, task_key, candidate, origin, outcome ("ok", "wrong_result", ..), valid, median_ns, samples_ns,
        predicted (the model's score before it was measured, or None), device, worker, created_unix_ns, message, trace.
        """
        if limit < 1:
            raise UsageError(f"limit={limit}: it must be at least 1")
        if self._kept is not None:
            rows, more = self._kept[-limit:], len(self._kept) > limit
        else:
            lines = self._client._native.records(self.id, limit + 1)
            rows = [_trial(json.loads(line)) for line in reversed(lines[:limit])]
            more = len(lines) > limit
        if more:
            warnings.warn(f"showing the newest {limit} trials; limit= gives more", stacklevel=2)
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(rows, columns=list(_trial({})))

    def wait(
        self,
        for_: Literal["done", "first-valid"] = "done",
        timeout: float | None = None,
        progress: bool | None = False,
    ) -> Job:
        """Waits, and returns the job itself.

        for_: "done", or "first-valid": until a valid candidate was measured.
        timeout: seconds; None waits without limit.
        progress: True shows how far the job is, None does so in notebooks and on terminals.

        TimedOut: the time passed; the job goes on. If the job ends otherwise than done: Cancelled, UsageError (the model
        or the request is at fault), NothingValid, or InternalError. After Ctrl-C the job goes on, too.
        """
        return self._wait(for_, timeout, Progress(progress), lambda: None)

    def _wait(self, for_: str, timeout: float | None, progress: Progress, check: Callable[[], None]) -> Job:
        """`check` is called about ten times a second; what it raises ends the wait."""
        if for_ not in ("done", "first-valid"):
            raise UsageError(f"for_='{for_}': it must be 'done' or 'first-valid'")
        deadline = float("inf") if timeout is None else time.monotonic() + timeout

        def ended() -> bool:
            return self._last.get("state") in _views.FINAL

        def reached() -> bool:
            return for_ == "first-valid" and any(task.get("best_ns") for task in self._last.get("tasks", ()))

        def on_job(state: str | None) -> bool:
            if state is not None:
                self._last = json.loads(state)
            if self._last:
                progress.show(self._last)
            check()
            return not reached() and time.monotonic() < deadline

        try:
            if not ended():
                self._client._native.watch(self.id, on_job)
        finally:
            progress.finish()
        if reached():
            return self
        if not ended():
            raise TimedOut(f"job {self.id} is still {self._last.get('state', 'unknown')}: {_views.why(self._last)}")
        self._check_end()
        return self

    def _check_end(self) -> None:
        state = self._last["state"]
        message = f"job {self.id} {state}: {_views.why(self._last)}"
        if state == "cancelled":
            raise Cancelled(message)
        if state == "failed":
            fault = _views.part(self._last, "fault").get("kind")
            raise {"user": UsageError, "candidate": NothingValid}.get(fault, InternalError)(message)

    def cancel(self, reason: str = "by its user") -> Job:
        """Cancels the job; its measurements stay. UsageError: its state does not allow it."""
        self._last = json.loads(self._client._native.cancel(self.id, reason))
        return self

    def pause(self) -> Job:
        """Pauses the job after its running stages."""
        self._last = json.loads(self._client._native.pause(self.id))
        return self

    def resume(self) -> Job:
        """Goes on with a paused job."""
        self._last = json.loads(self._client._native.resume(self.id))
        return self

    def prioritize(self, priority: int) -> Job:
        """Changes the order among the jobs of one user: -10 to 10, and larger ones go first. Running stages go on."""
        self._last = json.loads(self._client._native.prioritize(self.id, priority))
        return self

    def fetch(self, path: str | os.PathLike[str], schedules: Schedules = "best") -> str:
        """Writes the job's module to a file, which changes all at once, and returns its path.

        schedules: "best", or "default" or "naive" to compare with; those, and the best so far of a job that still runs,
            are compiled now, which takes a while.
        """
        if schedules not in ("best", "default", "naive"):
            raise UsageError(f"schedules='{schedules}': it must be 'best', 'default' or 'naive'")
        target = os.path.realpath(path)
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            raise UsageError(f"cannot write '{os.fspath(path)}': it is no regular file")
        try:
            with tempfile.TemporaryDirectory(
                prefix=".heddle-", dir=os.path.dirname(target), ignore_cleanup_errors=True
            ) as folder:
                new = os.path.join(folder, "module.heddle")
                self._client._native.fetch(self.id, schedules, os.fsencode(new))
                os.replace(new, target)
        except Error:
            raise
        except OSError as error:
            raise UsageError(f"cannot write '{os.fspath(path)}': {error.strerror or error}") from error
        return os.fspath(path)

    def module(self, schedules: Schedules = "best", *, threads: int = 0) -> Module:
        """The job's module, loaded. Arguments are those of `fetch` and of Module."""
        with tempfile.TemporaryDirectory(prefix="heddle-") as folder:
            # A module that is loaded does not need its file's name any more.
            module = Module(self.fetch(os.path.join(folder, f"{self.id}.heddle"), schedules), threads=threads)
        module.job = self
        module._source = f"job {self.id}"
        return module

    def _keep_trials(self) -> None:
        """Keeps the trials here, for a job whose service is about to end."""
        self._kept = [_trial(json.loads(line)) for line in reversed(self._client._native.records(self.id, _TRIALS))]

    def __repr__(self) -> str:
        return f"<heddle.Job {_views.line(self._last) if self._last else self.id}>"

    def _repr_html_(self) -> str:
        try:
            return _views.job_html(self.info())
        except Error:  # a notebook shows the job as it was
            return _views.job_html(self._last or {"id": self.id})


class Jobs(list[Job]):
    """Jobs as they were when they were listed: a list that shows itself as a table."""

    _HEADER = ("job", "name", "state", "trials", "model", "why")
    _SHOWN = 200

    def _rows(self) -> list[tuple[str, ...]]:
        states = [job._last for job in self[-self._SHOWN :]]
        return [
            (s.get("id", ""), _views.part(s, "spec").get("name", ""), s.get("state", ""),
             f"{s.get('trials', 0)}/{s.get('trials_budget', 0)}", nanoseconds(_views.latency_ns(s)), _views.why(s))
            for s in states
        ]

    def _more(self) -> str:
        return f"showing the newest {self._SHOWN} of {len(self)} jobs" if len(self) > self._SHOWN else ""

    def __repr__(self) -> str:
        return "\n".join(filter(None, (table(self._HEADER, self._rows()), self._more())))

    def _repr_html_(self) -> str:
        return html_table(self._HEADER, self._rows(), numbers=(3, 4)) + self._more()


def _trial(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the service as a row of Job.trials."""
    measurement, prediction = _views.part(record, "measurement"), record.get("prediction")
    outcome = measurement.get("outcome", "unspecified")
    return {
        "task": record.get("label", ""),
        "task_key": record.get("workload_key", ""),
        "candidate": record.get("candidate", 0),
        "origin": record.get("origin", ""),
        "outcome": outcome,
        "valid": outcome == "ok",
        "median_ns": record.get("median_ns", 0.0),
        "samples_ns": measurement.get("samples_ns", []),
        "predicted": None if prediction is None else prediction.get("score", 0.0),
        "device": record.get("device_key", ""),
        "worker": _views.part(measurement, "evidence").get("worker", ""),
        "created_unix_ns": record.get("created_unix_ns", 0),
        "message": measurement.get("message", ""),
        "trace": record.get("trace", ""),
    }
