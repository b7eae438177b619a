"""The tuning service for the time of a benchmark: `heddle-scheduler --embedded` on a free port."""

import os
import subprocess
import sys
import time

START_LIMIT_S = 60
TUNE_LIMIT_S = 6 * 3600


class ServiceError(Exception):
    """The service or a command of it failed; its last words."""


class Service:
    def __init__(self, programs, data):
        os.makedirs(data, exist_ok=True)
        self._heddle = os.path.join(programs, "heddle")
        self._log = os.path.join(data, "service.log")
        port_file = os.path.join(data, "port")
        if os.path.exists(port_file):
            os.remove(port_file)
        scheduler = os.path.join(programs, "heddle-scheduler")
        argv = [scheduler, "--embedded", "--listen", "127.0.0.1:0", "--port-file", port_file, "--data", data]
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

    def tune(self, model, module, target, trials, seed):
        """Tunes a model and writes its module. Seconds it took."""
        start = time.monotonic()
        self._run(
            ["tune", model, "-o", module, "--target", target, "--trials", str(trials), "--seed", str(seed), "--force", "--plain"],
            stdout=sys.stderr,
        )
        return time.monotonic() - start

    def best_records(self, target, path):
        """Writes the fastest record of every task for the canonical `target` as JSON lines."""
        self._run(["records", "export", "--best", "--valid", "--target", target, "-o", path])

    def close(self):
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self, argv, stdout=None):
        done = subprocess.run([self._heddle, "--server", self.address] + argv, stdout=stdout, timeout=TUNE_LIMIT_S)
        if done.returncode != 0:
            raise ServiceError(f"heddle {argv[0]} ended with status {done.returncode}; the service's log is {self._log}")
