#!/usr/bin/env python3
"""The heddle command as its users type it: real binaries, a real service on loopback, and the mistakes people make.

Usage: cli_test.py BIN_DIR [unittest arguments]
"""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time
import unittest

from programs import BIN, LIMIT_S, Service, heddle, write_npy


class OneLineErrors(unittest.TestCase):
    """Mistakes that need no service to be found."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        heddle("zoo", "mlp", "-o", cls.path / "mlp.onnx", check=0)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def refused(self, code, *args, says, **kwargs):
        done = heddle(*args, check=code, cwd=self.path, **kwargs)
        lines = done.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        for word in says if isinstance(says, tuple) else (says,):
            self.assertIn(word, lines[0])
        return lines[0]

    def test_usage(self):
        self.refused(2, "frobnicate", says=("no command 'frobnicate'", "heddle --help"))
        self.refused(2, "fetc", "j1", says=("did you mean 'fetch'?", "heddle --help"))
        self.refused(2, "--server", "127.0.0.1:1", "shwo", says="did you mean 'show'?")
        self.refused(2, says=("subcommand is required: submit, tune, ", "heddle --help"))
        self.assertNotIn("did you mean", self.refused(2, "foo", says="no command 'foo'"))
        for word, ours in (("ls", "jobs"), ("status", "show"), ("kill", "cancel"), ("workers", "devices")):  # words of other tools
            self.refused(2, word, "j1", says=(f"no command '{word}'", f"did you mean '{ours}'?"))
        self.refused(2, "run", "m.heddle", "x.npy", says=("not expected: x.npy", "--input"))
        self.refused(2, "export", says="did you mean 'records export'?")
        self.refused(2, "submit", "mlp.onnx", "--trails", "5", says=("no option '--trails'", "did you mean '--trials'?", "heddle submit --help"))
        self.refused(2, "show", "j1", "--sever=127.0.0.1:1", says="did you mean '--server'?")
        self.refused(2, "jobs", "one", "two", says="not expected: one two (")
        self.refused(2, "help", "records", "exprt", says=("no command 'exprt'", "did you mean 'export'?"))
        self.assertIn("JSON lines", heddle("help", "records", "export", check=0).stdout)
        version = json.loads(heddle("version", "--json", check=0).stdout)
        self.assertEqual("heddle " + version["version"], heddle("version", check=0).stdout.strip())
        self.assertIn("--schedules", json.loads(heddle("help", "fetch", "--json", check=0).stdout)["help"])
        self.refused(2, "help", "fetc", says="did you mean 'fetch'?")
        self.assertIn("--schedules", heddle("help", "fetch", check=0).stdout)
        self.assertIn("heddle tune", heddle("help", check=0).stdout)
        self.assertEqual(heddle("version", check=0).stdout, heddle("--version", check=0).stdout)
        self.refused(2, "submit", says=("model", "heddle submit --help"))
        self.refused(2, "submit", "mlp.onnx", "--deadline", "", says=("--deadline", "empty"))
        self.refused(2, "submit", "mlp.onnx", "--deadline", "2020-01-01 10:00", says="has passed")
        self.refused(2, "submit", "mlp.onnx", "--deadline", "soon", says="--deadline 2h")
        self.refused(2, "submit", "mlp.onnx", "--seed", "-1", says=("--seed", "-1"))
        self.refused(2, "device", says=("subcommand is required: lease, drain, resume", "heddle device --help"))
        for wrong in ("soon", "-5", "nan", "inf"):
            self.refused(2, "wait", "j1", f"--timeout={wrong}", says=(f"'{wrong}'", "--timeout 30m"))
        for right in ("0.3", "300ms"):
            self.refused(6, "--server", "127.0.0.1:1", "wait", "j1", "--timeout", right, says=("job j1", "127.0.0.1:1"))
        waited = heddle("--server", "127.0.0.1:1", "wait", "j1", "--timeout", "3s", check=6)
        self.assertIn("no scheduler has told of j1 yet", waited.stderr)

    def test_addresses(self):
        for address in ("bogus", "http://127.0.0.1:9190", "127.0.0.1:99999"):
            self.refused(2, "jobs", "--server", address, says=(f"'{address}' is no address", "HOST:PORT"))
        done = subprocess.run([str(BIN / "heddle-scheduler"), "--tracker", "127.0.0.1:99999", "--data", str(self.path / "data"), "--listen", "127.0.0.1:0"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is no address", done.stderr)

    def test_ranges_of_the_scheduler(self):
        for value in ("15", "1048577", "much"):
            done = subprocess.run([str(BIN / "heddle-scheduler"), "--built-code-mib", value, "--data", str(self.path / "data")],
                                  capture_output=True, text=True, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--built-code-mib", done.stderr)

    def test_names_with_control_characters(self):
        self.refused(2, "submit", self.path / "mlp.onnx", "--name", "a\nb", says=("--name 'a\\nb'", "control characters"))
        model = self.path / "a\tb.onnx"
        model.write_bytes((self.path / "mlp.onnx").read_bytes())
        self.assertIn("4 tasks", heddle("submit", model, "--dry-run", "--server", "127.0.0.1:1", check=0).stdout)

    def test_a_models_own_texts_move_no_cursor(self):
        """Every text of the file in turn, which has no control character otherwise, and the file's name."""
        whole = (self.path / "mlp.onnx").read_bytes()
        for text in (b"heddle", b"input", b"probabilities", b"fc1.weight", b"fc1.out", b"fc1", b"relu1", b"softmax", b"ai.onnx"):
            model = self.path / "a\x1b[31mb.onnx"
            model.write_bytes(whole.replace(text, b"\x1b" + text[1:]))
            for args in (("inspect", model), ("inspect", model, "-v"), ("inspect", model, "--explain-layout"), ("submit", model, "--dry-run", "--server", "127.0.0.1:1")):
                with self.subTest(text, command=args[0]):
                    done = heddle(*args)
                    self.assertNotIn("\x1b", done.stdout + done.stderr)
                    self.assertNotIn("\x1b", heddle("inspect", model, "--json").stdout)

    def test_names_that_are_no_utf8(self):
        self.refused(2, "submit", self.path / "mlp.onnx", "--name", "caf\udce9", says=("--name 'caf?'", "UTF-8"))
        model = self.path / "caf\udce9.onnx"  # a name in Latin-1
        model.write_bytes((self.path / "mlp.onnx").read_bytes())
        self.assertIn("4 tasks", heddle("submit", model, "--dry-run", "--server", "127.0.0.1:1", check=0).stdout)

    def test_a_module_that_could_not_be_written_is_told_before_tuning(self):
        for place in (self.path / "nowhere" / "m.heddle", self.path):
            self.refused(2, "tune", self.path / "mlp.onnx", "-o", place, "--data", self.path / "data", "--server", "127.0.0.1:9", says=str(place))
        self.assertFalse((self.path / "data").exists())

    def test_a_model_is_no_module(self):
        self.refused(2, "run", self.path / "mlp.onnx", says=("not a Heddle module", "heddle tune"))

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(BIN / "heddle"), "zoo"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            helped = [subprocess.run([str(BIN / "heddle"), flag], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
                      for flag in ("--help", "--version")]
        for one in (done, *helped):
            self.assertEqual((one.returncode, len(one.stderr.splitlines())), (1, 1), one.stderr)
            self.assertIn("No space left", one.stderr)

    def test_output_files_stay_what_they_are(self):
        heddle("zoo", "mlp", "-o", "/dev/null", check=0)
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())
        model = (self.path / "mlp.onnx").read_bytes()
        (self.path / "link.onnx").symlink_to("target.onnx")
        heddle("zoo", "mlp", "-o", self.path / "link.onnx", check=0)
        self.assertTrue((self.path / "link.onnx").is_symlink())
        self.assertEqual((self.path / "target.onnx").read_bytes(), model)
        piped = subprocess.run([str(BIN / "heddle"), "zoo", "mlp", "-o", "-"], capture_output=True, timeout=LIMIT_S, cwd=self.path)
        self.assertEqual(piped.stdout, model)
        self.assertFalse((self.path / "-").exists())

    def test_simulator(self):
        def sim(code, *args, says):
            done = subprocess.run([str(BIN / "heddle-sim"), *args], capture_output=True, text=True, timeout=LIMIT_S, cwd=self.path)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (code, 1), done.stderr)
            for word in ("heddle-sim: ", *says):
                self.assertIn(word, done.stderr)

        (self.path / "empty.json").write_text("")
        (self.path / "none.json").write_text('{"workers": [{"cpu_slots": 1, "device_slots": 1}], "jobs": []}')
        sim(2, says=("--replay", "--help"))
        sim(4, "nowhere.json", says=("nowhere.json",))
        sim(2, "empty.json", says=("empty.json", "JSON"))
        sim(2, "none.json", says=("jobs", "at least one"))
        sim(2, ".", says=("directory",))
        sim(2, "--replay", ".", says=("directory",))
        sim(2, "--replay", "none.json", says=("heddle jobs trace", "none.json"))
        (self.path / "early.json").write_text('{"workers": [], "jobs": [{"id": "j3", "created_unix_ns": 1}]}')
        sim(2, "--replay", "early.json", says=("early.json", "j3 had not ended", "heddle wait j3"))
        sim(2, "--thesis", "--policy", "magic", says=("magic", "round_robin"))
        sim(2, "--fuzz", "-5", says=("--fuzz", "-5"))
        sim(2, "--fuzz", "1", "--seed", "-1", says=("--seed", "-1"))
        sim(2, "--fuzz", "1", "--policy", "uncoordinated", says=("uncoordinated",))
        sim(2, "none.json", "--threads", "2", says=("--threads", "--fuzz"))
        sim(2, "none.json", "--planted", "starve", says=("--planted", "--fuzz"))
        sim(2, "none.json", "--plot", "x.svg", "--window", "10", "5", says=("--window", "larger"))

    def test_sweeps_are_checked_before_they_start(self):
        def sweep(*args, says):
            self.refused(2, "sweep", "mlp.onnx", "-o", "swept", *args, says=says)
            self.assertFalse((self.path / "swept").exists())

        sweep("--trials", "8,,16", says=("--trials", "empty value"))
        sweep("--trials", "", says="--trials")
        sweep("--seed", "1,2,1", says="1 twice")
        sweep("--trials", "8,0", says=("--trials", "not in range"))
        sweep("--strategy", "random,magic", says="magic")
        sweep("--colour", "red,blue", says="--colour")
        sweep("--no-winograd", "on,maybe", says="on and off")
        many = ",".join(map(str, range(1, 41)))
        sweep("--seed", many, "--batch", many, says=("1600 combinations", "1000"))

    def test_no_scheduler(self):
        self.refused(5, "jobs", "--server", "127.0.0.1:9", says=("127.0.0.1:9", "heddle-scheduler"))

    def test_missing_model(self):
        self.refused(4, "submit", "nowhere.onnx", says="nowhere.onnx")

    def test_unknown_target(self):
        self.refused(2, "submit", "mlp.onnx", "--target", "quantum -qubits=5", says="quantum")
        self.refused(2, "submit", "mlp.onnx", "--target", "llvm -mcpu=znver55", says="znver55")
        self.refused(2, "submit", "mlp.onnx", "--target", "llvm -threads=0", says="threads")

    def test_not_onnx(self):
        (self.path / "text.onnx").write_text("this is not a model")
        self.refused(2, "submit", "text.onnx", "--dry-run", says="ONNX")
        whole = (self.path / "mlp.onnx").read_bytes()
        (self.path / "half.onnx").write_bytes(whole[: len(whole) // 2])
        self.refused(2, "submit", "half.onnx", "--dry-run", says="ONNX")
        self.refused(2, "submit", ".", says="directory")
        (self.path / "empty.onnx").write_bytes(b"")
        self.refused(2, "submit", "empty.onnx", says="empty")

    def test_bad_shape(self):
        self.refused(2, "submit", "mlp.onnx", "--shape", "x=1xtwo", says="--shape name=1x3x224x224")
        # The model may follow the flag, and a name that the model lacks is what is wrong.
        self.refused(2, "submit", "--dry-run", "--shape", "images=1x3", "mlp.onnx", says=("no input 'images'", "input"))

    def test_inspect_shows_models(self):
        shown = heddle("inspect", self.path / "mlp.onnx", check=0)
        for text in ("ai.onnx 13", "input      input: float [1,784]", "Gemm", "MFLOP", "4 tasks"):
            self.assertIn(text, shown.stdout)
        self.assertIn("next: heddle tune", shown.stderr)
        found = json.loads(heddle("inspect", self.path / "mlp.onnx", "--json", check=0).stdout)
        self.assertEqual(len(found["tasks"]), 4)
        self.assertEqual(found["problem"], "")
        self.refused(2, "inspect", __file__, says="ONNX")
        refused = json.loads(heddle("inspect", self.path / "mlp.onnx", "--shape", "images=1x3", "--json", check=2).stdout)
        self.assertEqual(set(refused), set(found))
        self.assertTrue(refused["problem"])
        for field in ("flops", "kernels", "tasks", "module_parameter_bytes", "activation_bytes"):
            self.assertIsNone(refused[field])
        self.refused(2, "inspect", "mlp.onnx", "--shape", "images=1x3", says="no input 'images'")
        self.refused(2, "inspect", "mlp.onnx", "--input-value", "images=1", says="no input 'images'")
        self.refused(2, "inspect", "mlp.onnx", "--input-value", "input=one", says="'one' is no f32")
        fixed = heddle("inspect", self.path / "mlp.onnx", "--input-value", "input=1", check=0)
        self.assertIn(" 0 tasks", fixed.stdout)
        self.assertIn("input      input: float [1,784] = 1\n", fixed.stdout)

    def test_unknown_zoo_model(self):
        self.refused(2, "zoo", "alexnet", says="resnet18")

    def test_corrupt_module(self):
        (self.path / "bad.heddle").write_bytes(b"nonsense")
        self.refused(2, "run", "bad.heddle", says="module")
        self.refused(4, "run", "nowhere.heddle", says="nowhere.heddle")

    def test_no_room_for_a_file(self):
        """A limit on file sizes fails a write half-way, as a full disk does; the old file stays whole."""
        target = self.path / "kept.onnx"
        target.write_bytes(b"old")

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

        done = subprocess.run([str(BIN / "heddle"), "zoo", "mlp", "-o", str(target)], capture_output=True, text=True,
                              timeout=LIMIT_S, preexec_fn=limit)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertEqual(target.read_bytes(), b"old")
        self.assertEqual([p.name for p in self.path.glob("kept.onnx*")], ["kept.onnx"])

    def test_zoo_is_deterministic(self):
        heddle("zoo", "mlp", "-o", self.path / "again.onnx", check=0)
        self.assertEqual((self.path / "mlp.onnx").read_bytes(), (self.path / "again.onnx").read_bytes())
        heddle("zoo", "mlp", "-o", self.path / "other.onnx", "--seed", 7, check=0)
        self.assertNotEqual((self.path / "mlp.onnx").read_bytes(), (self.path / "other.onnx").read_bytes())

    def test_dry_run(self):
        done = heddle("submit", self.path / "mlp.onnx", "--dry-run", "--json", check=0)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["trials"], sum(min(64, task["space_size"]) for task in plan["tasks"]))
        self.assertGreater(plan["tasks"][0]["space_size"], 1)

    def test_winograd_can_be_forbidden(self):
        def target(*flags):
            return json.loads(heddle("submit", self.path / "mlp.onnx", "--dry-run", "--json", *flags, check=0).stdout)["target"]
        self.assertNotIn("winograd", target())
        self.assertEqual(target("--no-winograd"), target() + " -winograd=off")
        self.assertEqual(target("--target", "llvm -mcpu=native -winograd=off"), target("--no-winograd"))


class WholeRoad(unittest.TestCase):
    """submit, watch, show, fetch, run, records: the commands of docs/using.md in order."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.service = Service(cls.path)
        cls.server = cls.service.address
        heddle("zoo", "mlp", "-o", cls.path / "mlp.onnx", check=0)
        done = heddle("submit", cls.path / "mlp.onnx", "--trials", 4, "--batch", 2, server=cls.server, check=0)
        cls.job = done.stdout.strip()
        heddle("watch", cls.job, server=cls.server, check=0)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        cls.directory.cleanup()

    def h(self, *args, **kwargs):
        return heddle(*args, server=self.server, **kwargs)

    def test_the_job_is_done_and_shown(self):
        job = json.loads(self.h("show", self.job, "--json", check=0).stdout)
        self.assertEqual(job["state"], "done")
        self.assertEqual(job["trials"], job["trials_budget"])
        kinds = {span["kind"] for span in job["timeline"]}
        self.assertLessEqual({"import", "propose", "build", "profile", "compile"}, kinds)
        self.assertIn("busy", self.h("show", self.job, check=0).stdout)
        self.assertIn(self.job, self.h("jobs", "--all", check=0).stdout)
        self.h("wait", self.job, "--timeout", 5, check=0)

    def test_a_dry_run_counts_the_devices_that_match(self):
        def matching(*flags):
            done = self.h("submit", self.path / "mlp.onnx", "--dry-run", "--json", *flags, check=0)
            return json.loads(done.stdout)["matching_device_slots"]
        self.assertEqual(matching(), 1)
        self.assertEqual(matching("--device", "another"), 0)
        self.assertEqual(matching("--target", "cuda -arch=sm_90"), 0)

    def test_the_search_is_explained(self):
        plot = self.path / "search.svg"
        shown = self.h("explain", self.job, 1, "--plot", plot, check=0).stdout
        for word in ("best so far", "trials", "default", "of the peak"):
            self.assertIn(word, shown)
        self.assertIn("<svg", plot.read_text())
        told = json.loads(self.h("explain", self.job, 1, "--json", check=0).stdout)
        self.assertGreater(told["roofline"]["peak_gflops"], 0)
        self.assertEqual(told["best_ns"], sorted(told["best_ns"], reverse=True))
        self.assertIn("it has 1 ", self.h("explain", self.job, "nothing", check=4).stderr)
        # The loops that the page shows.
        self.assertIn("for ", told["best"]["measurement"]["loops"])
        self.assertIn("for ", told["default"]["measurement"]["loops"])

    def test_the_machine_code_of_a_kernel_is_listed(self):
        done = self.h("explain", self.job, 1, "--assembly", check=0)
        self.assertIn(f"as it stands in the module of {self.job}", done.stderr)
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].startswith("kernel_") and lines[0].endswith(":"), lines[0])
        self.assertTrue(all(re.match(r" *[0-9a-f]+: \S|kernel_\S*:$", line) for line in lines), lines)
        told = json.loads(self.h("explain", self.job, 1, "--assembly", "--lines", 3, "--json", check=0).stdout)
        self.assertEqual((len(told["assembly"]), told["assembly"]), (3, lines[:3]))
        self.assertIn(told["schedule"], ("tuned", "default"))
        cut = self.h("explain", self.job, 1, "--assembly", "--lines", 5, check=0)
        self.assertEqual(cut.stdout.splitlines(), lines[:5])
        self.assertIn(f"showing 5 of {told['lines']} lines", cut.stderr)
        whole = self.h("explain", self.job, 1, "--assembly", "--lines", 0, check=0)
        self.assertEqual(len(whole.stdout.splitlines()), told["lines"])
        self.assertNotIn("showing", whole.stderr)
        self.h("explain", self.job, "--assembly", check=2)
        self.h("explain", self.job, 1, "--lines", 5, check=2)
        self.h("explain", self.job, 99, "--assembly", check=4)
        self.assertIn("--http 127.0.0.1:8080 serves one", (self.path / "log").read_text())  # who looks for the page is told how to get it
        report = self.path / "report.html"
        self.h("report", self.job, "-o", report, "--assembly", check=0)
        self.assertIn("kernel_0", report.read_text())
        self.h("report", self.job, "-o", report, check=0)
        self.assertNotIn("kernel_0", report.read_text())
        # Where a schedule won, what it made of the loops stands beside what the default one made of them.
        self.assertEqual(report.read_text().count("Loops of both"), report.read_text().count("Steps of both"))

    def test_a_search_begins_with_what_others_learned(self):
        """Those of the first job, which had another target on this device."""
        def predicted(*flags):
            job = self.h("submit", self.path / "mlp.onnx", "--no-winograd", "--trials", 2, "--batch", 2, "--allocation", "uniform", "--force", *flags, check=0).stdout.strip()
            self.h("wait", job, "--timeout", 120, check=0)
            told = json.loads(self.h("explain", job, 1, "--json", check=0).stdout)
            if flags:
                self.assertIsNone(told["transfer_model"], "nobody was to learn from others")
            return [(batch["samples"], batch["trials"]) for batch in told["batches"] if batch["job"] == job]
        self.assertEqual(predicted("--no-transfer"), [])
        self.assertEqual(predicted(), [(0, 2)], "its first batch was not chosen by a model")

    def test_the_module_runs_and_is_right(self):
        module = self.path / "mlp.heddle"
        self.h("fetch", self.job, "-o", module, check=0)
        checked = self.h("run", module, "--check", self.path / "mlp.onnx", check=0)
        self.assertIn("within", checked.stdout)
        self.h("fetch", self.job, "-o", self.path / "naive.heddle", "--schedules", "naive", check=0)
        timed = self.h("run", module, "--evaluate", "--against", self.path / "naive.heddle", "--json", check=0)
        self.assertEqual(len(json.loads(timed.stdout)["modules"]), 2)
        profile = json.loads(self.h("run", module, "--profile", "--threads", 1, "--json", check=0).stdout)
        self.assertEqual(profile["threads"], 1)
        self.assertTrue(profile["kernels"])
        for kernel in profile["kernels"]:
            self.assertGreater(kernel["ns"], 0)
            self.assertGreater(kernel["bytes"], 0)
            self.assertIn(kernel["bound"], ("compute", "memory"))
        self.assertLess(sum(kernel["ns"] for kernel in profile["kernels"]), 10 * profile["inference_ns"])
        self.assertIn("bound by", self.h("run", module, "--profile", check=0).stdout)
        more = self.h("run", module, "--profile", "--threads", 9, "--json", check=0)
        self.assertEqual(json.loads(more.stdout)["threads"], 1)
        self.assertIn("made for 1 thread, so 1 is used, not 9", more.stderr)
        heddle("zoo", "mlp", "--seed", 7, "-o", self.path / "other.onnx", check=0)
        other = self.h("run", module, "--check", self.path / "other.onnx", check=2)
        self.assertIn("is not the model that", other.stderr)
        shape = json.loads(self.h("run", module, "--json", check=0).stdout)["outputs"][0]["shape"]
        self.assertEqual(shape[-1], 10)

        write_npy(self.path / "x.npy", [1, 784])
        self.h("run", module, "--input", self.path / "x.npy", "-o", self.path / "y.npy", check=0)
        self.assertTrue((self.path / "y.npy").read_bytes().startswith(b"\x93NUMPY"))
        write_npy(self.path / "wrong.npy", [1, 783])
        wrong = self.h("run", module, "--input", self.path / "wrong.npy", check=2)
        self.assertIn("[1,783]", wrong.stderr)

        damaged = bytearray(module.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (self.path / "damaged.heddle").write_bytes(damaged)
        self.assertEqual(len(self.h("run", self.path / "damaged.heddle", check=2).stderr.strip().splitlines()), 1)

    def test_resubmitting_needs_no_new_trials(self):
        again = self.h("submit", self.path / "mlp.onnx", "--trials", 4, "--batch", 2, check=0).stdout.strip()
        self.h("wait", again, "--timeout", 120, check=0)
        job = json.loads(self.h("show", again, "--json", check=0).stdout)
        self.assertEqual(job["state"], "done")
        self.assertEqual(job.get("trials", 0), 0)
        self.assertIn("reused", job["tasks"][0]["doing"])

    def test_records_travel(self):
        out = self.path / "records.jsonl"
        self.h("records", "export", "--job", self.job, "-o", out, check=0)
        lines = out.read_text().splitlines()
        job = json.loads(self.h("show", self.job, "--json", check=0).stdout)
        self.assertEqual(len(lines), job["trials"])
        record = json.loads(lines[0])
        for field in ("schema_version", "workload_key", "workload", "target", "device_key", "trace", "measurement"):
            self.assertIn(field, record)
        imported = json.loads(self.h("records", "import", out, "--json", check=0).stdout)
        self.assertEqual(imported.get("imported", 0), 0)
        self.assertEqual(imported["skipped"], len(lines))
        (self.path / "bad.jsonl").write_text(lines[0] + "\n{\"nonsense\": 1}\n")
        bad = self.h("records", "import", self.path / "bad.jsonl", check=2)
        self.assertIn("bad.jsonl:2", bad.stderr)
        evidence = self.h("records", "--best", "--valid", "-v", "--plain", check=0).stdout.splitlines()
        self.assertEqual(evidence[0].split("\t")[-7:], ["slot", "steal", "others", "switches", "canary", "taken", "disturbed"])
        self.assertRegex(evidence[1].split("\t")[-2], r"^\d+x$")
        best = [json.loads(line) for line in self.h("records", "--best", "--json", check=0).stdout.strip().splitlines()]
        self.assertEqual(len({(record["workload_key"], record["target"]) for record in best}), len(best))

    def test_a_record_is_retracted(self):
        out, key = self.path / "one.jsonl", "0123456789abcdef"
        self.h("records", "export", "--job", self.job, "--valid", "--limit", 1, "-o", out, check=0)
        record = {**json.loads(out.read_text()), "workload_key": key}
        del record["workload"]
        out.write_text(json.dumps(record) + "\n")
        self.assertEqual(json.loads(self.h("records", "import", out, "--json", check=0).stdout)["imported"], 1)
        shown = json.loads(self.h("records", "--task", key, "--json", check=0).stdout)
        self.assertTrue(shown["imported_by"])
        self.h("records", "retract", "--reason", "all of them", check=2)
        self.h("records", "retract", shown["id"], check=2)
        done = self.h("records", "retract", shown["id"], "--reason", "made up", "--json", check=0)
        self.assertEqual(json.loads(done.stdout)["retracted"], 1)
        self.assertIn("no records match", self.h("records", "--task", key, check=0).stderr)
        self.assertIn("retracted (made up)", self.h("records", "--task", key, "--retracted", "--plain", check=0).stdout)

    def test_a_long_list_says_that_it_is_cut(self):
        out, key = self.path / "many.jsonl", "00000000000000aa"
        self.h("records", "export", "--job", self.job, "--valid", "--limit", 1, "-o", out, check=0)
        record = {**json.loads(out.read_text()), "workload_key": key, "label": "many of one task"}
        del record["workload"]
        made = record["created_unix_ns"]
        out.write_text("".join(json.dumps({**record, "created_unix_ns": made + i}) + "\n" for i in range(1001)))
        self.h("records", "import", out, check=0)
        for flag in ("--plain", "--json"):
            cut = self.h("records", "--task", key, flag, check=0)
            self.assertEqual(len(cut.stdout.splitlines()), 1000 + (flag == "--plain"))
            self.assertIn("showing the newest 1000 records; --limit N", cut.stderr)
        for limit, said in ((1001, 1001), (7, 7)):
            whole = self.h("records", "--task", "many of", "--limit", limit, "--json", check=0)  # a part of its label
            self.assertEqual((len(whole.stdout.splitlines()), whole.stderr), (said, ""))
        self.h("records", "retract", "--task", "many of", "--reason", "only looked for", check=4)
        self.h("records", "retract", "--task", key, "--reason", "made up", check=0)
        full = subprocess.run(f"{BIN}/heddle records export > /dev/full", shell=True, capture_output=True, text=True, timeout=LIMIT_S,
                              env={**os.environ, "HEDDLE_SERVER": self.server})
        self.assertEqual((full.returncode, len(full.stderr.splitlines())), (1, 1), full.stderr)

    def test_a_job_starts_with_records_at_hand(self):
        out = self.path / "best.jsonl"
        self.h("records", "export", "--job", self.job, "--best", "--valid", "-o", out, check=0)
        records = [json.loads(line) for line in out.read_text().splitlines()]
        other = "llvm -mcpu=" + ("znver2" if records[0]["target"].startswith("llvm -mcpu=znver4") else "znver4")
        others = [
            {**records[0], "target": other},
            {**records[0], "device_key": records[0]["device_key"] + "-warm"},
            {**records[0], "trace": "split nothing.i0 2 2\n"},
            {**records[0], "schema_version": 7},
        ]
        out.write_text("".join(json.dumps(record) + "\n" for record in records + others))
        with tempfile.TemporaryDirectory() as fresh:
            flags = ["--records", out, "--trials", 1, "--no-compare", "--data", pathlib.Path(fresh) / "data", "--server", "127.0.0.1:9"]
            done = heddle("tune", self.path / "mlp.onnx", "-o", self.path / "offered.heddle", *flags, check=0)
        tasks = len(records)
        self.assertIn(f"{tasks} of {tasks} tasks start with a known schedule", done.stderr)
        for warning in (f"for '{other}'", "-warm', not", "does not replay", "of another schema"):
            self.assertIn(warning, done.stderr)
        self.assertIn("reused", done.stderr)
        self.assertNotIn("default", heddle("inspect", self.path / "offered.heddle", check=0).stdout)

    def test_unknown_job(self):
        self.assertEqual(len(self.h("show", "j999", check=4).stderr.strip().splitlines()), 1)

    def test_a_bad_model_fails_with_the_users_status(self):
        (self.path / "text.onnx").write_bytes(b"\x08\x08")  # a file of this form, but without a graph
        before = self.h("jobs", "--all", "--json", check=0).stdout
        done = self.h("submit", self.path / "text.onnx", check=2)
        self.assertIn("ONNX", done.stderr)
        self.assertEqual(self.h("jobs", "--all", "--json", check=0).stdout, before)

    def test_a_job_without_a_device_waits_and_says_why(self):
        job = self.h("submit", self.path / "mlp.onnx", "--target", "llvm -mcpu=atom", "--trials", 4, check=0).stdout.strip()
        deadline = time.monotonic() + 60
        reason = ""
        while "atom" not in reason and time.monotonic() < deadline:
            reason = json.loads(self.h("show", job, "--json", check=0).stdout).get("reason", "")
            time.sleep(0.2)
        self.assertIn("atom", reason)
        self.h("wait", job, "--timeout", 0.5, check=6)
        self.h("pause", job, check=0)
        self.h("resume", job, check=0)
        self.assertIn("priority -3", self.h("priority", job, -3, check=0).stderr)
        told = json.loads(self.h("priority", job, 10, "--json", check=0).stdout)
        self.assertEqual(told["spec"]["priority"], 10)
        for usage in (("priority", job, 11), ("priority", job, "high"), ("priority", job)):
            self.h(*usage, check=2)
        self.h("priority", "j999", 1, check=4)
        self.h("cancel", job, check=0)
        self.h("wait", job, check=7)
        self.assertIn("is over already", self.h("priority", job, 1, check=2).stderr)

    def test_a_deadline_out_of_reach_is_told_at_once(self):
        done = self.h("submit", self.path / "mlp.onnx", "--trials", 100000, "--force", "--deadline", "10m", check=0)
        job = done.stdout.strip()
        self.h("cancel", job, check=0)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertIn("will be missed by", done.stderr)
        self.assertIn("cannot be met", done.stderr)

    def test_two_jobs_are_tuned_at_once(self):
        ids = [self.h("submit", self.path / "mlp.onnx", "--trials", 16, "--batch", 2, "--force", "--seed", seed, check=0).stdout.strip()
               for seed in (1, 2)]
        for job in ids:
            self.h("wait", job, "--timeout", 200, check=0)
        shown = [json.loads(line) for line in self.h("show", *ids, "--json", check=0).stdout.splitlines()]
        begins = [min(span["start_unix_ns"] for span in job["timeline"] if span["kind"] == "propose") for job in shown]
        ends = [max(span["end_unix_ns"] for span in job["timeline"]) for job in shown]
        # How much of the second is done before the first is over is the policy's business (scheduler_dispatcher_test).
        self.assertLess(max(begins), min(ends), "a job waited for the other one's end")
        text = self.h("show", *ids, check=0).stdout
        self.assertIn("A = ", text)
        self.assertIn("B = ", text)

    def test_a_job_that_goes_on_is_traced(self):
        job = self.h("submit", self.path / "mlp.onnx", "--trials", 100000, "--force", "--seed", 9, check=0).stdout.strip()
        trace = self.path / "running.json"
        deadline = time.monotonic() + LIMIT_S
        running = set()
        while not running & {f"profile {job}", f"build {job}"} and time.monotonic() < deadline:
            said = self.h("jobs", "trace", job, "-o", trace, check=0).stderr
            slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
            running = {event["name"] for event in slices if event["args"].get("running")}
        self.h("cancel", job, check=0)
        self.assertIn(f"{job} mlp", running)
        self.assertTrue(running & {f"profile {job}", f"build {job}"}, running)
        self.assertIn(f"heddle wait {job}", said)
        self.assertIn(f"import {job}", {event["name"] for event in slices} - running)
        replayed = subprocess.run([str(BIN / "heddle-sim"), "--replay", str(trace)], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(replayed.returncode, 2, replayed.stderr)
        self.assertIn(f"{job} had not ended", replayed.stderr)
        # Once it has ended, nothing runs any more.
        self.h("wait", job, check=7)
        self.h("jobs", "trace", job, "-o", trace, check=0)
        self.assertFalse([event for event in json.loads(trace.read_text())["traceEvents"] if event.get("args", {}).get("running")])

    @unittest.skipIf(len(os.sched_getaffinity(0)) != 2, "the two-core slot of --embedded is for two cores")
    def test_a_two_core_job_takes_turns_with_one_core_jobs(self):
        two = self.h("submit", self.path / "mlp.onnx", "--target", "llvm -mcpu=native -threads=2", "--trials", 3, "--batch", 3,
                     check=0).stdout.strip()
        one = self.h("submit", self.path / "mlp.onnx", "--trials", 4, "--batch", 2, "--force", check=0).stdout.strip()
        for job in (two, one):
            self.h("wait", job, "--timeout", 200, check=0)
        spans = []
        for job in (two, one):
            spans += json.loads(self.h("show", job, "--json", check=0).stdout)["timeline"]
        wide = [s for s in spans if s["job"] == two and s["kind"] == "profile"]
        self.assertTrue(wide)
        for a in wide:
            for b in spans:
                if b is not a:
                    apart = b["end_unix_ns"] <= a["start_unix_ns"] or b["start_unix_ns"] >= a["end_unix_ns"]
                    self.assertTrue(apart, "a stage ran on cores that a two-core profile held")

    def test_devices(self):
        workers = json.loads(self.h("devices", "--json", check=0).stdout)["workers"]
        kinds = {slot["slot"]["kind"] for worker in workers for slot in worker["slots"]}
        self.assertEqual(kinds, {"cpu", "device"})


class TuneInOneGo(unittest.TestCase):
    def test_tune_starts_a_service_of_its_own(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            heddle("zoo", "mlp", "-o", path / "mlp.onnx", check=0)
            args = ("tune", path / "mlp.onnx", "-o", path / "mlp.heddle", "--trials", 2, "--batch", 2, "--data", path / "data",
                    "--server", "127.0.0.1:9")
            heddle(*args, check=0)
            heddle("run", path / "mlp.heddle", check=0)
            again = heddle(*args, check=0)
            self.assertIn("reused", again.stderr)


class WithoutWorkers(unittest.TestCase):
    def test_a_tracker_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            heddle("zoo", "mlp", "-o", path / "mlp.onnx", check=0)
            service = Service(path, "--tracker", "127.0.0.1:9", embedded=False)
            try:
                missing = "the tracker at 127.0.0.1:9 is not to be reached; is heddle-tracker running?"
                self.assertEqual(heddle("devices", server=service.address, check=5).stderr, f"heddle: {missing}\n")
                planned = heddle("submit", path / "mlp.onnx", "--dry-run", server=service.address, check=0).stdout
                self.assertIn(f"devices are unknown: {missing}\n", planned)
                self.assertNotIn("0.00 GFLOP", planned)
                jobs = [heddle("submit", path / "mlp.onnx", server=service.address, check=0).stdout.strip() for _ in range(2)]
                self.assertEqual(len(heddle("cancel", *jobs, "j99", server=service.address, check=4).stderr.splitlines()), 3)
                heddle("wait", *jobs, server=service.address, check=7)
            finally:
                service.stop()

    def test_ctrl_c_ends_the_wait_for_an_import(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            heddle("zoo", "mlp", "-o", path / "mlp.onnx", check=0)
            service = Service(path, "--tracker", "127.0.0.1:9", embedded=False)  # so that nothing is imported
            try:
                args = [str(BIN / "heddle"), "submit", str(path / "mlp.onnx"), "--deadline", "2h", "--server", service.address]
                with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as submit:
                    job = submit.stdout.readline().strip()
                    submit.send_signal(signal.SIGINT)
                    self.assertEqual(submit.wait(10), 130)
                heddle("cancel", job, server=service.address, check=0)
            finally:
                service.stop()


if __name__ == "__main__":
    unittest.main(verbosity=2)
