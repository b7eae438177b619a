#!/usr/bin/env python3
"""Traces of a real job, as a collector of OpenTelemetry gets them: a small HTTP server on loopback keeps what the scheduler sends.

Usage: otlp_test.py BIN_DIR [unittest arguments]
"""
import http.server
import json
import pathlib
import re
import tempfile
import threading
import time
import unittest
import urllib.request

from programs import Service, heddle

LIMIT_S = 240
TRIALS = 4


class Recorder(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.requests.append((self.path, self.headers["Content-Type"], json.loads(self.rfile.read(length))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Otlp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        cls.collector.requests = []
        cls.thread = threading.Thread(target=cls.collector.serve_forever, daemon=True)
        cls.thread.start()
        try:
            cls.service = Service(cls.path, "--otlp", f"http://127.0.0.1:{cls.collector.server_port}", "--http", "127.0.0.1:0")
            heddle("zoo", "mlp", "-o", cls.path / "mlp.onnx", check=0)
            submitted = heddle("submit", cls.path / "mlp.onnx", "--trials", TRIALS, "--batch", 2, "--name", "a net", server=cls.service.address, check=0)
            cls.job = submitted.stdout.strip()
            heddle("wait", cls.job, "--timeout", LIMIT_S, server=cls.service.address, check=0)
            deadline = time.monotonic() + 20
            while not any(span["name"] == "job" for span in cls.spans()) and time.monotonic() < deadline:
                time.sleep(0.1)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        if hasattr(cls, "service"):
            cls.service.stop()
        cls.collector.shutdown()
        cls.collector.server_close()
        cls.folder.cleanup()

    @classmethod
    def spans(cls):
        return [span for _, _, body in cls.collector.requests for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]

    def attributes(self, span):
        return {entry["key"]: next(iter(entry["value"].values())) for entry in span["attributes"]}

    def test_requests_are_those_of_otlp_over_http(self):
        self.assertTrue(self.collector.requests)
        for path, content_type, body in self.collector.requests:
            self.assertEqual((path, content_type), ("/v1/traces", "application/json"))
            self.assertEqual(list(body), ["resourceSpans"])
            for resource in body["resourceSpans"]:
                self.assertIn({"key": "service.name", "value": {"stringValue": "heddle-scheduler"}}, resource["resource"]["attributes"])
                self.assertTrue(all(scope["scope"]["name"] for scope in resource["scopeSpans"]))

    def test_spans_have_the_fields_of_otlp(self):
        known = {"traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"}
        for span in self.spans():
            self.assertLessEqual(set(span), known)
            self.assertRegex(span["traceId"], r"^[0-9a-f]{32}$")
            self.assertRegex(span["spanId"], r"^[0-9a-f]{16}$")
            self.assertEqual(span["kind"], 1)
            self.assertIsInstance(span["startTimeUnixNano"], str)
            begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            self.assertLessEqual(begin, end)
            self.assertLess(abs(begin / 1e9 - time.time()), 3600, "nanoseconds since 1970")
            self.assertIn(span["status"]["code"], (0, 1, 2))
            for entry in span["attributes"]:
                (kind, value), = entry["value"].items()
                self.assertIn(kind, ("stringValue", "intValue"))
                self.assertIsInstance(value, str)

    def test_a_job_is_a_trace_with_its_stages(self):
        spans = [span for span in self.spans() if self.attributes(span)["heddle.job"] == self.job]
        roots = [span for span in spans if "parentSpanId" not in span]
        self.assertEqual(len(roots), 1)
        root = roots[0]
        self.assertEqual(root["name"], "job")
        self.assertEqual({span["traceId"] for span in spans}, {root["traceId"]})
        self.assertEqual({span.get("parentSpanId") for span in spans if span is not root}, {root["spanId"]})
        self.assertEqual(len({span["spanId"] for span in spans}), len(spans))
        told = self.attributes(root)
        self.assertEqual((told["heddle.job.name"], told["heddle.job.state"]), ("a net", "done"))
        self.assertGreater(int(told["heddle.trials"]), 0)
        names = {span["name"] for span in spans}
        self.assertLessEqual({"import", "propose", "build", "profile", "update", "compile", "job"}, names)
        # The same stages as the command line shows, at the same times.
        shown = heddle("show", self.job, "--json", server=self.service.address, check=0)
        timeline = {str(stage["attempt_id"]): stage for stage in json.loads(shown.stdout)["timeline"]}
        stages = {self.attributes(span)["heddle.attempt"]: span for span in spans if span is not root}
        self.assertEqual(set(stages), set(timeline))
        for attempt, span in stages.items():
            self.assertEqual(int(span["startTimeUnixNano"]), timeline[attempt]["start_unix_ns"])
            self.assertEqual(int(span["endTimeUnixNano"]), timeline[attempt]["end_unix_ns"])
            self.assertEqual(self.attributes(span)["heddle.slot"], timeline[attempt]["slot"])

    def test_what_was_sent_is_counted(self):
        log = (self.path / "log").read_text()
        page = re.search(r"page at (http://127\.0\.0\.1:\d+)/", log)[1]
        sent = dropped = None
        deadline = time.monotonic() + 20
        while sent != len(self.spans()) and time.monotonic() < deadline:
            with urllib.request.urlopen(page + "/metrics", timeout=30) as answer:
                text = answer.read().decode()
            sent = float(re.search(r'^heddle_otlp_spans_total\{result="sent"\} (\S+)', text, re.M)[1])
            dropped = float(re.search(r'^heddle_otlp_spans_total\{result="dropped"\} (\S+)', text, re.M)[1])
        self.assertEqual((sent, dropped), (len(self.spans()), 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
