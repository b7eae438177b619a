"""Every page of a real scheduler with 0, 1, 1,000 and 10,000 jobs and a task of 100,000 trials: sound HTML, below 500 KB, the first byte
within 100 ms; changes arrive within two seconds, also with 1,000 pages open."""
import base64
import pathlib
import re
import resource
import selectors
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse
import xml.etree.ElementTree

import planted

MAX_BYTES = 500_000
MAX_FIRST_BYTE_S = 0.1
MAX_CHANGE_S = 2
OPEN_PAGES = 1000
JOBS, STAGES = 100, 1000  # that change at once; a job of a dozen tasks has so many stages


def first_byte_limit():
    """100 ms; on a machine that is slower, or busy, as long as SQLite takes here and now to go through 100,000 rows twice."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, ns REAL, message BLOB)")
    database.executemany("INSERT INTO rows VALUES(?,?,?)", ((i, float(i * 7919 % 101), b"x" * 64) for i in range(100_000)))
    begin = time.monotonic()
    for _ in range(2):
        database.execute("SELECT id/512, min(ns), sum(length(message)) FROM rows GROUP BY 1").fetchall()
    return max(MAX_FIRST_BYTE_S, time.monotonic() - begin)


def check_html(test, body, address):
    text = body.decode()
    test.assertTrue(text.startswith("<!DOCTYPE html>\n"), address)
    root = xml.etree.ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    test.assertEqual(root.get("lang"), "en")
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    test.assertEqual(tags.count("h1"), 1, address)
    test.assertEqual(tags.count("main"), 1, address)
    test.assertEqual(tags.count("nav"), 1, address)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    test.assertEqual(len(ids), len(set(ids)), f"{address}: {ids}")
    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        if tag == "table":
            test.assertEqual(element[0].tag, "caption", address)
            test.assertTrue(all(cell.get("scope") for cell in element.iter("th")), address)
        if tag == "svg":
            test.assertTrue(element.get("aria-label"), address)
        if tag == "input" and element.get("type") != "hidden":
            test.assertTrue(any(label.get("for") == element.get("id") for label in root.iter("label")), address)
        test.assertFalse([name for name in element.keys() if name.startswith("on") or name == "style"], address)
    test.assertEqual([script.get("src") for script in root.iter("script")], ["/script.js"])
    return root


class Stream:
    """Server-sent events of a page."""

    def __init__(self, scheduler, page):
        self.socket = socket.create_connection((scheduler.host, scheduler.port))
        self.socket.sendall(f"GET /events?page={page} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.data = b""

    def read_until(self, what, limit_s=30):
        deadline = time.monotonic() + limit_s
        self.socket.settimeout(limit_s)
        while what not in self.data:
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {self.data[-500:]}")
            part = self.socket.recv(1 << 20)
            if not part:
                raise AssertionError(f"the stream ended after {self.data[-500:]}")
            self.data += part

    def close(self):
        self.socket.close()


class PageTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.scheduler = None

    def tearDown(self):
        if self.scheduler:
            self.scheduler.stop()
        self.folder.cleanup()

    def read(self, address):
        """The page, checked. The fastest of five counts."""
        times = []
        for _ in range(5):
            status, headers, body, first_byte = self.scheduler.get(address)
            self.assertEqual(status, 200, f"{address}: {body[:2000]}")
            times.append(first_byte)
        print(f"{address:24} {len(body):7} bytes, first byte after {min(times) * 1e3:6.1f} to {max(times) * 1e3:6.1f} ms", flush=True)
        self.assertLess(len(body), MAX_BYTES, address)
        if min(times) > MAX_FIRST_BYTE_S:
            self.assertLess(min(times), first_byte_limit(), address)
        self.assertNotIn(b"alert('x')", body)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        return check_html(self, body, address)

    def test_no_job(self):
        self.scheduler = planted.Scheduler(self.path)
        for address in ("/", "/jobs", "/machines", "/records", "/compare", "/whatif"):
            self.read(address)
        self.assertEqual(self.scheduler.get("/jobs/j1")[0], 404)
        # Without a tracker there are no machines to simulate.
        deadline = time.monotonic() + 20
        while b"is being simulated" in (body := self.scheduler.get("/whatif")[2]) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertIn(b'<p class="warn">', body)
        for address in ("/", "/machines", "/whatif"):
            body = self.scheduler.get(address)[2]
            self.assertIn(b"the tracker at 127.0.0.1:1 is not to be reached", body, address)
            self.assertIn(b"is heddle-tracker running?", body, address)
            self.assertNotIn(b"start heddle-worker", body, address)

    def test_the_first_look_at_a_huge_finished_job(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_trials(database, 1, planted.TRIALS))
        time.sleep(5)  # it is read ahead, which takes half a second on a core that does nothing else
        status, _, _, first_byte = self.scheduler.get("/jobs/j1")
        print(f"first look at a job of {planted.TRIALS} trials: first byte after {first_byte * 1e3:.1f} ms", flush=True)
        self.assertEqual(status, 200)
        self.assertLess(first_byte, first_byte_limit())

    def test_one_job_of_a_hundred_thousand_trials(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_trials(database, 1, planted.TRIALS))
        for address in ("/", "/jobs", "/machines", "/records", "/records?key=0123456789abcdef", "/records?search=MATMUL", "/jobs/j1"):
            self.read(address)
        task = self.read("/jobs/j1/tasks/1")
        text = "".join(task.itertext())
        self.assertRegex(text, r"showing \d+ of 100000 trials")
        self.assertIn("default, 1.000 ms", text)
        circles = [element for element in task.iter() if element.tag.endswith("}circle")]
        self.assertGreater(len(circles), 1000)
        # The latest 512 trials make 32 batches of 16; a model that is right has a rank correlation of 1.
        self.assertIn("The latest 512 trials that a model chose", text)
        self.assertIn("rank correlation 1.00", text)
        self.assertIn("The latest 20 of 32 batches", text)
        # 2 GFLOP over 12 MB.
        self.assertIn("the task does 167 FLOP per byte", text)
        self.assertRegex(text, r"best: [^;]*; \d+ % of what arithmetic allows")
        self.assertIn("for i in 1000", text)
        # The loops of both schedules are as long as they may be.
        self.assertIn("Loops of both", text)
        self.assertIn("for default.0 in 0..64", text)
        self.assertIn("for best.0 in 0..64", text)
        self.assertIn("The best so far over time", "".join(self.read("/records?key=0123456789abcdef").itertext()))
        # Records are paged by key.
        address, pages = "/records?key=0123456789abcdef", 0
        while address and pages < 3:
            body = self.scheduler.get(address)[2].decode()
            following = re.search(r'href="([^"]*after=[^"]*)"', body)
            self.assertTrue(following, address)
            address, pages = following[1].replace("&amp;", "&"), pages + 1

    def test_two_devices(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_devices(database, 2000))
        address = "/compare?" + urllib.parse.urlencode({"device_a": "old " + planted.HOSTILE.replace("\x1b", ""), "device_b": planted.OTHER_DEVICE})
        self.assertIn(b"there is no task", self.scheduler.get(address)[2])
        address = "/compare?" + urllib.parse.urlencode({"device_a": "old " + planted.HOSTILE, "device_b": planted.OTHER_DEVICE})
        text = "".join(self.read(address).itertext())
        self.assertIn("Both have records of 2000 tasks", text)
        self.assertIn(f"in the geometric mean, {planted.OTHER_DEVICE} is 2.00x as fast", text)
        self.assertIn("showing 100 of 2000 tasks", text)
        seen = set()
        while address:
            body = self.scheduler.get(address)[2].decode()
            seen |= set(re.findall(r'href="/records\?key=([0-9a-f]{16})"', body))
            following = re.search(r'href="(/compare\?[^"]*after=[^"]*)"', body)
            address = following and following[1].replace("&amp;", "&")
        self.assertEqual(len(seen), 2000)

    def test_a_thousand_and_ten_thousand_jobs(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: (planted.plant_jobs(database, 1, 500, planted.DONE),
                                                                       planted.plant_jobs(database, 501, 500, planted.IMPORTING)))
        for address in ("/", "/jobs", "/jobs?before=j501", "/jobs/j1000", "/machines", "/records", "/compare?a=j1000", "/compare?a=j1000&b=j1", "/whatif"):
            self.read(address)
        self.assertIn(b"showing 100 of 500 unfinished jobs", self.scheduler.get("/")[2])
        self.scheduler.stop()
        for offset in range(1001, 10_001, 1000):
            with sqlite3.connect(self.path / "data/heddle.db") as database:
                planted.plant_jobs(database, offset, 1000, planted.IMPORTING)
            database.close()
        self.scheduler.start()
        for address in ("/", "/jobs", "/jobs?before=j501", "/jobs/j10000"):
            self.read(address)
        self.assertIn(b"showing 100 of 9500 unfinished jobs", self.scheduler.get("/")[2])
        # All of them can be reached.
        seen, address = set(), "/jobs"
        while address:
            body = self.scheduler.get(address)[2].decode()
            seen |= set(re.findall(r'href="/jobs/(j\d+)"', body))
            following = re.search(r'href="(/jobs\?before=[^"]*)"', body)
            address = following and following[1]
        self.assertEqual(len(seen), 10_000)

    def test_changes_arrive_at_once(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_jobs(database, 1, 3, planted.IMPORTING))
        streams = [Stream(self.scheduler, page) for page in ("/", "/jobs", "/jobs/j2")]
        for stream in streams:
            stream.read_until(b"event: parts")
            stream.data = b""
        # A form of the page does it.
        begin = time.monotonic()
        status, headers = self.scheduler.act("j2", "pause")
        self.assertEqual((status, headers["Location"]), (303, "/jobs/j2"))
        for stream in streams:
            stream.read_until(b">paused<")
            took = time.monotonic() - begin
            self.assertLess(took, MAX_CHANGE_S)
            stream.close()
        print(f"the change arrived after {took:.2f} s")
        self.assertIn(b">paused<", self.scheduler.get("/jobs/j2")[2])
        for page in ("/nowhere", "/jobs/j99"):
            self.assertEqual(self.scheduler.get(f"/events?page={page}")[0], 404)

    def test_many_jobs_that_change_at_once(self):
        """As a hundred browsers see it, each with another job of many stages."""
        self.scheduler = planted.Scheduler(self.path, lambda database: (planted.plant_jobs(database, 1, JOBS, planted.IMPORTING),
                                                                       planted.plant_stages(database, range(1, JOBS + 1), STAGES)))
        streams = [Stream(self.scheduler, f"/jobs/j{1 + i}") for i in range(JOBS)]
        for stream in streams:
            stream.read_until(b"event: parts", limit_s=120)
        time.sleep(10)  # so that nothing is owed for these
        for stream in streams:
            stream.data = b""
            stream.socket.setblocking(False)
        waiting = selectors.DefaultSelector()
        for stream in streams:
            waiting.register(stream.socket, selectors.EVENT_READ, stream)
        paused, seen = [], {}

        def pause_all():
            for i in range(JOBS):
                self.scheduler.act(f"j{1 + i}", "pause")
                paused.append(time.monotonic())
        acting = threading.Thread(target=pause_all)
        acting.start()
        deadline = time.monotonic() + 120
        while waiting.get_map() and time.monotonic() < deadline:
            for key, _ in waiting.select(timeout=1):
                part = key.data.socket.recv(1 << 20)
                self.assertTrue(part, "the stream ended")
                key.data.data += part
                if b">paused<" in key.data.data:
                    waiting.unregister(key.data.socket)
                    seen[key.data] = time.monotonic()
        acting.join()
        self.assertFalse(waiting.get_map(), "not all were told")
        late = [seen[stream] - at for stream, at in zip(streams, paused, strict=True)]
        print(f"{JOBS} jobs of {STAGES} stages changed within {paused[-1] - paused[0]:.2f} s: pages had it after {statistics.median(late):.2f} s in the median,"
              f" {max(late):.2f} s at most")
        self.assertLess(statistics.median(late), MAX_CHANGE_S)
        self.assertLess(max(late), 3 * MAX_CHANGE_S)
        for stream in streams:
            stream.close()

    def test_a_report_is_one_file(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_trials(database, 1, 3000))
        report = self.path / "report.html"
        done = self.scheduler.heddle("report", "j1", "-o", report)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = report.read_text()
        self.assertLess(len(text), MAX_BYTES)
        root = xml.etree.ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
        self.assertNotIn("alert('x')", text)
        self.assertEqual([e.tag for e in root.iter() if e.tag in ("script", "link", "img", "nav", "form")], [])
        self.assertTrue(all(e.get("href").startswith("#") for e in root.iter("a")), "it leads nowhere else")
        ids = {e.get("id") for e in root.iter()}
        self.assertTrue(all(e.get("href")[1:] in ids for e in root.iter("a")))
        self.assertRegex("".join(root.itertext()), r"showing \d+ of 3000 trials")
        self.assertEqual(sum(e.tag.endswith("}svg") for e in root.iter()), 4)
        self.assertEqual(self.scheduler.heddle("report", "j9", "-o", report).returncode, 4)
        self.assertEqual(report.read_text(), text, "what was there stays")

    def test_the_address_is_checked(self):
        for address, words in (("0.0.0.0:0", "ssh -L"), ("localhost", "wanted HOST:PORT"), ("127.0.0.1:99999", "wanted HOST:PORT")):
            done = subprocess.run([str(planted.BIN / "heddle-scheduler"), "--data", str(self.path / "data"), "--http", address], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_tokens_are_asked_for(self):
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_jobs(database, 1, 2, planted.IMPORTING))
        self.assertIn("asks for no token", (self.path / "log").read_text())
        self.scheduler.stop()
        token = subprocess.run([str(planted.BIN / "heddle-ca"), "token", str(self.path / "data/tokens"), "--role", "user", "--name", "bob"],
                               capture_output=True, text=True, check=True).stdout.strip()
        self.scheduler.start()
        self.assertNotIn("asks for no token", (self.path / "log").read_text())
        status, headers, _, _ = self.scheduler.get("/")
        self.assertEqual(status, 401)
        self.assertIn("Basic", headers["WWW-Authenticate"])
        password = base64.b64encode(f"me:{token}".encode()).decode()
        status, _, body, _ = self.scheduler.get("/", headers={"Authorization": f"Basic {password}"})
        self.assertEqual(status, 200)
        self.assertIn(b"user/bob,", body)
        self.assertNotIn(b"/jobs/j1", body, "the jobs are ann's")

    def test_a_thousand_open_pages(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < OPEN_PAGES + 200:
            self.skipTest(f"this process may open {hard} files only")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, OPEN_PAGES + 200), hard))
        self.scheduler = planted.Scheduler(self.path, lambda database: planted.plant_jobs(database, 1, 20, planted.IMPORTING))
        pid = self.scheduler.process.pid

        def threads():
            return int(re.search(r"Threads:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])
        before = threads()
        streams = [Stream(self.scheduler, f"/jobs/j{1 + i % 20}") for i in range(OPEN_PAGES)]
        for stream in streams:
            stream.read_until(b"event: parts")
            stream.data = b""
        self.assertLessEqual(threads(), before + 2, "a stream takes no thread")
        _, _, _, first_byte = self.scheduler.get("/")
        self.assertLess(first_byte, 1)
        waiting = selectors.DefaultSelector()
        for i, stream in enumerate(streams):
            stream.socket.setblocking(False)
            if i % 20 == 4:
                waiting.register(stream.socket, selectors.EVENT_READ, stream)
        begin = time.monotonic()
        self.assertEqual(self.scheduler.act("j5", "pause")[0], 303)
        while waiting.get_map() and time.monotonic() < begin + 30:
            for key, _ in waiting.select(timeout=1):
                part = key.data.socket.recv(1 << 20)
                self.assertTrue(part, "the stream ended")
                key.data.data += part
                if b">paused<" in key.data.data:
                    waiting.unregister(key.data.socket)
        took = time.monotonic() - begin
        print(f"{OPEN_PAGES} pages open, {OPEN_PAGES // 20} of the job that changed had it after {took:.2f} s")
        self.assertFalse(waiting.get_map(), "not all were told")
        self.assertLess(took, 3 * MAX_CHANGE_S)
        for stream in streams:
            stream.close()
        # The scheduler ends with streams open, too.


if __name__ == "__main__":
    unittest.main(verbosity=2)
