"""Workers as jobs of Slurm. The instances of a class are the tasks of array jobs that have the name heddle-CLASS; the number of a worker
is its array index. The batch script runs the worker by `exec`, so that Slurm's SIGTERM reaches it (deploy/slurm/worker.sbatch)."""

import re

from .commands import CommandError, output_of
from .rules import LEAVING, PENDING, RUNNING

LIMIT_S = 60
_PENDING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED"}


class SourceError(Exception):
    """The source of machines refuses or does not answer. The text is its last line. `started`: numbers that were started before."""

    def __init__(self, text, started=()):
        super().__init__(text)
        self.started = tuple(started)


class Source:
    """What the sources of machines have in common."""

    alive = staticmethod(lambda: None)  # called before each request; none takes longer than a minute


class Slurm(Source):
    def __init__(self, settings, classes):
        """`classes`: name -> {"script": batch script, "sbatch": further arguments of sbatch}."""
        self._classes = {}
        for name, options in classes.items():
            if "script" not in options:
                raise ValueError(f"classes.{name}: `script`, the batch script of its workers, is missing")
            self._classes[name] = (options["script"], list(options.get("sbatch", ())))
        self._jobs = {}  # (class, number) -> JOB_INDEX, as of the last list()

    def list(self, name):
        """number -> PENDING, RUNNING or LEAVING."""
        instances = {}
        for line in self._run("squeue", "--noheader", "--array", "--name", f"heddle-{name}", "--format", "%F %K %T").splitlines():
            match = re.fullmatch(r"([0-9]+) ([0-9]+) ([A-Z_]+)", line.strip())
            if not match:
                continue
            number = int(match[2])
            state = PENDING if match[3] in _PENDING else RUNNING if match[3] == "RUNNING" else LEAVING
            # Of two with one number, the older one is about to end.
            if instances.get(number, LEAVING) == LEAVING:
                instances[number] = state
                self._jobs[name, number] = f"{match[1]}_{match[2]}"
        return instances

    def start(self, name, numbers):
        script, options = self._classes[name]
        array = ",".join(map(str, sorted(numbers)))
        self._run("sbatch", "--parsable", f"--job-name=heddle-{name}", f"--array={array}", *options, script)

    def drain(self, name, number):
        """The worker gets SIGTERM, and SIGKILL after Slurm's KillWait."""
        job = self._jobs.get((name, number))
        if job is None:
            raise SourceError(f"squeue lists no task {number} of heddle-{name}")
        self._run("scancel", job)

    def _run(self, *command):
        self.alive()
        try:
            return output_of(command, LIMIT_S)
        except CommandError as error:
            raise SourceError(str(error)) from error
