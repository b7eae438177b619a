"""Certificates, tokens and sockets as the documents show them: a lab of three daemons in five commands, and one machine without any
set-up, on which no port is open."""
import json
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from programs import BIN, LIMIT_S

CORES = sorted(os.sched_getaffinity(0))


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HEDDLE_")}
    return clean | {"HEDDLE_MACHINE": "table"} | more


def run(*words, check=0, **more):
    done = subprocess.run([str(BIN / words[0]), *map(str, words[1:])], capture_output=True, text=True, timeout=LIMIT_S, env=environment(**more))
    if check is not None and done.returncode != check:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}, expected {check}\n{done.stdout}{done.stderr}")
    return done


def eventually(what, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def listening_ports(pid):
    """TCP ports on which the process, or one that it started, listens."""
    pids, inodes = [pid], set()
    for each in pids:
        children = pathlib.Path(f"/proc/{each}/task").glob("*/children")
        pids += [int(child) for file in children for child in file.read_text().split()]
        for entry in pathlib.Path(f"/proc/{each}/fd").iterdir():
            try:
                inodes.add(os.readlink(entry))
            except OSError:
                pass
    ports = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                ports.append(int(words[1].rpartition(":")[2], 16))
    return ports, len(pids)


class LabTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.daemons = []

    def tearDown(self):
        for process in reversed(self.daemons):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        self.folder.cleanup()

    def start(self, *words, **more):
        log = self.path / f"{len(self.daemons)}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen([str(BIN / words[0]), *map(str, words[1:])], stdout=file, stderr=file, env=environment(**more))
        self.daemons.append(process)
        return process

    def logs(self):
        return "\n".join(f"{log}: {log.read_text()[-2000:]}" for log in sorted(self.path.glob("*.log")))

    def port_of(self, file):
        self.assertTrue(eventually(lambda: file.exists() and file.read_text().strip()), self.logs())
        return "127.0.0.1:" + file.read_text().strip()

    def test_three_daemons_in_five_commands(self):
        ca = self.path / "ca"
        run("heddle-ca", "init", ca)
        run("heddle-ca", "issue", ca, "--role", "worker", "--name", "w1")
        self.start("heddle-tracker", "--tls-dir", ca / "tracker", "--listen", "127.0.0.1:0", "--port-file", self.path / "t")
        tracker = self.port_of(self.path / "t")
        self.start("heddle-scheduler", "--tls-dir", ca / "scheduler", "--listen", "127.0.0.1:0", "--port-file", self.path / "s",
                   "--tracker", tracker, "--data", self.path / "data")
        server = self.port_of(self.path / "s")
        self.start("heddle-worker", "--tls-dir", ca / "w1", "--tracker", tracker, "--cpu-slots", CORES[0], "--device-slots", CORES[-1],
                   "--blob-cache", self.path / "cache")
        operator = {"HEDDLE_SERVER": server, "HEDDLE_TLS_DIR": str(ca / "operator")}
        self.assertTrue(eventually(lambda: "w1" in run("heddle", "devices", check=None, **operator).stdout), self.logs())

        # A job of ann's, through all stages, all over TLS.
        run("heddle-ca", "issue", ca, "--role", "user", "--name", "ann", "--tenant", "vision")
        ann = {"HEDDLE_SERVER": server, "HEDDLE_TLS_DIR": str(ca / "ann"), "USER": "mallory"}
        model = self.path / "mlp.onnx"
        run("heddle", "zoo", "mlp", "-o", model)
        run("heddle", "tune", model, "-o", self.path / "mlp.heddle", "--trials", 2, "--plan", "off", **ann)
        self.assertGreater((self.path / "mlp.heddle").stat().st_size, 1000)
        self.assertIn("j1", run("heddle", "jobs", "--all", **ann).stdout)
        shown = json.loads(run("heddle", "show", "j1", "--json", **ann).stdout)
        self.assertGreaterEqual(shown["comparison"]["made"], 1, "the worker times what a worker signed")

        # The module says which worker made it, and nobody can change it unnoticed.
        fetched = self.path / "fetched.heddle"
        self.assertIn("signed by worker/w1", run("heddle", "fetch", "j1", "-o", fetched, **ann).stderr)
        self.assertIn("signed   by worker/w1 for j1", run("heddle", "inspect", fetched, **ann).stdout)
        self.assertEqual(json.loads(run("heddle", "inspect", fetched, "--json", **ann).stdout)["signed_by"], "worker/w1")
        self.assertIn("somebody; give --tls-dir", run("heddle", "inspect", fetched).stdout)
        run("heddle", "run", fetched, "--signed", **ann)
        self.assertIn("give --tls-dir", run("heddle", "run", fetched, "--signed", check=2).stderr)
        run("heddle-ca", "init", self.path / "elsewhere")
        self.assertIn("not of this lab",
                      run("heddle", "run", fetched, "--signed", check=None, HEDDLE_TLS_DIR=str(self.path / "elsewhere/operator")).stderr)
        changed = bytearray(fetched.read_bytes())
        changed[len(changed) // 2] ^= 1
        (self.path / "changed.heddle").write_bytes(changed)
        refused = run("heddle", "run", self.path / "changed.heddle", "--signed", check=None, **ann)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("something else", refused.stderr)

        # A module of a worker that was revoked since runs no more where the list says so.
        revoked = ca / "ann/revoked"
        revoked.write_text("worker/w1\n")
        revoked.chmod(0o600)
        refused = run("heddle", "run", fetched, "--signed", check=None, **ann)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("worker/w1 is revoked", refused.stderr)
        self.assertIn("submit the model again", refused.stderr)
        self.assertEqual(len(refused.stderr.strip().splitlines()), 1)
        revoked.unlink()
        run("heddle", "run", fetched, "--signed", **ann)

        # An operator collects the job; ann may not.
        self.assertNotEqual(run("heddle", "gc", "--older-than", "0", check=None, **ann).returncode, 0)
        self.assertIn("j1", run("heddle", "gc", "--older-than", "0", "--dry-run", **operator).stdout)
        self.assertIn("1 jobs collected", run("heddle", "gc", "--older-than", "0", **operator).stderr)
        self.assertIn("was collected", run("heddle", "fetch", "j1", "-o", self.path / "late", check=None, **ann).stderr)

        # Bob has a token and ca.pem, and sees nothing of it.
        token = run("heddle-ca", "token", self.path / "data/tokens", "--role", "user", "--name", "bob").stdout
        token_file = self.path / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(token)
        people = self.path / "people"
        people.mkdir()
        (people / "ca.pem").write_bytes((ca / "ca.pem").read_bytes())
        bob = {"HEDDLE_SERVER": server, "HEDDLE_TLS_DIR": str(people), "HEDDLE_TOKEN_FILE": str(token_file)}
        self.assertTrue(eventually(lambda: run("heddle", "devices", check=None, **bob).returncode == 0), self.logs())
        self.assertNotIn("j1", run("heddle", "jobs", "--all", **bob).stdout)
        for command in ("show", "cancel", "watch"):
            self.assertIn('no job "j1"', run("heddle", command, "j1", check=4, **bob).stderr)
        run("heddle", "fetch", "j1", "-o", self.path / "stolen", check=4, **bob)

        # Without an identity, nothing; and what somebody meant for a lab is never done elsewhere.
        nobody = {"HEDDLE_SERVER": server, "HEDDLE_TLS_DIR": str(people)}
        self.assertIn("shows no identity", run("heddle", "jobs", check=None, **nobody).stderr)
        refused = run("heddle", "tune", model, "-o", self.path / "x.heddle", check=None, **nobody)
        self.assertNotEqual(refused.returncode, 0)
        self.assertNotIn("starting one", refused.stderr)
        run("heddle", "jobs", check=5, HEDDLE_SERVER=server)  # plain text

        lines = [json.loads(line) for line in (self.path / "data/audit/calls.jsonl").read_text().splitlines()]
        self.assertIn(("ann", "vision", "heddle.v1.JobService/Submit", "j1", "OK"),
                      [(line["name"], line["tenant"], line["method"], line.get("job"), line["result"]) for line in lines])
        self.assertIn(("bob", "NOT_FOUND"), [(line["name"], line["result"]) for line in lines])

    def test_nothing_but_this_machine_without_certificates(self):
        for words in (("heddle-tracker",), ("heddle-scheduler", "--data", self.path / "data"),
                      ("heddle-worker", "--cpu-slots", CORES[0], "--blob-cache", self.path / "cache")):
            done = run(*words, "--listen", "0.0.0.0:0", check=2)
            self.assertIn("heddle-ca init", done.stderr)
        done = run("heddle", "jobs", check=None, HEDDLE_SERVER="10.0.0.1:9190")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--tls-dir", done.stderr)
        run("heddle-ca", "init", self.path / "ca")
        wrong = run("heddle-tracker", "--tls-dir", self.path / "ca/operator", "--listen", "0.0.0.0:0", check=2)
        self.assertIn("needs the role tracker", wrong.stderr)

    def test_one_machine_needs_no_set_up_and_opens_no_port(self):
        home = {"XDG_DATA_HOME": str(self.path / "share")}
        service = self.start("heddle-scheduler", "--embedded", **home)
        self.assertTrue(eventually(lambda: "local" in run("heddle", "devices", check=None, **home).stdout), self.logs())
        sockets = self.path / "share/heddle/sockets"
        self.assertEqual(stat.S_IMODE(sockets.stat().st_mode), 0o700)
        self.assertEqual(sorted(entry.name for entry in sockets.iterdir()), ["scheduler", "tracker", "worker"])
        ports, processes = listening_ports(service.pid)
        self.assertEqual(ports, [])
        self.assertGreaterEqual(processes, 3)

    def test_the_tool_refuses_what_makes_no_sense(self):
        ca = self.path / "ca"
        for words, says in (((), "init"), (("begin", ca), "begin"), (("init",), "first"), (("issue", ca, "--role", "user", "--name", "a"), "init"),
                            (("init", ca, "--name", "a"), "no names")):
            self.assertIn(says, run("heddle-ca", *words, check=2).stderr)
        run("heddle-ca", "init", ca)
        for words, says in ((("init", ca), "already"), (("issue", ca, "--role", "root", "--name", "a"), "roles are"),
                            (("issue", ca, "--role", "user", "--name", "A"), "a name has"),
                            (("issue", ca, "--role", "user", "--name", "a/../../b"), "a name has"),
                            (("issue", ca, "--role", "user", "--name", "a", "--tenant", "b?c"), "a name has"),
                            (("issue", ca, "--role", "worker", "--name", "a", "--tenant", "b"), "only people"),
                            (("issue", ca, "--role", "user"), "--name"), (("issue", ca, "--role", "user", "--name"), "takes a value"),
                            (("issue", ca, "--role", "user", "--name", "a", "--days", "0"), "--days"),
                            (("issue", ca, "--role", "tracker", "--name", "tracker"), "exists"),
                            (("token", self.path / "tokens", "--role", "worker", "--name", "a"), "for people")):
            self.assertIn(says, run("heddle-ca", *words, check=2).stderr, words)
        self.assertEqual(stat.S_IMODE(ca.stat().st_mode), 0o700)
        for key in ca.rglob("*.key"), ca.rglob("key.pem"):
            for file in key:
                self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600, file)


if __name__ == "__main__":
    unittest.main()
