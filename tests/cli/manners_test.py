#!/usr/bin/env python3
"""Manners of the command line: heddle doctor, configuration files, JSON as documented, services that are found, devices that people hold.

Usage: manners_test.py BIN_DIR [unittest arguments]
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
import urllib.request
import zipfile

from programs import BIN, LIMIT_S, Service, heddle, write_npy

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "json.md"


def rows_of(heading):
    """The rows of the table below a heading of docs/json.md, by their first cell, each as the text of its last one."""
    text = DOCUMENT.read_text().split(heading, 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[-1] for row in rows[1:]}


def quoted(text):
    return set(re.findall(r"`([^`]+)`", re.sub(r"\([^)]*\)", "", text)))


class Documented:
    """What docs/json.md says that a command prints."""

    messages = {name: quoted(fields) for name, fields in rows_of("## Messages").items()}
    commands = {}
    for names, fields in rows_of("## Documents of the commands").items():
        for name in re.findall(r"`([^`]+)`", names):
            commands[name] = fields

    @classmethod
    def keys(cls, command):
        text = cls.commands[command]
        if text.startswith("as `"):
            base = re.match(r"as `(\w+)`", text)[1]
            return cls.keys(base) | quoted(text[len(f"as `{base}`"):])
        keys = quoted(text) | {"schema_version"}
        whole = re.match(r"(\w+)(,|$)", text)
        return keys | cls.messages[whole[1]] if whole else keys


class Doctor(unittest.TestCase):
    """What is planted here is found by the real program; tests/client/doctor_test.cc plants the rest."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def examine(self, *args, env=None):
        """The findings by check."""
        env = {"XDG_DATA_HOME": str(self.path / "data"), **(env or {})}
        done = heddle("doctor", "--json", *args, env=env)
        told = json.loads(done.stdout)
        self.assertEqual(set(told), Documented.keys("doctor"))
        found = {check["check"]: check for check in told["checks"] if check["health"] != "well"}
        self.assertEqual(told["well"], not found)
        self.assertEqual(done.returncode, 2 if found else 0)
        for check in found.values():
            self.assertTrue(check["remedy"], check)
        return found

    def test_text_names_each_finding_with_its_remedy(self):
        env = {"TMPDIR": "/nowhere", "XDG_DATA_HOME": str(self.path / "data")}
        done = heddle("doctor", env=env, check=2)
        lines = done.stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if re.match(r"problem +temporary", line))
        self.assertIn("/nowhere", lines[at])
        self.assertIn("-> set TMPDIR", lines[at + 1])
        self.assertRegex(lines[-1], r"^\d+ problems? and \d+ warnings? in \d+ checks$")
        self.assertEqual(done.stderr, "")

    def test_a_temporary_folder_that_is_not_there(self):
        self.assertIn("temporary", self.examine(env={"TMPDIR": "/nowhere"}))
        self.assertNotIn("temporary", self.examine(env={"TMPDIR": str(self.path)}))

    def test_a_target_that_does_not_run_here(self):
        # No processor has both.
        found = [self.examine("--target", f"llvm -mcpu=native -mattr=+{feature}").get("processor") for feature in ("xop", "amx-tile")]
        self.assertTrue(any(found))

    def test_a_port_of_another_program(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            found = self.examine("--server", f"127.0.0.1:{listener.getsockname()[1]}")
        self.assertIn("something listens", found["service"]["found"])

    def test_a_file_in_the_way_of_the_data(self):
        (self.path / "file").write_text("")
        self.assertIn("data-directory", self.examine("--data", self.path / "file" / "heddle"))

    def test_too_few_open_files(self):
        command = f"ulimit -n 200; exec {BIN}/heddle doctor --json"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=LIMIT_S)
        checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
        self.assertEqual(checks["open-files"]["health"], "problem")

    @unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make certificates with")
    def test_certificates(self):
        def ca(*args):
            subprocess.run([str(BIN / "heddle-ca"), *map(str, args)], check=True, capture_output=True, timeout=LIMIT_S)

        ca("init", self.path / "one")
        ca("init", self.path / "two")
        ca("issue", self.path / "one", "--role", "user", "--name", "soon", "--days", 3)
        folder = self.path / "one" / "operator"
        self.assertNotIn("certificates", self.examine("--tls-dir", folder))
        soon = self.examine("--tls-dir", self.path / "one" / "soon")["certificates"]
        self.assertEqual((soon["health"], "expires on" in soon["found"]), ("warning", True))
        other = self.path / "two" / "operator"
        mixed = self.path / "mixed"
        shutil.copytree(folder, mixed)
        shutil.copy(other / "key.pem", mixed / "key.pem")
        self.assertIn("does not belong", self.examine("--tls-dir", mixed)["certificates"]["found"])
        shutil.copy(folder / "key.pem", mixed / "key.pem")
        shutil.copy(other / "ca.pem", mixed / "ca.pem")
        self.assertIn("authority", self.examine("--tls-dir", mixed)["certificates"]["found"])
        os.chmod(mixed / "key.pem", 0o644)
        self.assertIn("chmod 600", self.examine("--tls-dir", mixed)["certificates"]["found"])


class Configuration(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        (self.path / "project" / "deep").mkdir(parents=True)
        self.env = {"XDG_CONFIG_HOME": str(self.path / "config")}

    def tearDown(self):
        self.directory.cleanup()

    def write(self, name, text):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)

    def run_here(self, *args, code=0, **env):
        return heddle(*args, cwd=self.path / "project" / "deep", env={**self.env, **env}, check=code)

    def test_values_reach_commands_and_their_origin_is_shown(self):
        self.write("config/heddle/config.toml", "server = \"127.0.0.1:8\"\nverbose = 1\n")
        self.write("project/heddle.toml", "server = \"127.0.0.1:9\"\n[zoo]\nseed = 7\n")
        self.assertIn("127.0.0.1:9 ", self.run_here("jobs", code=5).stderr)
        self.run_here("zoo", "mlp", "-o", "seven.onnx")
        self.run_here("zoo", "mlp", "-o", "zero.onnx", "--seed", 0)
        here = self.path / "project" / "deep"
        heddle("zoo", "mlp", "-o", here / "plain.onnx", "--seed", 7, check=0)
        self.assertEqual((here / "seven.onnx").read_bytes(), (here / "plain.onnx").read_bytes())
        self.assertNotEqual((here / "zero.onnx").read_bytes(), (here / "plain.onnx").read_bytes())
        shown = self.run_here("config", "show", "--origin", "--plain").stdout
        self.assertIn(f"server\t\"127.0.0.1:9\"\t{self.path}/project/heddle.toml:1", shown)
        self.assertIn(f"zoo.seed\t\"7\"\t{self.path}/project/heddle.toml:3", shown)
        self.assertIn(f"{self.path}/config/heddle/config.toml:2", shown)
        told = json.loads(self.run_here("config", "show", "--json", HEDDLE_TLS_DIR="/lab").stdout)
        self.assertEqual(set(told), Documented.keys("config show"))
        origins = {setting["key"]: setting["origin"] for setting in told["settings"]}
        self.assertEqual(origins["tls-dir"], "environment variable HEDDLE_TLS_DIR")
        nowhere = subprocess.run([str(BIN / "heddle"), "config", "show"], capture_output=True, text=True, cwd="/", env={}, timeout=LIMIT_S)
        self.assertEqual(nowhere.stderr, "nothing is set; heddle.toml here or above would be read\n")
        # What is shown without origins is a file itself.
        self.write("project/deep/heddle.toml", self.run_here("config", "show").stdout)
        self.assertIn("zoo.seed", self.run_here("config", "show", "--origin").stdout)

    def test_mistakes_are_one_line_with_the_place(self):
        for text, says in (
            ("servr = \"x\"\n", ("heddle.toml:1", "did you mean 'server'?")),
            ("[tune]\ntrials = 0\n", ("heddle.toml:2", "trials")),
            ("[tune]\nplots = 1\n", ("no option of `heddle tune`",)),
            ("a = \n", ("heddle.toml:1",)),
            ("tls-dir = \"x\"\n", ("whom to trust", "config.toml")),
        ):
            self.write("project/heddle.toml", text)
            done = self.run_here("jobs", code=2)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            for word in says:
                self.assertIn(word, done.stderr)
        self.run_here("help")
        self.run_here("--version")


class OneService(unittest.TestCase):
    """With a service and a finished job."""

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.service = Service(cls.path)
        heddle("zoo", "mlp", "-o", cls.path / "mlp.onnx", check=0)
        cls.job = cls.h("submit", cls.path / "mlp.onnx", "--trials", 4, "--batch", 2, check=0).stdout.strip()
        cls.h("wait", cls.job, "--timeout", 200, check=0)
        cls.module = cls.path / "mlp.heddle"
        cls.h("fetch", cls.job, "-o", cls.module, check=0)

    @classmethod
    def tearDownClass(cls):
        cls.service.stop()
        cls.directory.cleanup()

    @classmethod
    def h(cls, *args, **kwargs):
        return heddle(*args, server=cls.service.address, **kwargs)

    def told(self, command, *args):
        """The lines of JSON, whose keys are those that are documented."""
        lines = [json.loads(line) for line in self.h(*args, "--json", check=0).stdout.splitlines()]
        self.assertTrue(lines, args)
        for line in lines:
            self.assertEqual(set(line), Documented.keys(command), command)
        return lines

    def test_json_is_as_documented(self):
        for command, args in (
            ("jobs", ("jobs", "--all")),
            ("wait", ("wait", self.job)),
            ("show", ("show", self.job)),
            ("explain JOB", ("explain", self.job)),
            ("explain JOB TASK", ("explain", self.job, 1)),
            ("explain JOB TASK --assembly", ("explain", self.job, 1, "--assembly")),
            ("devices", ("devices",)),
            ("records", ("records",)),
            ("submit --dry-run", ("submit", self.path / "mlp.onnx", "--dry-run")),
            ("fetch", ("fetch", self.job, "-o", self.path / "again.heddle")),
            ("run", ("run", self.module)),
            ("run --evaluate", ("run", self.module, "--evaluate", "--rounds", 1)),
            ("run --duration", ("run", self.module, "--duration", "200ms")),
            ("inspect MODEL", ("inspect", self.path / "mlp.onnx")),
            ("inspect MODULE", ("inspect", self.module)),
            ("help", ("help", "fetch")),
            ("version", ("version",)),
            ("backup", ("backup", self.path / "backup")),
            ("check", ("check",)),
            ("zoo NAME", ("zoo", "mlp", "-o", self.path / "again.onnx")),
        ):
            with self.subTest(command):
                self.told(command, *args)
        job = self.told("show", "show", self.job)[0]
        self.assertGreater(job["model_ns"], 0)
        self.assertGreater(job["default_model_ns"], 0)
        if not job["comparison"]["module_is_default"]:
            self.assertEqual(job["gain"], job["comparison"]["result"]["gain"]["ratio"])
        self.assertIsNone(job["fault"])
        self.assertEqual(job["spec"]["priority"], 0)

    def test_errors_are_json_too(self):
        for args, code in ((("show", "j999"), 4), (("fetc",), 2), (("run", "nowhere.heddle"), 4), (("submit",), 2)):
            done = self.h(*args, "--json", check=code)
            error = json.loads(done.stderr)
            self.assertEqual((error["exit_status"], done.stdout), (code, ""))
            self.assertTrue(error["error"])

    def test_times_that_do_not_agree_say_why(self):
        why = r"best: each kernel alone, with cold caches, in all .*; the whole model took "
        # The module of a job that gained nothing has the default schedules: the tasks' best times say nothing of it.
        gained = not self.told("show", "show", self.job)[0]["comparison"]["module_is_default"]
        (self.assertRegex if gained else self.assertNotRegex)(self.h("show", self.job, check=0).stdout, why)
        self.assertIn("of the kernel alone", self.h("explain", self.job, 1, check=0).stdout)

        def row(of):
            return next(line for line in listed.stdout.splitlines() if line.split()[0] == of)

        job = self.h("submit", self.path / "mlp.onnx", "--no-compare", "--name", "n" * 200, check=0).stdout.strip()
        self.h("wait", job, "--timeout", "2m", check=0)
        listed = self.h("jobs", "-a", check=0)
        self.assertNotIn(" (sum)", row(self.job))
        self.assertIn(" (sum)", row(job))
        self.assertIn("(sum): the tasks' best times added up", listed.stderr)
        self.assertIn(" " + "n" * 39 + "~ ", row(job))
        self.assertIn("n" * 200, self.h("jobs", "-a", "--plain", check=0).stdout)

    def test_a_state_is_not_said_twice(self):
        self.assertRegex(self.h("show", self.job, check=0).stdout, r"(?m)^state +done(: (?!done).+)?$")
        job = self.h("submit", self.path / "mlp.onnx", "--target", "llvm -mcpu=atom", check=0).stdout.strip()
        self.assertEqual(self.h("cancel", job, check=0).stderr, f"{job} is cancelled: by its user\n")
        self.assertIn(f"job {job} cancelled: by its user\n", self.h("wait", job, check=7).stderr)

    def test_an_imported_record_is_of_no_job_here(self):
        key, out = "fedcba9876543210", self.path / "there.jsonl"
        self.h("records", "export", "--job", self.job, "--valid", "--limit", 1, "-o", out, check=0)
        record = {**json.loads(out.read_text()), "workload_key": key, "label": "a task of there", "job": self.job}
        del record["workload"]
        out.write_text(json.dumps(record) + "\n")
        self.h("records", "import", out, check=0)
        self.assertIn(f"  imported, {self.job} there  ", self.h("records", "--task", key, check=0).stdout)
        self.assertNotIn(self.job, self.h("records", "--task", key, "--plain", check=0).stdout, "scripts take it for a job of here")
        self.assertNotIn("imported", self.h("records", "--job", self.job, "--plain", check=0).stdout)

    def test_show_prints_the_numbers_that_explain_takes(self):
        rows = [line.split("\t") for line in self.h("show", self.job, "--plain", check=0).stdout.splitlines() if "\t" in line]
        header = next(row for row in rows if "doing" in row)
        task = rows[rows.index(header) + 1]
        self.assertEqual(header[0], "#")
        self.assertIn(task[1], self.h("explain", self.job, task[0], check=0).stdout)

    def test_records_take_labels_and_beginnings_of_keys(self):
        record = self.told("records", "records", "--valid")[0]
        for name in (record["label"], record["workload_key"][:6]):
            found = self.told("records", "records", "--task", name)
            self.assertEqual({one["workload_key"] for one in found}, {record["workload_key"]})
        missing = self.h("records", "--task", "nothing like it", check=4)
        self.assertIn("label", missing.stderr)

    def test_latencies_of_single_inferences(self):
        told = json.loads(self.h("run", self.module, "--duration", "500ms", "--streams", 2, "--against", self.module, "--json", check=0).stdout)
        self.assertEqual((told["streams"], len(told["modules"])), (2, 2))
        for module in told["modules"]:
            self.assertGreater(module["inferences"], 10)
            times = [module[name] for name in ("min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns")]
            self.assertEqual(times, sorted(times))
            self.assertAlmostEqual(module["inferences_per_second"], module["inferences"] / module["ran_ns"] * 1e9, delta=1)
        table = self.h("run", self.module, "--duration", "200ms", "--csv", check=0).stdout.splitlines()
        self.assertEqual(len(table), 2)
        self.assertEqual(table[0].split(",")[:3], ["file", "schedules", "streams"])
        self.assertEqual(len(table[0].split(",")), len(table[1].split(",")))
        self.assertIn("--duration 10s", self.h("run", self.module, "--streams", 2, check=2).stderr)
        self.assertIn("--duration 10s", self.h("run", self.module, "--duration", "soon", check=2).stderr)
        # A table for people and CSV would be one text.
        for other in ("--evaluate", "--profile", f"--check={self.path}/mlp.onnx", f"--against={self.module}"):
            refused = self.h("run", self.module, "--csv", other, check=2)
            self.assertEqual((refused.stdout, len(refused.stderr.splitlines())), ("", 1))
            self.assertIn("--json", refused.stderr)

    def test_inputs_are_named(self):
        ran = self.h("run", self.module, check=0)
        self.assertRegex(ran.stderr, r"random data for '\w+' \(seed 0")
        name = re.search(r"random data for '(\w+)'", ran.stderr)[1]
        write_npy(self.path / "x.npy", [1, 784])
        wrong = self.h("run", self.module, "--input", f"foo={self.path}/x.npy", check=2)
        self.assertIn("no input 'foo'", wrong.stderr)
        self.assertIn(name, wrong.stderr)
        for array in (name, "arr_0"):  # a file with one array needs no name
            with zipfile.ZipFile(self.path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(self.path / "x.npy", array + ".npy")
            self.assertEqual(self.h("run", self.module, "--input", self.path / "x.npz", check=0).stderr, "")
            self.h("run", self.module, "--input", f"{name}={self.path}/x.npz", check=0)
        (self.path / "no.npz").write_text("nothing")
        self.assertIn("numpy.savez", self.h("run", self.module, "--input", self.path / "no.npz", check=2).stderr)

    def test_what_cannot_be_tuned_is_refused_before_it_is_accepted(self):
        before = self.h("jobs", "--all", check=0).stdout
        (self.path / "notes.txt").write_text("buy milk")
        self.assertIn("ONNX", self.h("submit", self.path / "notes.txt", check=2).stderr)
        self.assertIn("heddle run", self.h("submit", self.module, check=2).stderr)
        self.assertIn("images", self.h("submit", self.path / "mlp.onnx", "--shape", "images=1x3", check=2).stderr)
        self.assertEqual(self.h("jobs", "--all", check=0).stdout, before)
        dry = self.h("submit", self.path / "mlp.onnx", "--device", "foo", "--dry-run", check=0).stdout
        key = json.loads(self.h("records", "--limit", 1, "--json", check=0).stdout)["device_key"]
        self.assertIn("no device matches", dry)
        self.assertIn(key, dry)
        done = self.h("submit", self.path / "mlp.onnx", "--device", "foo", check=0)
        self.assertIn("no device has the key 'foo'", done.stderr)
        self.assertIn(key, done.stderr)
        job = done.stdout.strip()
        # It waits twice: for a slot to be imported, and then for that device.
        deadline = time.monotonic() + 60
        while not json.loads(self.h("show", job, "--json", check=0).stdout).get("tasks") and time.monotonic() < deadline:
            time.sleep(0.2)
        while "waiting" not in self.h("jobs", "--plain", check=0).stdout and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertIn("waiting", self.h("jobs", "--plain", check=0).stdout)
        self.h("cancel", job, check=0)
        fetched = self.h("fetch", job, "-o", self.path / "default.heddle")
        # Another job may have measured the same tasks.
        self.assertEqual(fetched.returncode, 0, fetched.stderr)

    def test_a_job_without_trials_gives_default_schedules_and_says_so(self):
        heddle("zoo", "mlp", "--seed", 3, "-o", self.path / "other.onnx", check=0)
        job = self.h("submit", self.path / "other.onnx", "--target", "llvm -mcpu=atom", check=0).stdout.strip()
        deadline = time.monotonic() + 60
        while json.loads(self.h("show", job, "--json", check=0).stdout)["state"] == "importing" and time.monotonic() < deadline:
            time.sleep(0.1)
        self.h("cancel", job, check=0)
        fetched = self.h("fetch", job, "-o", self.path / "untuned.heddle", check=0)
        self.assertIn("default: no trial of the job was measured", fetched.stderr)
        self.assertIn("kernels have no recorded time", heddle("inspect", self.path / "untuned.heddle", check=0).stderr)

    def test_people_hold_slots(self):
        tracker = ("--tracker", f"unix:{self.service.directory}/data/sockets/tracker")

        def device(*args, code=0):
            return heddle("device", *args, *tracker, check=code)

        slots = [(worker["worker"], slot["slot"]["name"], slot["slot"]["kind"])
                 for worker in json.loads(self.h("devices", "--json", check=0).stdout)["workers"] for slot in worker["slots"]]
        worker, slot, _ = next(one for one in slots if one[2] == "device")
        lease = json.loads(device("lease", f"{worker}/{slot}", "--for", "10m", "--json").stdout)
        self.assertEqual(set(lease), Documented.keys("device lease"))
        try:
            self.assertIn("held by person:", device("lease", f"{worker}/{slot}", code=1).stderr)
            state = {one["slot"]["name"]: one for w in json.loads(self.h("devices", "--json", check=0).stdout)["workers"] for one in w["slots"]}
            self.assertEqual(state[slot]["state"], "held")
            job = self.h("submit", self.path / "mlp.onnx", "--trials", 2, "--batch", 2, "--force", check=0).stdout.strip()
            self.h("wait", job, "--timeout", 4, check=6)
        finally:
            resumed = json.loads(device("resume", worker, "--json").stdout)
        self.assertEqual(set(resumed), Documented.keys("device resume"))
        self.assertEqual(resumed["resumed"], [f"{worker}/{slot}"])
        self.h("wait", job, "--timeout", 200, check=0)
        drained = json.loads(device("drain", worker, "--for", "2m", "--json").stdout)
        try:
            self.assertGreater(len(drained["leases"]), 0)
            states = {one["state"] for w in json.loads(self.h("devices", "--json", check=0).stdout)["workers"] for one in w["slots"]}
            self.assertLessEqual(states, {"held", "blocked"})
        finally:
            device("resume", worker)
        self.assertIn("is held by a person", device("resume", worker).stderr)
        self.assertIn("WORKER/SLOT", device("lease", worker, code=2).stderr)
        self.assertIn("1h", device("lease", f"{worker}/{slot}", "--for", "2h", code=2).stderr)
        self.assertIn("there are", device("drain", "nobody", code=4).stderr)
        self.assertIn("no tracker answers", heddle("device", "resume", worker, "--tracker", "127.0.0.1:9", check=5).stderr)

    def test_devices_say_how_quiet_they_are(self):
        noise = json.loads(self.h("devices", "--json", check=0).stdout)["noise"]
        self.assertTrue(noise)
        for slot in noise:
            self.assertGreater(slot["trials"], 0)
            self.assertGreaterEqual(slot["spread"], 0)
        self.assertRegex(self.h("devices", check=0).stdout, r"\d+\.\d %, \d+ % repeated")


class Addresses(unittest.TestCase):
    def test_what_is_no_address_is_said_to_be_none(self):
        with tempfile.TemporaryDirectory() as directory:
            for program in ("heddle-scheduler", "heddle-tracker"):
                for listen in ("bogus", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:http"):
                    args = [str(BIN / program), "--listen", listen]
                    if program == "heddle-scheduler":
                        args += ["--data", directory + "/data"]
                    done = subprocess.run(args, capture_output=True, text=True, timeout=60, cwd=directory)
                    self.assertEqual(done.returncode, 2, (args, done.stderr))
                    self.assertIn(f"--listen {listen}", done.stderr)
                    self.assertIn("HOST:PORT", done.stderr)


class PrivateServices(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)
        heddle("zoo", "mlp", "-o", self.path / "mlp.onnx", check=0)
        self.data = {"XDG_DATA_HOME": str(self.path / "share")}

    def tune(self, output, *flags):
        """The command, which is killed at the end of the test if it still runs."""
        env = {**os.environ, **self.data, "XDG_CONFIG_HOME": "/nowhere"}
        env.pop("HEDDLE_SERVER", None)
        args = [str(BIN / "heddle"), "tune", str(self.path / "mlp.onnx"), "-o", str(self.path / output), "--batch", "2", "--force", "--no-compare", *map(str, flags)]
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)

        def end():
            if process.poll() is None:
                process.kill()
                process.communicate(timeout=60)

        self.addCleanup(end)
        return process

    def until(self, process, words):
        """Reads stderr to the first line that has the words, which is returned."""
        for line in process.stderr:
            if words in line:
                return line
        self.fail(f"the command ended without saying '{words}'")

    def interrupt(self, process):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)

    def test_a_second_command_uses_the_service_of_the_first_and_outlives_it(self):
        first = self.tune("first.heddle", "--trials", 1000)
        self.until(first, "j1:")
        # Others see what it does.
        jobs = heddle("jobs", env=self.data, check=0)
        self.assertIn("j1", jobs.stdout)
        heddle("show", "j1", env=self.data, check=0)
        second = self.tune("second.heddle", "--trials", 3, "--seed", 5)
        self.until(second, "j2:")
        self.interrupt(first)
        _, said = second.communicate(timeout=LIMIT_S)
        self.assertEqual(second.returncode, 0, said)
        self.assertIn("this one goes on with it", said)
        self.assertTrue((self.path / "second.heddle").exists())
        # Nothing is left.
        self.assertFalse((self.path / "share" / "heddle" / "sockets" / "private").exists())
        heddle("jobs", env=self.data, check=5)

    def test_a_run_has_a_page_of_its_own(self):
        self.assertIn("--http", heddle("tune", "--help", check=0).stdout)
        refused = self.tune("no.heddle", "--http", "0.0.0.0:0")
        _, said = refused.communicate(timeout=60)
        self.assertEqual(refused.returncode, 2, said)
        self.assertIn("ssh -L", said)
        first = self.tune("first.heddle", "--trials", 1000, "--http", "127.0.0.1:0")
        page = re.search(r"page at (http://127\.0\.0\.1:\d+/)", self.until(first, "page at"))[1]
        self.until(first, "j1:")
        with urllib.request.urlopen(page + "jobs/j1", timeout=60) as answer:
            self.assertIn(b"Job j1: mlp", answer.read())
        # Another command does not open a page of a service that it did not start.
        second = self.tune("second.heddle", "--trials", 1000, "--seed", 5, "--http", "127.0.0.1:0")
        self.until(second, "no page at 127.0.0.1:0")
        self.until(second, "j2:")
        self.interrupt(second)
        self.interrupt(first)
        with self.assertRaises(urllib.error.URLError):
            urllib.request.urlopen(page, timeout=60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
