"""The tuning service while a benchmark runs: `heddle-scheduler --embedded` on a free port. Its database stays, so that an
interrupted run continues with the trials it already has."""

import json
import os
import subprocess
import sys
import time

START_LIMIT_S = 60
TUNE_LIMIT_S = 6 * 3600
COMMAND_LIMIT_S = 600
CANCEL_LIMIT_S = 120
POLL_S = 2.0
REPORT_S = 30.0
ENDED = ("done", "failed", "cancelled")


class ServiceError(Exception):
    """The service or one of its commands failed. The text is its last message."""


class Service:
    def __init__(self, programs, data, extra=()):
        os.makedirs(data, exist_ok=True)
        self._heddle = os.path.join(programs, "heddle")
        self._log = os.path.join(data, "service.log")
        port_file = os.path.join(data, "port")
        if os.path.exists(port_file):
            os.remove(port_file)
        scheduler = os.path.join(programs, "heddle-scheduler")
        argv = [scheduler, "--embedded", "--listen", "127.0.0.1:0", "--port-file", port_file, "--data", data, *extra]
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM"] + argv, stdout=log, stderr=log)
        end = time.monotonic() + START_LIMIT_S
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            if self._process.poll() is not None or time.monotonic() > end:
                self.close()
                raise ServiceError(f"the service does not start: see {self._log}")
            time.sleep(0.1)
        with open(port_file) as file:
            self.address = f"127.0.0.1:{file.read().strip()}"
        # Jobs of an interrupted run resume by themselves and would disturb this run. Their measurements stay.
        for line in self._run("jobs", "--json").splitlines():
            self._cancel(json.loads(line)["id"])

    def tune(self, model, target, trials, seed, limit_s=None, records=None, flags=()):
        """Tunes the tasks of a model for at most `limit_s`; earlier measurements count as trials. Returns the finished job."""
        flags = ["--target", target, "--trials", trials, "--seed", seed, *flags]
        if records and os.path.exists(records):
            flags += ["--records", records]
        identifier = self._run("submit", model, *flags).strip()
        started = reported = time.monotonic()
        try:
            while True:
                time.sleep(POLL_S)
                job = json.loads(self._run("show", identifier, "--json"))
                if job["state"] in ENDED:
                    break
                now = time.monotonic()
                if now - started > min(limit_s or TUNE_LIMIT_S, TUNE_LIMIT_S):
                    job = self._cancel(identifier)
                    break
                if now - reported > REPORT_S:
                    reported = now
                    done = f"{job.get('trials', 0)} of {job.get('trials_budget', 0)} trials"
                    print(f"  {job['spec']['name']}: {done}, {now - started:.0f} s", file=sys.stderr, flush=True)
        except BaseException:
            self._cancel(identifier)
            raise
        if job["state"] == "failed":
            raise ServiceError(job.get("reason", "the job failed"))
        return job

    def fastest_records(self, key, target, count):
        """The lines of the `count` fastest records of a task, each trace once."""
        lines = self._run("records", "export", "--task", key, "--target", target, "--valid").splitlines()
        fastest = {}
        for line in sorted(lines, key=lambda line: json.loads(line)["median_ns"]):
            fastest.setdefault(json.loads(line)["trace"], line)
        return list(fastest.values())[:count]

    def fetch(self, job, path, schedules="best"):
        """Writes the module of a job, or with "default" the one of its plan without tuned schedules."""
        self._run("fetch", job["id"], "-o", path, "--schedules", schedules)

    def submit(self, model, trials, seed, strategy="random"):
        """Returns the job's id. With the default strategy the candidates depend on no measured time: every task gets the same
        number of random trials. Other strategies learn from times."""
        flags = ["--trials", trials, "--seed", seed, "--strategy", strategy, "--allocation", "uniform"]
        return self._run("submit", model, *flags).strip()

    def job(self, job):
        """The answer of `heddle show --json`."""
        return json.loads(self._run("show", job, "--json"))

    def all_records(self, path):
        """Every record of the database. The export stays at `path`."""
        self._run("records", "export", "-o", path)
        with open(path) as file:
            return [json.loads(line) for line in file]

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _cancel(self, identifier):
        """Cancels a job, waits until it has ended, and returns it."""
        self._run("cancel", identifier)
        end = time.monotonic() + CANCEL_LIMIT_S
        while True:
            job = json.loads(self._run("show", identifier, "--json"))
            if job["state"] in ENDED:
                return job
            if time.monotonic() > end:
                raise ServiceError(f"{identifier} does not end; the service's log is {self._log}")
            time.sleep(0.2)

    def _run(self, *argv):
        # The first core: measurements take the last ones.
        confined = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        argv = [self._heddle, "--server", self.address, *map(str, argv)]
        done = subprocess.run(confined + argv, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise ServiceError(f"heddle {argv[3]}: {words[-1][:300]} (the service's log is {self._log})")
        for line in done.stderr.splitlines() if argv[3] == "submit" else []:
            print(f"  {line}", file=sys.stderr)
        return done.stdout
