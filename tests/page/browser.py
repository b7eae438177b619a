"""A headless Chromium, driven over its DevTools port with Python's standard library only."""
import base64
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

LIMIT_S = 60


def find():
    """The program, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Socket:
    """A web socket: whole text messages."""

    def __init__(self, host, port, path):
        self.socket = socket.create_connection((host, port), timeout=LIMIT_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                            "Sec-WebSocket-Version: 13\r\n\r\n".encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.receive()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        if b" 101 " not in head.splitlines()[0]:
            raise AssertionError(head.decode())

    def receive(self):
        part = self.socket.recv(1 << 20)
        if not part:
            raise AssertionError("the browser closed the connection")
        return part

    def take(self, count):
        while len(self.buffer) < count:
            self.buffer += self.receive()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        length = struct.pack("!B", 128 | len(data)) if len(data) < 126 else struct.pack("!BH", 128 | 126, len(data)) if len(data) < 65536 else struct.pack("!BQ", 128 | 127, len(data))
        self.socket.sendall(b"\x81" + length + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def read(self):
        message = b""
        while True:
            first, second = self.take(2)
            length = second & 127
            if length == 126:
                length, = struct.unpack("!H", self.take(2))
            elif length == 127:
                length, = struct.unpack("!Q", self.take(8))
            data = self.take(length)
            if first & 15 in (0, 1, 2):
                message += data
                if first & 128:
                    return message.decode()


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="heddle-browser-")
        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-extensions",
             "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        where = pathlib.Path(self.folder) / "DevToolsActivePort"
        deadline = time.monotonic() + LIMIT_S
        while not (where.exists() and len(where.read_text().splitlines()) == 2):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the browser did not start")
            time.sleep(0.05)
        self.port = int(where.read_text().splitlines()[0])
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request("PUT", "/json/new?about:blank")
        target = json.loads(connection.getresponse().read())
        connection.close()
        self.socket = Socket("127.0.0.1", self.port, target["webSocketDebuggerUrl"].partition(f":{self.port}")[2])
        self.number = 0
        self.complaints = []  # errors in the console
        self.loaded = False
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # its own session, which holds its children
        self.process.wait(60)
        self.socket.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def note(self, message):
        method, what = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(what["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"])[:500])
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{what['entry']['text']} {what['entry'].get('url', '')}")

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.read())
            if message.get("id") != self.number:
                self.note(message)
                continue
            if "error" in message:
                raise AssertionError(f"{method}: {message['error']}")
            return message["result"]

    def go(self, address):
        self.loaded = False
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + LIMIT_S
        while not self.loaded:
            if time.monotonic() > deadline:
                raise AssertionError(f"{address} does not load")
            self.note(json.loads(self.socket.read()))

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(json.dumps(result["exceptionDetails"])[:1000])
        return result["result"].get("value")

    def wait_for(self, expression, limit_s):
        """Seconds until the expression is true."""
        begin = time.monotonic()
        while not self.evaluate(expression):
            if time.monotonic() > begin + limit_s:
                raise AssertionError(f"not within {limit_s} s: {expression}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def show_as(self, width, height, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
