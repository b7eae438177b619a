"""The autoscaler: its rules under random demand and faults, its two sources of machines against recorded answers, and its loop."""

import contextlib
import http.server
import io
import json
import math
import os
import pathlib
import random
import re
import select
import socket
import stat
import sys
import tempfile
import threading
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))

from autoscaler import kubernetes, loop, observe, rules, slurm, web  # noqa: E402

SEEDS = range(1, 151)


class World:
    """Machines that come late or never, workers that register late or never, slots that are in quarantine for a while, and work that uses
    some of the others."""

    def __init__(self, rng, limits, faults):
        self.rng, self.limits, self.faults = rng, limits, faults
        self.instances = {}  # number -> [state, time of its next change]
        self.workers = {}  # number -> busy slots
        self.sick = {}  # number -> slots in quarantine
        self.demand = 0

    def pass_time(self, now):
        for number, instance in list(self.instances.items()):
            state, change = instance
            if now < change:
                continue
            if state == rules.PENDING:
                if self.rng.random() < self.faults:
                    del self.instances[number]  # the machine broke
                else:
                    self.instances[number] = [rules.RUNNING, now + self.rng.uniform(1, 20)]
            elif state == rules.RUNNING and number not in self.workers:
                never = self.rng.random() < self.faults
                self.instances[number][1] = now + (1e9 if never else 0)
                if not never:
                    self.workers[number] = 0
            elif state == rules.LEAVING:
                del self.instances[number]
        for number in self.workers:
            if self.rng.random() < self.faults / 10:
                self.sick[number] = self.rng.randint(0, self.limits.slots)
        left = self.demand
        for number in sorted(self.workers, key=lambda _: self.rng.random()):
            self.workers[number] = min(left, self.limits.slots - self.sick.get(number, 0))
            left -= self.workers[number]
        self.waiting = left

    def see(self):
        return rules.Observation(
            waiting=self.waiting,
            oldest_s=self.limits.wait_s if self.waiting else 0,
            busy=sum(self.workers.values()),
            instances={number: state for number, (state, _) in self.instances.items()},
            workers={number: busy == 0 for number, busy in self.workers.items()},
            fit={number: self.limits.slots - sick for number, sick in self.sick.items() if sick},
        )

    def start(self, number, now):
        assert number not in self.instances, "the number is in use"
        self.instances[number] = [rules.PENDING, now + self.rng.uniform(0, 60)]

    def drain(self, number, now):
        self.workers.pop(number, None)
        self.sick.pop(number, None)
        self.instances[number] = [rules.LEAVING, now + self.rng.uniform(0, 30)]


class RulesTest(unittest.TestCase):
    def run_world(self, seed, demand_of, faults=0.1, rounds=400, refuses=0.0):
        """Runs the rules on a world and checks what must always hold. Returns (world, times of starts, times of drains, memory)."""
        rng = random.Random(seed)
        limits = rules.Rules(max=rng.randint(1, 8), min=0, slots=rng.randint(1, 3), idle_s=60, register_s=90, backoff_s=20, most_backoff_s=300)
        world, memory = World(rng, limits, faults), rules.Memory()
        starts, drains, busy_at, came = [], [], {}, set()
        now = 0.0
        for step in range(rounds):
            now += rng.uniform(5, 15)
            world.demand = demand_of(rng, step, limits)
            world.pass_time(now)
            seen = world.see()
            for number, idle in seen.workers.items():
                came.add(number)
                if not idle:
                    busy_at[number] = now
            failures = memory.failures
            decision = rules.decide(limits, memory, seen, now)
            self.assertFalse(set(decision.start) & set(decision.drain))
            if failures and decision.start:
                self.assertGreaterEqual(now, memory.not_before)
            for number in decision.start:
                self.assertLess(number, limits.max)
                if rng.random() < refuses:
                    rules.start_failed(limits, memory, now)
                    rules.forget(memory, number)
                    continue
                starts.append(now)
                world.start(number, now)
                came.discard(number)
                busy_at.pop(number, None)
            self.assertLessEqual(len(world.instances), limits.max)
            for number in decision.drain:
                drains.append(now)
                self.assertTrue(seen.workers.get(number, True), f"worker {number} was told to leave while it works")
                if number in came:
                    self.assertGreaterEqual(now - busy_at.get(number, 0), limits.idle_s, "it worked a moment ago")
                world.drain(number, now)
        return world, starts, drains, memory, limits

    def test_random_demand_and_faults(self):
        started = drained = 0
        for seed in SEEDS:
            with self.subTest(seed=seed):
                level = [0]

                def demand(rng, step, limits, level=level):
                    if rng.random() < 0.05:
                        level[0] = rng.choice([0, 0, 1, rng.randint(0, 30)])
                    return level[0]

                _, starts, drains, _, _ = self.run_world(seed, demand, refuses=0.1)
                started, drained = started + len(starts), drained + len(drains)
        self.assertGreater(started, 5 * len(SEEDS))
        self.assertGreater(drained, 3 * len(SEEDS))

    def test_steady_demand_gets_its_workers_and_keeps_them(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                world, starts, drains, _, limits = self.run_world(seed, lambda rng, step, limits: 2 * limits.slots, faults=0)
                self.assertGreaterEqual(len(world.workers), min(limits.max, 2))
                # Machines that come late make it ask again for none.
                self.assertEqual(len(starts), min(limits.max, 2))
                self.assertEqual(drains, [])

    def test_without_work_all_leave(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                world, starts, drains, _, _ = self.run_world(seed, lambda rng, step, limits: 9 if step < 100 else 0, rounds=300)
                self.assertGreater(len(starts), 0)
                self.assertEqual(world.instances, {})

    def test_starts_that_always_fail_are_rare(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                _, starts, _, memory, limits = self.run_world(seed, lambda rng, step, limits: 99, faults=1.0)
                rounds = len(starts) / min(limits.max, limits.most_at_once)
                self.assertLess(rounds, 4000 / 300 + 12, "about 4000 s with pauses of up to 300 s")
                self.assertGreater(memory.failed_starts, 2)

    def test_work_that_no_worker_can_take_keeps_few(self):
        limits = rules.Rules(max=8, idle_s=60, wait_s=10)
        memory = rules.Memory()
        running = {number: rules.RUNNING for number in range(5)}
        idle = dict.fromkeys(range(5), True)
        now, left = 0, dict(running)
        for _ in range(20):
            now += 20
            seen = rules.Observation(waiting=1, oldest_s=now, busy=0, instances=left, workers={n: True for n in left})
            decision = rules.decide(limits, memory, seen, now)
            self.assertEqual(decision.start, ())
            for number in decision.drain:
                del left[number]
        self.assertEqual(len(left), 1, "one stage waits")
        self.assertEqual(len(idle), 5)

    def test_slots_in_quarantine_are_no_capacity(self):
        limits = rules.Rules(max=4, slots=2, idle_s=60)
        running = dict.fromkeys(range(2), rules.RUNNING)
        idle = dict.fromkeys(range(2), True)
        for fit, starts in (({}, ()), ({0: 1}, (2,)), ({0: 0}, (2,)), ({0: 0, 1: 1}, (2, 3)), ({0: 0, 1: 0}, (2, 3))):
            seen = rules.Observation(waiting=4, oldest_s=99, instances=running, workers=idle, fit=fit)
            self.assertEqual(rules.decide(limits, rules.Memory(), seen, 0).start, starts, fit)

    def test_a_worker_in_quarantine_leaves_though_work_waits_and_others_keep_the_least(self):
        limits = rules.Rules(max=3, min=2, slots=2, idle_s=60)
        memory = rules.Memory()
        running = dict.fromkeys(range(2), rules.RUNNING)
        decided = []
        for now in (0, 30, 60):
            seen = rules.Observation(waiting=9, oldest_s=99, busy=2, instances=running, workers={0: True, 1: False, 2: False}, fit={0: 0})
            decided.append(rules.decide(limits, memory, seen, now))
            running.update(dict.fromkeys(decided[-1].start, rules.RUNNING))
        self.assertEqual(decided, [rules.Decision(start=(2,)), rules.Decision(), rules.Decision(drain=(0,))])

        memory = rules.Memory()
        running = dict.fromkeys(range(3), rules.RUNNING)
        for now in (0, 60):  # without work, two that take some stay, and no more
            seen = rules.Observation(instances=running, workers=dict.fromkeys(range(3), True), fit={1: 0})
            decided = rules.decide(limits, memory, seen, now)
        self.assertEqual(decided, rules.Decision(drain=(1,)))

    def test_short_waits_start_nothing(self):
        memory = rules.Memory()
        seen = rules.Observation(waiting=50, oldest_s=9)
        self.assertEqual(rules.decide(rules.Rules(max=8), memory, seen, 0).start, ())

    def test_a_start_that_is_not_listed_yet_counts(self):
        memory, limits = rules.Memory(), rules.Rules(max=8)
        seen = rules.Observation(waiting=2, oldest_s=99)
        self.assertEqual(rules.decide(limits, memory, seen, 0).start, (0, 1))
        self.assertEqual(rules.decide(limits, memory, seen, 5).start, ())

    def test_a_worker_that_comes_ends_the_back_off(self):
        memory, limits = rules.Memory(), rules.Rules(max=8, backoff_s=30)
        seen = rules.Observation(waiting=1, oldest_s=99)
        for now, pause in ((0, 30), (100, 60)):
            self.assertEqual(rules.decide(limits, memory, seen, now).start, (0,))
            rules.start_failed(limits, memory, now)
            rules.forget(memory, 0)
            self.assertEqual(memory.not_before, now + pause)
        self.assertEqual(rules.decide(limits, memory, seen, 200).start, (0,))
        rules.decide(limits, memory, rules.Observation(waiting=9, oldest_s=99, busy=1, instances={0: rules.RUNNING}, workers={0: False}), 210)
        rules.start_failed(limits, memory, 220)
        self.assertEqual(memory.not_before, 250, "the first failure in a row")

    def test_min_is_kept_without_work(self):
        memory = rules.Memory()
        limits = rules.Rules(max=8, min=2)
        self.assertEqual(rules.decide(limits, memory, rules.Observation(), 0).start, (0, 1))
        running = {0: rules.RUNNING, 1: rules.RUNNING}
        for now in range(0, 5000, 50):
            seen = rules.Observation(instances=running, workers={0: True, 1: True})
            self.assertEqual(rules.decide(limits, memory, seen, now), rules.Decision())


METRICS = """# HELP heddle_queue_depth x
heddle_queue_depth{pool="cpu"} 3
heddle_queue_depth{pool="any"} 1
heddle_queue_depth{pool="zen"} 7
heddle_queue_oldest_seconds{pool="cpu"} 12.5
heddle_queue_oldest_seconds{pool="any"} 40
heddle_jobs_submitted_total 4
"""


def worker(name, *slots):
    return {
        "worker": name,
        "slots": [{"state": state, "slot": {"kind": "cpu" if pool == "cpu" else "device", "device_key": "" if pool == "cpu" else pool}} for pool, state in slots],
    }


CASES = pathlib.Path(__file__).resolve().parents[1] / "scheduler/sim/autoscaler_cases.json"


def make_cases():
    """Worlds in which no start fails, and what the rules decide there: heddle-sim has the same rules, and is tested with these cases."""
    cases = []
    for seed in range(1, 11):
        rng = random.Random(seed)
        limits = rules.Rules(max=rng.randint(2, 8), min=rng.randint(0, 1), slots=rng.randint(1, 3), idle_s=60, most_at_once=rng.randint(1, 4))
        memory, instances, rounds, demand, oldest = rules.Memory(), {}, [], 0, 0.0
        sick = {}  # number -> slots in quarantine
        for step in range(45):
            now = 10.0 * step
            known = [number for number, (state, _) in instances.items() if state == rules.RUNNING]
            for number, (state, change) in list(instances.items()):
                if state == rules.PENDING and now >= change:
                    instances[number] = (rules.RUNNING, math.inf)
                elif state == rules.LEAVING and now >= change:
                    del instances[number]
            if rng.random() < 0.2:
                demand = rng.choice([0, 0, 2, 4, 20])
            if known and rng.random() < 0.05:  # it is taken away, but not before the rules saw that it came
                instances[known[-1]] = (rules.LEAVING, now + 30)
            running = [number for number, (state, _) in instances.items() if state == rules.RUNNING]
            for number in running:
                if rng.random() < 0.05:
                    sick[number] = rng.choice([0, 1, limits.slots])
            sick = {number: slots for number, slots in sick.items() if number in running}
            fit = {number: limits.slots - slots for number, slots in sick.items() if slots}
            busy = {number: 0 for number in running}
            for _ in range(min(demand, sum(fit.get(number, limits.slots) for number in running))):
                busy[min((number for number in busy if busy[number] < fit.get(number, limits.slots)), key=busy.get)] += 1
            waiting = demand - sum(busy.values())
            oldest = oldest + 10 if waiting else 0.0
            idle = {number: used == 0 for number, used in busy.items()}
            states = {number: state for number, (state, _) in instances.items()}
            decision = rules.decide(limits, memory, rules.Observation(waiting, oldest, sum(busy.values()), states, idle, fit), now)
            rounds.append({"now": now, "waiting": waiting, "oldest": oldest, "busy": sum(busy.values()),
                           "instances": {str(number): state for number, state in sorted(states.items())},
                           "idle": sorted(number for number, unused in idle.items() if unused),
                           "fit": {str(number): slots for number, slots in sorted(fit.items())},
                           "start": list(decision.start), "drain": list(decision.drain)})
            for number in decision.start:
                instances[number] = (rules.PENDING, now + rng.choice([15, 45, 95]))
            for number in decision.drain:
                if instances[number][0] == rules.PENDING:
                    del instances[number]
                else:
                    instances[number] = (rules.LEAVING, now + 15)
        cases.append({"max": limits.max, "min": limits.min, "slots": limits.slots, "wait": limits.wait_s, "idle": limits.idle_s,
                      "most_at_once": limits.most_at_once, "rounds": rounds})
    return cases


class SharedCasesTest(unittest.TestCase):
    def test_cases_of_the_simulator_are_those_of_these_rules(self):
        text = "[\n" + ",\n".join(json.dumps(case) for case in make_cases()) + "\n]\n"
        if os.environ.get("HEDDLE_BLESS"):
            CASES.write_text(text)
        self.assertEqual(CASES.read_text(), text, "HEDDLE_BLESS=1 rewrites the cases")
        rounds = [one for case in json.loads(text) for one in case["rounds"]]
        self.assertGreater(sum(len(one["start"]) for one in rounds), 20)
        self.assertGreater(sum(len(one["drain"]) for one in rounds), 10)
        self.assertGreater(sum(len(one["fit"]) for one in rounds), 20)


class ObserveTest(unittest.TestCase):
    def test_what_waits(self):
        samples = observe.read_metrics(METRICS)
        self.assertEqual(observe.waiting(samples, {"cpu", "any"}), (4, 40))
        self.assertEqual(observe.waiting(samples, {"nothing"}), (0, 0))

    def test_workers_of_a_class(self):
        workers = [
            worker("cpu-0", ("cpu", "free"), ("zen", "held")),
            worker("cpu-12", ("cpu", "free"), ("zen", "quarantined")),
            worker("cpu-3", ("cpu", "draining")),
            worker("cpu-big-1", ("cpu", "held")),
            worker("cpu-x", ("cpu", "held")),
        ]
        self.assertEqual(observe.of_class(workers, "cpu", {"cpu", "zen"}), ({0: False, 12: True, 3: False}, 1, {12: 1}))
        self.assertEqual(observe.of_class(workers, "cpu", {"zen"})[2], {12: 0})
        self.assertEqual(observe.of_class(workers, "cpu", {"cpu"})[1:], (0, {}))

    def test_a_client_that_fails(self):
        with self.assertRaisesRegex(observe.Unobserved, "status 1"):
            observe.fetch_workers(["false"])
        with self.assertRaisesRegex(observe.Unobserved, "does not print"):
            observe.fetch_workers(["echo"])


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, script):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path


class SlurmTest(Folder):
    """Programs that answer as Slurm 22.05 does."""

    def setUp(self):
        super().setUp()
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{self.folder}:{path}"
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        self.source = slurm.Slurm({}, {"cpu": {"script": "w.sbatch", "sbatch": ["--partition=p"]}})

    def test_list_start_and_drain(self):
        self.program("squeue", f'echo "$@" >{self.folder}/asked; printf "7 0 RUNNING\\n7 1 PENDING\\n6 1 COMPLETING\\n7 4 CONFIGURING\\nnonsense\\n"')
        self.program("sbatch", f'echo "$@" >{self.folder}/started; echo 8')
        self.program("scancel", f'echo "$@" >{self.folder}/ended')
        self.assertEqual(self.source.list("cpu"), {0: rules.RUNNING, 1: rules.PENDING, 4: rules.PENDING})
        self.assertIn("--name heddle-cpu", (self.folder / "asked").read_text())
        self.source.start("cpu", (5, 3))
        self.assertEqual((self.folder / "started").read_text(), "--parsable --job-name=heddle-cpu --array=3,5 --partition=p w.sbatch\n")
        self.source.drain("cpu", 1)
        self.assertEqual((self.folder / "ended").read_text(), "7_1\n")
        with self.assertRaisesRegex(slurm.SourceError, "no task 9"):
            self.source.drain("cpu", 9)

    def test_refusals(self):
        self.program("sbatch", 'echo "sbatch: error: invalid partition specified: p" >&2; exit 1')
        with self.assertRaisesRegex(slurm.SourceError, "invalid partition"):
            self.source.start("cpu", (0,))
        with self.assertRaisesRegex(ValueError, "script"):
            slurm.Slurm({}, {"cpu": {}})


class Api(http.server.BaseHTTPRequestHandler):
    """Answers of a Kubernetes API server to the calls of the autoscaler, in the form that version 1.31 gives them."""

    calls = []
    pods = {}
    deny = False
    quota = math.inf  # pods that may be made
    starts = None  # a semaphore: making a pod takes until it is let

    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def fail(self, status, reason, message):
        self.answer(status, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": status})

    def handle_call(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        self.calls.append((self.command, self.path))
        base = "/api/v1/namespaces/lab/"
        if self.headers["Authorization"] != "Bearer a-token":
            return self.fail(401, "Unauthorized", "Unauthorized")
        if self.deny:
            return self.fail(403, "Forbidden", "pods is forbidden: exceeded quota: compute")
        if self.path == base + "podtemplates/heddle-worker-cpu":
            return self.answer(200, {"kind": "PodTemplate", "template": TEMPLATE})
        if self.command == "POST" and self.path == base + "pods":
            if self.starts is not None:
                self.starts.acquire()
            name = body["metadata"]["name"]
            if name in self.pods:
                return self.fail(409, "AlreadyExists", f'pods "{name}" already exists')
            if len(self.pods) >= self.quota:
                return self.fail(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: compute')
            self.pods[name] = body | {"status": {"phase": "Pending"}}
            return self.answer(201, self.pods[name])
        name = self.path.removeprefix(base + "pods/")
        if self.command == "DELETE":
            if name not in self.pods:
                return self.fail(404, "NotFound", f'pods "{name}" not found')
            self.pods[name]["metadata"]["deletionTimestamp"] = "2026-11-26T12:00:00Z"
            return self.answer(200, self.pods[name])
        if self.path.startswith(base + "pods?labelSelector=heddle-class%3Dcpu,heddle-number&limit=500"):
            # Two pages.
            items = list(self.pods.values())
            half = len(items) // 2
            if "continue=a%2Fb" in self.path:
                return self.answer(200, {"kind": "PodList", "metadata": {}, "items": items[half:]})
            return self.answer(200, {"kind": "PodList", "metadata": {"continue": "a/b"}, "items": items[:half]})
        return self.fail(404, "NotFound", "the server could not find the requested resource")

    do_GET = do_POST = do_DELETE = handle_call

    def log_message(self, *_):
        pass


TEMPLATE = {"metadata": {"labels": {"app": "heddle-worker"}}, "spec": {"containers": [{"name": "worker", "args": ["--id", "INSTANCE"]}]}}


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server


class WebTest(unittest.TestCase):
    def address(self, pieces):
        """Of a server that sends these pieces of bytes, each a moment after the one before, to one client."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve_one():
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                try:
                    for piece in pieces:
                        client.sendall(piece)
                        time.sleep(0.01)
                except OSError:
                    pass  # the client has gone

        threading.Thread(target=serve_one, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/x?y=1"

    def test_an_answer(self):
        head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n"
        self.assertEqual(web.ask(self.address([head, b"none"]), 60, 100), (404, b"none"))
        self.assertEqual(web.ask(self.address([head, b"none"]), 60, 2), (404, b"no"))

    def test_a_byte_now_and_then_does_not_outlast_the_limit(self):
        slow = [b"x"] * 300
        for pieces in (
            [b"HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n", *slow],
            [b"HTTP/1.0 200 OK\r\n\r\n", *slow],  # the answer has the connection for itself
            [b"HTTP/1.1 200 OK\r\nX-Header: ", *slow, b"\r\nContent-Length: 0\r\n\r\n"],
        ):
            with self.assertRaisesRegex(TimeoutError, "no whole answer within 0.3 s"):
                web.ask(self.address(pieces), 0.3, 1000)

    def test_no_answer(self):
        for pieces in ([], [b"nonsense\r\n\r\n"]):
            with self.assertRaises((OSError, ValueError)):
                web.ask(self.address(pieces), 60, 100)
        with self.assertRaisesRegex(ValueError, "no http:// or https:// address"):
            web.ask("file:///etc/passwd", 60, 100)


class KubernetesTest(Folder):
    def setUp(self):
        super().setUp()
        (self.folder / "token").write_text("a-token\n")
        (self.folder / "namespace").write_text("lab")
        Api.calls, Api.pods, Api.deny, Api.quota, Api.starts = [], {}, False, math.inf, None
        server = serve(Api)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.api = f"http://127.0.0.1:{server.server_address[1]}"
        self.source = kubernetes.Kubernetes({"api": self.api, "account": str(self.folder)}, {"cpu": {}})

    def test_pods_come_run_and_go(self):
        self.assertEqual(self.source.list("cpu"), {})
        self.source.start("cpu", (0, 2))
        pod = Api.pods["heddle-cpu-2"]
        self.assertEqual((pod["kind"], pod["apiVersion"]), ("Pod", "v1"))
        self.assertEqual(pod["spec"]["containers"][0]["args"], ["--id", "cpu-2"])
        self.assertEqual(pod["metadata"]["labels"], {"app": "heddle-worker", "heddle-class": "cpu", "heddle-number": "2"})
        self.assertEqual(self.source.list("cpu"), {0: rules.PENDING, 2: rules.PENDING})
        Api.pods["heddle-cpu-0"]["status"]["phase"] = "Running"
        self.assertEqual(self.source.list("cpu"), {0: rules.RUNNING, 2: rules.PENDING})
        self.source.drain("cpu", 0)
        self.assertEqual(self.source.list("cpu")[0], rules.LEAVING)
        self.source.drain("cpu", 7)  # it is gone already, which is no error

    def test_pods_that_ended_are_removed(self):
        self.source.start("cpu", (0,))
        Api.pods["heddle-cpu-0"]["status"]["phase"] = "Failed"
        self.assertEqual(self.source.list("cpu"), {0: rules.LEAVING})
        self.assertIn(("DELETE", "/api/v1/namespaces/lab/pods/heddle-cpu-0"), Api.calls)

    def test_refusals(self):
        Api.deny = True
        with self.assertRaisesRegex(slurm.SourceError, "status 403 pods is forbidden: exceeded quota"):
            self.source.list("cpu")
        Api.deny = False
        (self.folder / "token").write_text("another")
        with self.assertRaisesRegex(slurm.SourceError, "status 401"):
            self.source.start("cpu", (0,))
        with self.assertRaisesRegex(slurm.SourceError, "status 404"):
            (self.folder / "token").write_text("a-token")
            self.source.start("gpu", (0,))

    def settings(self, metrics_text):
        """(path of a configuration, file with the scheduler's metrics, file with the tracker's list)"""
        metrics, devices = self.folder / "metrics", self.folder / "devices"
        metrics.write_text(metrics_text)
        devices.write_text('{"workers": []}')

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(metrics.read_bytes())

            def log_message(self, *_):
                pass

        page = serve(Page)
        self.addCleanup(page.server_close)
        self.addCleanup(page.shutdown)
        client = self.program("heddle", f"cat {devices}")
        config = self.folder / "autoscaler.toml"
        config.write_text(f"""
metrics = "http://127.0.0.1:{page.server_address[1]}/metrics"
heddle = ["{client}"]
state = "{self.folder}/state.json"
every_s = 1
[source]
kind = "kubernetes"
api = "{self.api}"
account = "{self.folder}"
[classes.cpu]
pools = ["cpu", "any"]
slots = 2
max = 5
wait_s = 5
idle_s = 60
""")
        return config, metrics, devices

    def test_pods_that_were_made_before_one_was_refused_are_kept(self):
        config, _, _ = self.settings(METRICS.replace('{pool="cpu"} 3', '{pool="cpu"} 9'))
        said = []
        settings = loop.read_config(config)
        counts = loop.Counts(settings.state)
        scaler = loop.Autoscaler(settings, counts, said.append)
        Api.quota = 2
        scaler.round(1000)
        self.assertEqual(sorted(Api.pods), ["heddle-cpu-0", "heddle-cpu-1"])
        self.assertEqual([counts.of("cpu")[field] for field in ("starts", "failed_starts")], [2, 1])
        self.assertRegex(said[0], "cannot start 2, 3, 4: .*exceeded quota")
        self.assertRegex(said[1], "started 0, 1, since")
        # Both go before they were listed once. They were started, so that is two more failures.
        Api.pods.clear()
        scaler.round(1000 + settings.rules["cpu"].register_s)
        self.assertEqual(counts.of("cpu")["failed_starts"], 3)

    def test_it_asks_the_scheduler_that_leads(self):
        config, metrics, _ = self.settings(METRICS)
        text = config.read_text()
        url = re.search(r'metrics = "(.*)"', text)[1]

        class Standby(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'heddle_build_info{version="1"} 1\n')

            def log_message(self, *_):
                pass

        standby = serve(Standby)
        self.addCleanup(standby.server_close)
        self.addCleanup(standby.shutdown)
        waits = f"http://127.0.0.1:{standby.server_address[1]}/metrics"
        for urls, starts in (([waits, url], 2), ([url, waits], 2), ([waits], 0)):
            Api.pods.clear()
            config.write_text(re.sub(r"metrics = .*", f"metrics = {json.dumps(urls)}", text))
            said = []
            settings = loop.read_config(config)
            loop.Autoscaler(settings, loop.Counts(settings.state), said.append).round(1000)
            self.assertEqual(len(Api.pods), starts, said)
            if not starts:
                self.assertRegex(" ".join(said), "this scheduler does not lead; `metrics` may list")
        config.write_text(re.sub(r"metrics = .*", "metrics = []", text))
        with self.assertRaisesRegex(loop.ConfigError, "metrics must be the URL"):
            loop.read_config(config)

    def test_it_is_well_while_starts_are_slow(self):
        config, _, _ = self.settings(METRICS)  # two pods are to be made
        settings = loop.read_config(config)
        counts = loop.Counts(settings.state)
        scaler = loop.Autoscaler(settings, counts, lambda line: None)
        pages = loop.serve("127.0.0.1:0", scaler, counts, settings.every_s)
        self.addCleanup(pages.server_close)
        self.addCleanup(pages.shutdown)
        starts = Api.starts = threading.Semaphore(0)
        self.addCleanup(starts.release, 9)
        look = threading.Thread(target=scaler.round, args=(1000,), daemon=True)

        def health():
            with socket.create_connection(pages.server_address, timeout=30) as client:
                client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                with client.makefile("rb") as answer:
                    return answer.read().decode()

        def wait_for_start(number):
            until = time.monotonic() + 60
            while sum(method == "POST" for method, _ in Api.calls) < number and time.monotonic() < until:
                time.sleep(0.01)

        look.start()
        wait_for_start(1)
        scaler.looked -= 1000  # the look has taken long by now
        self.assertRegex(health(), r" 200 [\s\S]*well: the last look ended 10\d\d s ago")
        scaler.stepped -= 1000  # and so has this one start
        self.assertRegex(health(), r" 503 [\s\S]*hangs: nothing has happened for 10\d\d s; the last look")
        starts.release()
        wait_for_start(2)
        self.assertRegex(health(), r" 200 [\s\S]*well: the last look ended 10\d\d s ago")
        starts.release()
        look.join(60)
        self.assertRegex(health(), r" 200 [\s\S]*well: the last look ended \d{1,2} s ago")
        self.assertEqual(sorted(Api.pods), ["heddle-cpu-0", "heddle-cpu-1"])

    def test_the_loop_follows_the_work(self):
        """From a job that waits to no pod: the program with its real parts, a scheduler's metrics and a tracker's list that are files."""
        config, metrics, devices = self.settings(METRICS)
        said = []
        settings = loop.read_config(config)
        counts = loop.Counts(settings.state)
        scaler = loop.Autoscaler(settings, counts, said.append)
        scaler.round(1000)
        self.assertEqual(sorted(Api.pods), ["heddle-cpu-0", "heddle-cpu-1"], "4 stages wait, a worker has 2 slots")
        for pod in Api.pods.values():
            pod["status"]["phase"] = "Running"
        devices.write_text(json.dumps({"workers": [worker("cpu-0", ("cpu", "held")), worker("cpu-1", ("cpu", "free"))]}))
        metrics.write_text('heddle_queue_depth{pool="cpu"} 0\n')
        for now in range(1030, 1200, 30):
            scaler.round(now)
        self.assertIn("deletionTimestamp", Api.pods["heddle-cpu-1"]["metadata"])
        self.assertNotIn("deletionTimestamp", Api.pods["heddle-cpu-0"]["metadata"], "it works")
        devices.write_text('{"broken')
        scaler.round(1230)
        self.assertTrue(any("does not print the list" in line for line in said), said)
        counted = json.loads((self.folder / "state.json").read_text())["classes"]["cpu"]
        self.assertEqual((counted["starts"], counted["drains"]), (2, 1))
        self.assertAlmostEqual(counted["node_seconds"], 2 * 200 + 0, delta=61)
        self.assertIn('heddle_autoscaler_starts_total{class="cpu"} 2', loop.metrics_text(counts.classes))
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(loop.main([str(config), "--status"]), 0)
        self.assertRegex(output.getvalue(), r"cpu +0 +1 .* 2 +0 +0\.1")
        # What was counted outlives the program.
        self.assertEqual(loop.Counts(settings.state).of("cpu")["starts"], 2)


class PagesTest(unittest.TestCase):
    """/metrics and /healthz, with clients that connect and say nothing."""

    def setUp(self):
        counts = types.SimpleNamespace(classes={"cpu": dict.fromkeys(loop.Counts.FIELDS, 0)})
        self.scaler = types.SimpleNamespace(looked=time.monotonic(), stepped=time.monotonic())
        server = loop.serve("127.0.0.1:0", self.scaler, counts, every_s=1)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.port = server.server_address[1]

    def connect(self):
        client = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        self.addCleanup(client.close)
        return client

    def page(self, path):
        client = self.connect()
        client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        with client.makefile("rb") as answer:
            return answer.read().decode()

    def test_pages(self):
        self.assertIn(" 200 ", self.page("/healthz"))
        self.assertIn('heddle_autoscaler_starts_total{class="cpu"} 0', self.page("/metrics"))
        self.assertIn(" 404 ", self.page("/other"))
        self.scaler.stepped -= 1000
        self.assertIn(" 503 ", self.page("/healthz"))

    def test_a_client_that_stalls_holds_nobody_up(self):
        stalled = [self.connect() for _ in range(loop.MOST_CLIENTS - 1)]
        stalled[0].sendall(b"GET /healthz HT")
        self.assertIn(" 200 ", self.page("/healthz"))
        self.assertFalse([client for client in stalled if self.ended(client)], "there is room for all")

    def test_of_too_many_clients_the_oldest_ends(self):
        before = threading.active_count()
        stalled = [self.connect() for _ in range(3 * loop.MOST_CLIENTS)]
        self.assertIn(" 200 ", self.page("/healthz"))
        for client in stalled[: 2 * loop.MOST_CLIENTS]:
            self.assertEqual(client.recv(1), b"", "it was ended")
        until = time.monotonic() + 5
        while threading.active_count() > before + loop.MOST_CLIENTS and time.monotonic() < until:
            time.sleep(0.01)
        self.assertLessEqual(threading.active_count(), before + loop.MOST_CLIENTS)

    @unittest.skipUnless(os.path.exists("/proc/net/if_inet6") and open("/proc/net/if_inet6").read(), "no IPv6 here")
    def test_ipv6(self):
        server = loop.serve("[::1]:0", self.scaler, types.SimpleNamespace(classes={}), every_s=1)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with socket.create_connection(("::1", server.server_address[1]), timeout=5) as client:
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            self.assertIn(b" 200 ", client.recv(100))

    @staticmethod
    def ended(client):
        return bool(select.select([client], [], [], 0)[0])


class ConfigTest(Folder):
    def refused(self, text):
        path = self.folder / "a.toml"
        path.write_text(text)
        with self.assertRaises(loop.ConfigError) as caught:
            loop.read_config(path)
        return str(caught.exception)

    def test_examples(self):
        root = pathlib.Path(loop.__file__).resolve().parents[1]
        config = loop.read_config(root / "slurm" / "autoscaler.toml")
        self.assertEqual(set(config.rules), {"cpu", "gpu"})

    def test_refusals(self):
        self.assertIn("source", self.refused("x = 1"))
        self.assertIn("slurm, kubernetes", self.refused('[source]\nkind = "pbs"\n[classes.a]\nmax = 1'))
        head = '[source]\nkind = "slurm"\n[classes.a]\nscript = "s"\n'
        self.assertIn("max", self.refused(head + 'pools = ["cpu"]\n'))
        self.assertIn("min <= max", self.refused(head + 'pools = ["cpu"]\nmax = 1\nmin = 2'))
        self.assertIn("pools", self.refused(head + "max = 1"))
        self.assertIn("at least 0", self.refused(head + 'pools = ["cpu"]\nmax = 1\nidle_s = "long"'))
        self.assertIn("script", self.refused('[source]\nkind = "slurm"\n[classes.a]\npools = ["cpu"]\nmax = 1'))


if __name__ == "__main__":
    unittest.main()
