"""The binaries under test, and what they are given: for the tests of this folder. The first argument is where they are."""
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/release/bin").resolve()
LIMIT_S = 240  # no single command here takes longer


def heddle(*args, server=None, cwd=None, check=None, env=None):
    # Not the configuration of whoever runs the tests.
    environment = dict(os.environ, **{"XDG_CONFIG_HOME": "/nowhere", **(env or {})})
    environment.pop("HEDDLE_SERVER", None)
    if server:
        environment["HEDDLE_SERVER"] = server
    done = subprocess.run([str(BIN / "heddle"), *map(str, args)], capture_output=True, text=True, timeout=LIMIT_S, cwd=cwd, env=environment)
    if check is not None and done.returncode != check:
        raise AssertionError(f"heddle {' '.join(map(str, args))}: exit {done.returncode}, expected {check}\n{done.stdout}{done.stderr}")
    return done


def write_npy(path, shape, value=0.5, descr="<f4"):
    count = 1
    for extent in shape:
        count *= extent
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (descr, ", ".join(map(str, shape)))
    header = header.ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack({"<f4": "<f", "<f8": "<d"}[descr], value) * count)


class Service:
    """heddle-scheduler --embedded for the life of a test class, or without the workers of that."""

    def __init__(self, directory, *flags, embedded=True):
        self.directory = pathlib.Path(directory)
        self.flags = (("--embedded",) if embedded else ()) + flags
        self.start()

    def start(self):
        port_file = self.directory / "port"
        port_file.unlink(missing_ok=True)
        self.log = open(self.directory / "log", "ab")
        self.process = subprocess.Popen(
            [str(BIN / "heddle-scheduler"), "--listen", "127.0.0.1:0", "--port-file", str(port_file),
             "--data", str(self.directory / "data"), *self.flags], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the service did not start: " + (self.directory / "log").read_text()[-2000:])
            time.sleep(0.05)
        self.address = "127.0.0.1:" + port_file.read_text().strip()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(60)
        self.log.close()
