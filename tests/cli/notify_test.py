"""What the daemons tell a service manager: that they are ready, that they are well, that they end."""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from programs import BIN

LIMIT_S = 60
WATCHDOG = "WATCHDOG_USEC=1500000"
READY = f"READY=1\n{WATCHDOG}"  # a take-over had more time
CORES = sorted(os.sched_getaffinity(0))


class NotifyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.processes = []

    def tearDown(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait(timeout=60)
        self.folder.cleanup()

    def start(self, *words):
        """The process, and the manager's socket that it tells. The watchdog wants to hear of it every 1.5 seconds."""
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(str(self.path / f"{len(self.processes)}.manager"))
        manager.settimeout(LIMIT_S)
        self.addCleanup(manager.close)
        # WATCHDOG_PID is left out: it is for a manager that does not know which process it starts.
        environment = dict(os.environ, NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC=WATCHDOG.split("=")[1], XDG_CACHE_HOME=str(self.path / "cache"))
        with open(self.path / f"{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen([str(BIN / words[0]), *map(str, words[1:])], stdout=log, stderr=log, env=environment)
        self.processes.append(process)
        return process, manager

    def logs(self):
        return "\n".join(f"{log}: {log.read_text()[-1000:]}" for log in sorted(self.path.glob("*.log")))

    def hear(self, manager):
        try:
            return manager.recv(256).decode()
        except TimeoutError:
            self.fail("nothing was told: " + self.logs())

    def check(self, process, manager):
        """After READY, which has been heard: well as long as it runs, silent while it stands still, and the end."""
        for _ in range(3):
            self.assertEqual(self.hear(manager), "WATCHDOG=1")
        process.send_signal(signal.SIGSTOP)
        manager.settimeout(2)
        with self.assertRaises(TimeoutError):
            for _ in range(3):  # one may be under way
                manager.recv(256)
        process.send_signal(signal.SIGCONT)
        manager.settimeout(LIMIT_S)
        self.assertEqual(self.hear(manager), "WATCHDOG=1")
        process.send_signal(signal.SIGTERM)
        said = self.hear(manager)
        while said == "WATCHDOG=1":
            said = self.hear(manager)
        self.assertEqual(said, "STOPPING=1")
        self.assertEqual(process.wait(LIMIT_S), 0)

    def test_daemons_tell_their_manager(self):
        sockets = {name: f"unix:{self.path / name}" for name in ("tracker", "scheduler", "worker")}
        tracker = self.start("heddle-tracker", "--listen", sockets["tracker"])
        self.assertEqual(self.hear(tracker[1]), READY, self.logs())
        scheduler = self.start("heddle-scheduler", "--listen", sockets["scheduler"], "--tracker", sockets["tracker"], "--data", self.path / "data")
        self.assertEqual(self.hear(scheduler[1]), READY, self.logs())
        worker = self.start("heddle-worker", "--listen", sockets["worker"], "--tracker", sockets["tracker"], "--cpu-slots", CORES[0], "--id", "w")
        self.assertEqual(self.hear(worker[1]), READY, self.logs())
        # Ready means that calls are taken.
        listed = subprocess.run([str(BIN / "heddle"), "--server", sockets["scheduler"], "devices"], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        for process, manager in (scheduler, worker, tracker):
            while self.drain(manager):
                pass
            self.check(process, manager)

    def drain(self, manager):
        """Takes one message that has come meanwhile; false if there is none."""
        manager.setblocking(False)
        try:
            manager.recv(256)
            return True
        except BlockingIOError:
            return False
        finally:
            manager.settimeout(LIMIT_S)

    def test_without_a_manager_nothing_is_told(self):
        with open(self.path / "0.log", "wb") as log:
            process = subprocess.Popen([str(BIN / "heddle-tracker"), "--listen", f"unix:{self.path / 'tracker'}"], stdout=log, stderr=log)
        self.processes.append(process)
        deadline = time.monotonic() + LIMIT_S
        while not (self.path / "tracker").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(LIMIT_S), 0, self.logs())


if __name__ == "__main__":
    unittest.main()
