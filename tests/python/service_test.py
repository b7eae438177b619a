#!/usr/bin/env python3
"""heddle.Client and heddle.tune against a real service on loopback.

Usage: service_test.py BIN_DIR [unittest arguments], in an environment with the package
"""
import contextlib
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import programs  # takes BIN_DIR from the arguments

import numpy as np

import heddle
from heddle import _views

LIMIT_S = 240  # no single wait here takes longer
INTERRUPT_S = 0.2  # what a wait takes at most to end after Ctrl-C


def interrupted_after(call, tries=5):
    """Seconds from SIGINT to KeyboardInterrupt while `call` waits. The best of some tries: other work of the machine delays it, too."""
    best = float("inf")
    for _ in range(tries):
        sent = []

        def send():
            time.sleep(0.3)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        try:
            sender.start()
            call()
            raise AssertionError("the call returned")
        except KeyboardInterrupt:
            best = min(best, time.monotonic() - sent[0])
        finally:
            sender.join(60)
        if best < INTERRUPT_S:
            break
    return best


def children():
    """The processes whose parent this one is."""
    found = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(stat.parent.name)
    return found


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.model = cls.path / "mlp.onnx"
        programs.heddle("zoo", "mlp", "-o", cls.model, check=0)
        cls.service = programs.Service(cls.path)
        cls.client = heddle.Client(cls.service.address)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        cls.directory.cleanup()

    def refused(self, kind, says, call, *args, **kwargs):
        with self.assertRaises(kind) as caught:
            call(*args, **kwargs)
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    @contextlib.contextmanager
    def long_job(self, **options):
        """A job that does not end by itself while a test runs."""
        job = self.client.submit(self.model, trials=100000, force=True, **options)
        try:
            yield job
        finally:
            job.cancel()

    def test_a_job_from_submit_to_module(self):
        job = self.client.submit(self.model, trials=4, batch=4, compare=False, force=True, name="<b>&small")
        self.assertRegex(job.id, r"^j\d+$")
        self.assertIs(job.wait(timeout=LIMIT_S), job)
        self.assertEqual(job.state, "done")
        self.assertTrue(job.why)
        self.assertGreater(job.latency_ns, 0)
        tasks = job.tasks()
        self.assertGreater(len(tasks), 2)
        self.assertTrue(all(task.trials > 0 and task.best_ns > 0 and task.uses > 0 for task in tasks))
        self.assertIn(tasks[0].label, repr(tasks))
        # The same as the command line says.
        told = programs.heddle("show", job.id, "--plain", server=self.service.address, check=0).stdout
        for task in tasks:
            self.assertIn(f"\t{task.trials}/{task.budget}\t", told)

        trials = job.trials()
        rows = trials if isinstance(trials, list) else trials.to_dict("records")
        self.assertEqual(len(rows), job.info()["trials"])
        valid = [row for row in rows if row["valid"]]
        self.assertTrue(valid and all(row["median_ns"] > 0 and len(row["samples_ns"]) > 0 for row in valid))
        self.assertEqual({row["task_key"] for row in rows}, {task.key for task in tasks})
        times = [row["created_unix_ns"] for row in rows]
        self.assertEqual(times, sorted(times))
        with self.assertWarnsRegex(UserWarning, "newest 2 trials"):
            self.assertEqual(len(job.trials(limit=2)), 2)

        page = job._repr_html_()
        self.assertIn("&lt;b&gt;&amp;small", page)
        self.assertNotIn("<b>&", page)
        self.assertEqual(page.count("<tr>"), len(tasks) + 1)
        listed = self.client.jobs(all=True)
        self.assertIn(job.id, [other.id for other in listed])
        self.assertIn("&lt;b&gt;&amp;small", listed._repr_html_())
        self.assertIn("done", repr(listed))

        module = job.module()
        self.assertIs(module.job, job)
        path = self.path / "fetched.heddle"
        self.assertEqual(job.fetch(path), str(path))
        value = np.random.default_rng(2).standard_normal(module.inputs[0].shape).astype(np.float32)
        name = module.outputs[0].name
        np.testing.assert_array_equal(heddle.Module(path).run(value)[name], module.run(value)[name])
        naive = job.module(schedules="naive").run(value)[name]
        np.testing.assert_allclose(naive, module.run(value)[name], rtol=1e-4, atol=1e-5)
        self.refused(heddle.UsageError, "no regular file", job.fetch, "/dev/null")
        self.refused(heddle.UsageError, "schedules='x'", job.fetch, path, "x")
        self.refused(heddle.UsageError, "cannot write", job.fetch, self.path / "none" / "x.heddle")
        self.assertEqual([file.name for file in self.path.glob(".heddle-*")], [])

    def test_the_life_of_a_job(self):
        with self.long_job() as job:
            self.refused(heddle.TimedOut, "is still", job.wait, timeout=0.3)
            job.wait("first-valid", timeout=LIMIT_S)
            self.assertTrue(any(task.best_ns for task in job.tasks()))
            self.assertEqual(job.pause().state, "paused")
            self.assertNotEqual(job.resume().state, "paused")
            self.assertIs(job.prioritize(-3), job)
            self.refused(heddle.UsageError, "", job.prioritize, 11)
            self.assertIn(job.id, [other.id for other in self.client.jobs()])
            self.assertEqual(self.client.job(job.id).info()["spec"]["trials_per_task"], 100000)
        self.refused(heddle.Cancelled, job.id, job.wait, timeout=LIMIT_S)
        self.assertEqual(job.state, "cancelled")
        self.refused(heddle.UsageError, "", job.pause)

    def test_ctrl_c_ends_a_wait(self):
        with self.long_job() as job:
            self.assertLess(interrupted_after(lambda: job.wait(timeout=LIMIT_S)), INTERRUPT_S)
            self.assertNotIn(job.state, _views.FINAL)

    def test_ctrl_c_ends_a_call_that_nobody_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = heddle.Client(f"127.0.0.1:{silent.getsockname()[1]}")
            self.assertLess(interrupted_after(client.jobs), INTERRUPT_S)

    def test_ctrl_c_ends_a_program(self):
        """Nobody waits for a call that is still under way, and nothing crashes because of it."""
        program = "import heddle, sys; client = heddle.Client(sys.argv[1]); print('waiting', flush=True); client.jobs()"
        with socket.create_server(("127.0.0.1", 0)) as silent:
            started = subprocess.Popen([sys.executable, "-c", program, f"127.0.0.1:{silent.getsockname()[1]}"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                self.assertEqual(started.stdout.readline(), "waiting\n")
                time.sleep(0.5)
                started.send_signal(signal.SIGINT)
                _, told = started.communicate(timeout=10)  # far below the 30 s of the call
            finally:
                started.kill()
                started.wait(timeout=60)
        self.assertEqual(started.returncode, -signal.SIGINT, told)  # a shell shows 130
        self.assertTrue(told.rstrip().endswith("KeyboardInterrupt"), told)

    def test_errors(self):
        self.refused(heddle.Unreachable, "127.0.0.1:9", heddle.Client("127.0.0.1:9").jobs)
        self.refused(heddle.Unreachable, "127.0.0.1:9", heddle.Client("127.0.0.1:9").submit, self.model)
        self.refused(heddle.NotFound, "j999", self.client.job, "j999")
        self.refused(heddle.NotFound, "nowhere.onnx", self.client.submit, self.path / "nowhere.onnx")
        self.refused(heddle.UsageError, "", self.client.submit, b"no model at all")
        self.refused(heddle.UsageError, "quantum", self.client.submit, self.model, target="quantum -qubits=5")
        self.refused(heddle.UsageError, "time_limit='soon'", self.client.submit, self.model, time_limit="soon")
        self.refused(heddle.UsageError, "time_limit=-1", self.client.submit, self.model, time_limit=-1)
        self.refused(heddle.UsageError, "trials='many' is no int", self.client.submit, self.model, trials="many")
        self.refused(heddle.UsageError, "shapes=3", self.client.submit, self.model, shapes=3)
        self.refused(TypeError, "did you mean 'trials'?", self.client.submit, self.model, trails=3)
        self.refused(heddle.UsageError, "for_='soon'", heddle.Job(self.client, "j1").wait, "soon")
        self.refused(heddle.UsageError, "cannot be read", heddle.Client(self.service.address, token_file=self.path / "none").jobs)

    def test_progress_of_a_notebook(self):
        class ZMQInteractiveShell:
            pass

        pictures = []
        handle = types.SimpleNamespace(update=lambda picture, raw: pictures.append(picture))

        def display(picture, raw, display_id):
            pictures.append(picture)
            return handle

        notebook = types.SimpleNamespace(get_ipython=ZMQInteractiveShell, display=types.SimpleNamespace(display=display))
        with mock.patch.dict(sys.modules, IPython=notebook):
            self.client.submit(self.model, trials=4, batch=4, compare=False, force=True, name="<i>").wait(timeout=LIMIT_S, progress=None)
        self.assertGreater(len(pictures), 1)
        self.assertIn("done", pictures[-1]["text/plain"])
        for picture in pictures:
            self.assertIn("&lt;i&gt;", picture["text/html"])
            self.assertNotIn("<i>", picture["text/html"])

    def test_threads_share_a_client(self):
        found = []
        threads = [threading.Thread(target=lambda: found.append(len(self.client.devices()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(found, [1] * 8)

    def test_a_forked_child_is_told(self):
        self.client.jobs()
        child = os.fork()
        if child == 0:
            refusals = 0
            for call in (self.client.jobs, lambda: heddle.Client(self.service.address)):
                try:
                    call()
                except heddle.UsageError as error:
                    refusals += "forked" in str(error)
            del type(self).client
            os._exit(0 if refusals == 2 else 1)
        deadline = time.monotonic() + 60
        done = 0
        while not done and time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.fail("the child hangs")
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.client.jobs()


class ViewsTest(unittest.TestCase):
    def test_a_task_that_keeps_the_default_kernel_has_no_gain(self):
        task = {"info": {"label": "dense", "weight": 1, "flops": 8e6}, "best_ns": 1e6, "untuned_ns": 2e6, "keeps_default": True, "compared": {"gain": {"ratio": 1.02}}}
        shown = _views.tasks_of({"tasks": [task]})
        self.assertEqual((shown[0].gain, shown[0].gflops), (1.0, 4.0))
        self.assertIn("2.000 ms", repr(shown))


class TuneTest(unittest.TestCase):
    """What a notebook does, with a service that is started for it."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.model = self.path / "mlp.onnx"
        programs.heddle("zoo", "mlp", "-o", self.model, check=0)
        self.addCleanup(self.directory.cleanup)
        # An address of its own, so that the service of whoever runs the tests is not used.
        settings = {"PATH": f"{programs.BIN}:{os.environ['PATH']}", "XDG_DATA_HOME": str(self.path)}
        patch = mock.patch.dict(os.environ, settings)
        patch.start()
        self.addCleanup(patch.stop)

    def test_tunes_and_runs(self):
        told = io.StringIO()
        output = self.path / "mlp.heddle"
        with contextlib.redirect_stderr(told):
            module = heddle.tune(self.model, trials=8, batch=8, time_limit="10m", output=output, progress=True, name="small")
        self.assertIn("done", told.getvalue())
        # The service is gone, and the job still tells.
        self.assertEqual(module.job.state, "done")
        self.assertGreater(module.job.gain, 0)
        self.assertEqual(len(module.job.trials()), module.job.info()["trials"])
        self.assertEqual(module.job.info()["spec"]["name"], "small")
        value = np.random.default_rng(3).standard_normal(module.inputs[0].shape).astype(np.float32)
        result = module.run({module.inputs[0].name: value})[module.outputs[0].name]
        np.testing.assert_allclose(result.sum(), 1, rtol=1e-4)  # probabilities
        np.save(self.path / "x.npy", value)
        programs.heddle("run", output, "--input", self.path / "x.npy", "-o", self.path / "y.npy", check=0)
        np.testing.assert_array_equal(np.load(self.path / "y.npy"), result)
        # What was measured is used again, also for the same model from memory.
        again = heddle.tune(self.model.read_bytes(), trials=8, batch=8, compare=False, progress=False)
        self.assertLess(again.job.info().get("trials", 0), module.job.info()["trials"])

    def test_the_example_of_the_documents(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
        example = page.read_text().split("```python\n")[1].split("```")[0]
        self.assertIn("trials=16", example)
        names = {}
        with contextlib.chdir(self.path), contextlib.redirect_stdout(io.StringIO()) as told:
            exec(example.replace("trials=16", "trials=2"), names)
        self.assertIn("mlp.heddle", told.getvalue())
        self.assertEqual(names["probabilities"].shape, (1, 10))
        self.assertTrue((self.path / "mlp.heddle").exists())

    def test_ctrl_c_stops_the_service(self):
        before = children()
        told = io.StringIO()

        def send():
            deadline = time.monotonic() + LIMIT_S
            while "trials" not in told.getvalue() and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        with contextlib.redirect_stderr(told), self.assertRaises(KeyboardInterrupt):
            heddle.tune(self.model, trials=100000, progress=True)
        sender.join(60)
        self.assertIn("measurements so far are kept", told.getvalue())
        self.assertEqual(children(), before)

    def test_a_missing_program_is_named(self):
        with mock.patch.dict(os.environ, PATH="/nowhere"), self.assertRaises(heddle.Error) as caught:
            heddle.tune(self.model, progress=False)
        self.assertIn("heddle-scheduler", str(caught.exception))

    def test_a_named_server_is_not_replaced(self):
        with self.assertRaises(heddle.Error):
            heddle.tune(self.model, server="127.0.0.1:9", token_file=self.path / "none", progress=False)


if __name__ == "__main__":
    unittest.main()
