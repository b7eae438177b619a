"""One side of a comparison: a long-lived process pinned to its cores. A request and its answer are one line of JSON each.

Between requests the process is stopped (SIGSTOP): thread pools spin before they sleep, on cores that the other side needs.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time


class SideError(Exception):
    """The side failed a request. The text is its own message, or how the process ended."""


class Side:
    """Runs the program `argv` on the cores `cpus`. With None the program pins itself."""

    def __init__(self, name, argv, cpus=None, env=None):
        self.name = name
        argv = ["setpriv", "--pdeathsig", "KILL"] + argv  # a stopped process does not notice that its parent is gone
        if cpus is not None:
            argv = ["taskset", "-c", ",".join(map(str, cpus))] + argv
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            start_new_session=True,  # so that its children can be killed with it
        )
        self._buffer = b""

    def ask(self, do, limit_s=120.0, **fields):
        """The answer to a request. SideError if the side reports an error, ends, or exceeds the limit."""
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write((json.dumps({"do": do, **fields}) + "\n").encode())
            self._process.stdin.flush()
            answer = json.loads(self._read_line(do, limit_s))
        except BrokenPipeError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1)
            raise SideError(f"{self.name} has ended (status {self._process.returncode}) before '{do}'") from None
        except ValueError as error:
            raise SideError(f"{self.name}: '{do}' was not answered in JSON: {error}") from None
        self._process.send_signal(signal.SIGSTOP)
        if "error" in answer:
            raise SideError(f"{self.name}: {answer['error']}")
        return answer

    def has_ended(self):
        return self._process.poll() is not None

    def cpu_seconds(self):
        """The CPU time of its threads, and the time in which they were ready to run but had no core."""
        used = waited = 0
        for thread in os.listdir(f"/proc/{self._process.pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{self._process.pid}/task/{thread}/schedstat") as file:
                ran_ns, waited_ns, _ = map(int, file.read().split())
                used, waited = used + ran_ns * 1e-9, waited + waited_ns * 1e-9
        return used, waited

    def close(self):
        self._process.send_signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._end_children()
        self._process.stdout.close()

    def _end_children(self):
        """Kills processes that the side started and left behind, such as the workers of TVM's builder."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read_line(self, do, limit_s):
        end = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._process.stdout], [], [], max(end - time.monotonic(), 0))
            if not ready:
                self._process.kill()
                raise SideError(f"{self.name}: '{do}' took longer than {limit_s:.0f} s")
            got = os.read(self._process.stdout.fileno(), 1 << 16)
            if not got:
                raise SideError(f"{self.name} ended during '{do}' (status {self._process.wait()})")
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
