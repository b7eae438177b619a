#!/usr/bin/env python3
"""What programs see of the three daemons: metrics, health pages and logs of real processes on loopback, and whether the dashboard
in deploy/grafana finds data in a real Prometheus.

Usage: metrics_test.py BIN_DIR [unittest arguments]
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from programs import BIN, heddle

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/heddle.json"
START_S = 60  # for one daemon, on a busy machine
FIND_S = 40  # for every query of the dashboard
TRIALS = 4


def get(url):
    """The status and the text of a page."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def eventually(condition, limit_s=START_S):
    deadline = time.monotonic() + limit_s
    while True:
        found = condition()
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Daemon:
    """One of the three programs, with its log in JSON."""

    def __init__(self, folder, program, *flags):
        self.log = folder / f"{program}.log"
        port_flags, port_file = (), folder / f"{program}.port"
        if program != "heddle-worker":
            port_flags = ("--port-file", str(port_file))
        self.process = subprocess.Popen(
            [str(BIN / program), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug",
             "--log-file", str(self.log), *port_flags, *map(str, flags)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(os.environ, HEDDLE_MACHINE="table"))
        self.url = eventually(self.find_url)
        if not self.url:
            self.process.kill()
            raise AssertionError(f"{program} did not start: {self.process.communicate(timeout=60)[1]}")
        self.address = "127.0.0.1:" + eventually(lambda: port_file.exists() and port_file.read_text().strip()) if port_flags else ""

    def find_url(self):
        found = re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text() if self.log.exists() else "")
        return found.group() if found else None

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def series(self):
        """Values by name and labels, as they stand in the text."""
        status, text = get(self.url + "/metrics")
        assert status == 200, text
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if not line.startswith("#")}

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait(timeout=60)
        self.process.stderr.close()


def expressions():
    board = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def metric_names(expression):
    """The metrics that a query reads: words that are neither functions nor labels."""
    bare = re.sub(r'"[^"]*"', "", expression)  # no label values
    bare = re.sub(r"\b(by|without) *\([^)]*\)", "", bare)  # no groupings
    bare = re.sub(r"\{[^}]*\}", "", bare)  # no label names
    return set(re.findall(r"\b(?:heddle|process)_\w+|\bup\b", bare))


class Watched(unittest.TestCase):
    """A tracker, a worker and a scheduler that have done one job, and of which one job was cancelled while it waited for a device."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.daemons = []
        cores = sorted(os.sched_getaffinity(0))
        try:
            cls.tracker = cls.start("heddle-tracker")
            cls.worker = cls.start("heddle-worker", "--tracker", cls.tracker.address, "--cpu-slots", cores[0], "--device-slots",
                                   cores[-1], "--id", "w1", "--blob-cache", cls.path / "blobs")
            cls.scheduler = cls.start("heddle-scheduler", "--tracker", cls.tracker.address, "--data", cls.path / "data")
            cls.prometheus = cls.start_prometheus() if shutil.which("prometheus") else None
            heddle("zoo", "mlp", "-o", cls.path / "mlp.onnx", check=0)
            cls.job = cls.submit("mlp.onnx", "--trials", TRIALS, "--batch", 2, "--name", "a model")
            heddle("wait", cls.job, "--timeout", 200, server=cls.scheduler.address, check=0)
            cls.waiting_job = cls.submit("mlp.onnx", "--target", "llvm -mcpu=atom", "--trials", TRIALS)
            cls.waited = eventually(lambda: cls.scheduler.series()['heddle_jobs{state="tuning"}'])
            heddle("cancel", cls.waiting_job, server=cls.scheduler.address, check=0)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def start(cls, program, *flags):
        daemon = Daemon(cls.path, program, *flags)
        cls.daemons.append(daemon)
        return daemon

    @classmethod
    def submit(cls, model, *flags):
        return heddle("submit", cls.path / model, *flags, server=cls.scheduler.address, check=0).stdout.strip()

    @classmethod
    def start_prometheus(cls):
        """The example configuration with the addresses of these daemons, and a scrape each second."""
        text = (ROOT / "deploy/prometheus/prometheus.yml").read_text().replace("scrape_interval: 15s", "scrape_interval: 1s")
        for number, daemon in enumerate((cls.scheduler, cls.tracker, cls.worker)):
            example = f"127.0.0.1:{9180 + number}]"
            assert example in text, text
            text = text.replace(example, daemon.url.removeprefix("http://") + "]")
        (cls.path / "prometheus.yml").write_text(text)
        port = free_port()
        cls.prometheus_url = f"http://127.0.0.1:{port}"
        process = subprocess.Popen(
            ["prometheus", f"--config.file={cls.path}/prometheus.yml", f"--storage.tsdb.path={cls.path}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return process

    @classmethod
    def tearDownClass(cls):
        prometheus = getattr(cls, "prometheus", None)
        if prometheus is not None:
            prometheus.terminate()
            try:
                prometheus.wait(20)
            except subprocess.TimeoutExpired:
                prometheus.kill()
                prometheus.wait(timeout=60)
        for daemon in reversed(cls.daemons):
            daemon.stop()
        cls.directory.cleanup()

    def test_the_scheduler_counts_what_the_job_did(self):
        series = self.scheduler.series()
        self.assertEqual(series["heddle_jobs_submitted_total"], 2)
        self.assertEqual(series['heddle_jobs_finished_total{state="done"}'], 1)
        self.assertEqual(series['heddle_jobs_finished_total{state="cancelled"}'], 1)
        self.assertEqual(series['heddle_jobs_finished_total{state="failed"}'], 0)
        self.assertEqual(self.waited, 1, "the job that waited for a device was seen")
        shown = json.loads(heddle("show", self.job, "--json", server=self.scheduler.address, check=0).stdout)
        counted = sum(value for name, value in series.items() if name.startswith("heddle_trials_total{"))
        self.assertEqual(counted, sum(task["trials"] for task in shown["tasks"]))
        self.assertEqual(series['heddle_stages_total{result="ok",stage="import"}'], 2)
        self.assertEqual(series['heddle_calls_total{code="OK",method="heddle.v1.JobService/Submit"}'], 2)
        self.assertEqual(series["heddle_store_writable"], 1)
        self.assertGreater(series["heddle_disk_free_bytes"], 0)

    def test_tracker_and_worker_count_it_too(self):
        tracker, worker = self.tracker.series(), self.worker.series()
        self.assertEqual(tracker["heddle_tracker_workers"], 1)
        granted = tracker['heddle_tracker_lease_requests_total{result="granted"}']
        self.assertEqual(granted, self.scheduler.series()['heddle_lease_requests_total{result="granted"}'])
        self.assertGreaterEqual(granted, 6)
        stages = sum(value for name, value in worker.items() if name.startswith("heddle_worker_stages_total{"))
        self.assertEqual(stages, granted)
        self.assertEqual(worker["heddle_worker_slots"], 2)
        self.assertIn('heddle_worker_confinement{mechanism="landlock"}', worker)

    def test_no_label_of_a_job_or_a_user(self):
        for daemon in self.daemons:
            text = get(daemon.url + "/metrics")[1]
            for label in re.findall(r'(\w+)="', text):
                self.assertNotIn(label, ("job", "trial", "task", "user", "tenant", "attempt", "worker"))
            self.assertNotIn(f'"{self.job}"', text)

    def test_healthy_daemons_say_so(self):
        for daemon in self.daemons:
            for page in ("/healthz", "/readyz"):
                self.assertEqual(get(daemon.url + page), (200, "ok\n"), daemon.log)
            self.assertEqual(get(daemon.url + "/nothing")[0], 404)

    def test_promtool_likes_the_text(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (package prometheus)")
        for daemon in self.daemons:
            text = get(daemon.url + "/metrics")[1]
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""), daemon.log)

    def test_the_dashboard_names_only_what_there_is(self):
        offered = {"up"}
        for daemon in self.daemons:
            offered |= {name.split("{")[0] for name in daemon.series()}
        queries = expressions()
        self.assertGreater(len(queries), 30)
        used = set().union(*map(metric_names, queries))
        self.assertGreater(len(used), 30)
        self.assertEqual(used - offered, set())

    def test_the_document_names_every_metric(self):
        document = (ROOT / "docs/operating.md").read_text()
        for daemon in self.daemons:
            for name in daemon.series():
                name = re.sub(r"_(bucket|sum|count)(\{.*)?$|\{.*", "", name)
                if name.startswith("heddle_"):
                    self.assertRegex(document, rf"`{name}[`{{]")

    def test_every_query_of_the_dashboard_finds_data(self):
        if self.prometheus is None:
            self.skipTest("prometheus is not installed")

        def empty():
            missing = []
            for expression in expressions():
                query = urllib.parse.urlencode({"query": expression})
                try:
                    status, text = get(f"{self.prometheus_url}/api/v1/query?{query}")
                except OSError as error:
                    return [str(error)]  # it is still starting
                self.assertIn(status, (200, 503), text)
                if status != 200 or not json.loads(text)["data"]["result"]:
                    missing.append(expression)
            return missing

        eventually(lambda: not empty(), FIND_S)
        self.assertEqual(empty(), [])

    def test_every_line_of_a_log_is_an_object(self):
        for daemon in self.daemons:
            lines = daemon.lines()
            self.assertGreater(len(lines), 1)
            for line in lines:
                self.assertEqual(list(line)[:4], ["time", "level", "program", "message"])
                self.assertEqual(line["program"], daemon.log.stem)

    def test_the_log_tells_what_became_of_jobs(self):
        def of(job, message):
            return [line for line in self.scheduler.lines() if line.get("job") == job and line["message"] == message]

        submitted, = of(self.job, "job submitted")
        self.assertEqual(submitted["name"], "a model")
        done, = of(self.job, "job done")
        self.assertEqual((done["level"], done["failed_trials"]), ("info", 0))
        self.assertEqual(len(of(self.waiting_job, "job cancelled")), 1)
        stages = of(self.job, "stage ended")
        self.assertEqual({line["stage"] for line in stages} & {"import", "propose", "build", "profile", "update", "compile"},
                         {"import", "propose", "build", "profile", "update", "compile"})
        worker = {line["attempt"] for line in self.worker.lines() if line["message"] == "stage ended" and line["job"] == self.job}
        self.assertEqual(worker, {line["attempt"] for line in stages})
        registered, = [line for line in self.tracker.lines() if line["message"] == "worker registered"]
        self.assertEqual((registered["worker"], registered["slots"]), ("w1", 2))

    def test_a_trace_of_the_job_for_perfetto(self):
        heddle("jobs", "trace", self.job, "-o", self.path / "trace.json", server=self.scheduler.address, check=0)
        text = (self.path / "trace.json").read_text()
        # Perfetto reads no further than the first member that it does not know.
        self.assertRegex(text, r'\A\{\s*"traceEvents"')
        events = json.loads(text)["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        for event in slices:
            self.assertGreaterEqual(event["ts"], 0)
            self.assertGreaterEqual(event["dur"], 0)
        names = {event["name"] for event in slices}
        for kind in ("import", "propose", "build", "profile", "update", "compile"):
            self.assertIn(f"{kind} {self.job}", names)
        threads = {event["args"]["name"] for event in events if event["ph"] == "M"}
        self.assertLessEqual({"jobs", "worker w1", self.job}, threads)
        placed = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
        self.assertEqual({(event["pid"], event["tid"]) for event in slices}, placed)


class Alone(unittest.TestCase):
    """A scheduler without a tracker."""

    def test_it_lives_and_is_not_ready(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            scheduler = Daemon(path, "heddle-scheduler", "--tracker", "127.0.0.1:9", "--data", path / "data")
            try:
                self.assertEqual(get(scheduler.url + "/healthz"), (200, "ok\n"))
                status, text = get(scheduler.url + "/readyz")
                self.assertEqual(status, 503)
                self.assertIn("tracker", text)
                self.assertEqual(scheduler.series()["heddle_tracker_connected"], 0)
            finally:
                scheduler.stop()

    def test_mistakes(self):
        for flags, word in ((("--http", "0.0.0.0:9180"), "ssh -L"), (("--http", "nonsense"), "HOST:PORT"),
                            (("--log-file", "/nowhere/log"), "/nowhere/log"), (("--log-level", "loud"), "loud")):
            with self.subTest(flags=flags), tempfile.TemporaryDirectory() as directory:
                done = subprocess.run([str(BIN / "heddle-scheduler"), "--data", directory + "/data", *flags], capture_output=True, text=True,
                                      timeout=60)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
