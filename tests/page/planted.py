"""A scheduler with a page, over a database into which jobs and trials are written directly: making a hundred thousand of them by tuning
would take days."""
import http.client
import pathlib
import signal
import sqlite3
import struct
import subprocess
import sys
import time

BIN = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/release/bin").resolve()
TRIALS = 100_000
HOSTILE = "<script>alert('x')</script>\"&\x1b[31m"
TARGET = "llvm -mcpu=x"
DEVICE = "a device"
WORKLOAD = "program p(x: f32[1000, 1000], w: f32[1000, 1000] const) -> (y: f32[1000, 1000]) {\n  for i in 1000 { }\n}\n"
PEAK_GFLOPS, MEMORY_GBPS = 4000.0, 200.0
OTHER_DEVICE = "another device"
BEGIN_NS = 1_800_000_000 * 10**9

DONE, IMPORTING = 4, 1  # JobState
BUILD = 3  # StageKind; the next is profile


# ---- messages of Protobuf, by the numbers of proto/ ----

def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def text_field(number, text):
    data = text if isinstance(text, bytes) else text.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def number_field(number, value):
    return varint(number << 3) + varint(value)


def spec(name, user="ann"):
    return text_field(1, name) + text_field(2, TARGET) + number_field(4, 64) + text_field(11, user)


def double_field(number, value):
    return varint(number << 3 | 1) + struct.pack("<d", value)


def measurement(ns, loops=""):
    if ns == 0:
        return number_field(1, 5) + text_field(2, "signal 11")
    limits = double_field(17, PEAK_GFLOPS) + double_field(18, MEMORY_GBPS)
    return number_field(1, 1) + text_field(3, struct.pack("<3d", ns, ns, ns)) + text_field(4, limits) + text_field(7, loops)


def loops_of(name):
    """The longest text of loops that a record keeps."""
    line = f"  for {name}.%d in 0..64 step 8 parallel {{\n"
    return "".join(line % n for n in range(32768 // (len(line) + 3)))


def plant_jobs(database, first, count, state, name="model"):
    rows = [(i, spec(f"{name} {i}"), state, 0, "imported" if state == DONE else "", 0, "", "", "", "", BEGIN_NS + i, BEGIN_NS if state == DONE else 0, 0, b"", "ann")
            for i in range(first, first + count)]
    database.executemany("INSERT INTO jobs(id,spec,state,paused,reason,fault_kind,fault_message,device_key,model_digest,module_digest,created_ns,finished_ns,"
                         "running_ms,notes,user) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)


def plant_stages(database, jobs, count):
    """So many stages of each of the jobs, on two slots of a worker."""
    database.executemany("INSERT INTO stages(attempt,job,task,kind,worker,slot,lease,start_ns,end_ns,fault_kind,fault_message,candidates)"
                         " VALUES(?,?,'0123456789abcdef',?,'w1',?,'l',?,?,0,'',16)",
                         ((job * count + i, job, BUILD + i % 2, "cpu0" if i % 2 == 0 else "profile1", BEGIN_NS + i * 10**9, BEGIN_NS + (i + 1) * 10**9)
                          for job in jobs for i in range(count)))


def plant_trials(database, job, count):
    """A finished job with one task of so many trials. Every tenth failed."""
    plant_jobs(database, job, 1, DONE, name=HOSTILE)
    cursor = database.cursor()
    workload = cursor.execute("INSERT INTO workloads(key,text,label,flops) VALUES(?,?,?,?)",
                              ("0123456789abcdef", WORKLOAD, "matmul " + HOSTILE, 2e9)).lastrowid
    target = cursor.execute("INSERT INTO targets(text) VALUES(?)", (TARGET,)).lastrowid
    device = cursor.execute("INSERT INTO devices(key) VALUES(?)", (DEVICE,)).lastrowid
    cursor.execute("INSERT INTO tasks(job,idx,workload,weight,budget,known,known_valid,done,exhausted,warm_pending,known_best_ns,known_untuned_ns)"
                   " VALUES(?,0,?,3,?,0,0,1,0,0,0,0)", (job, workload, count))

    def median(i):
        return 0 if i % 10 == 9 else 1e6 / (1 + i / count) + 2e5 * (i * 7919 % 101) / 101
    best = min((i for i in range(count) if median(i)), key=median)
    loops = {0: loops_of("default"), best: loops_of("best")}
    trace = "\n".join(f"split loop{n} by 8 16 32, step %d of a schedule that is as long as they are" for n in range(6))
    # The model of each batch of 16 puts them into the right order, failed ones last.
    cursor.executemany("INSERT INTO candidates(job,id,task,trace,origin,attempts,learned,predicted,predicted_from) VALUES(?,?,0,?,?,0,1,?,?)",
                       ((job, i + 1, trace % ((i,) * 6), "default" if i == 0 else ("annealing", "random", "evolution")[i % 3], -median(i) or -1e12, i // 16 * 16)
                        for i in range(count)))
    cursor.executemany("INSERT INTO records(workload,target,device,trace,outcome,median_ns,created_ns,job,candidate,attempt,provenance,measurement,digest,worker)"
                       " VALUES(?,?,?,?,?,?,?,?,?,1,'',?,?,'w1')",
                       ((workload, target, device, trace % ((i,) * 6), 1 if median(i) else 5, median(i), BEGIN_NS + i * 10**8, job, i + 1, measurement(median(i), loops.get(i, "")),
                         i.to_bytes(32, "big")) for i in range(count)))
    plant_groups(database)


def plant_groups(database):
    """What the scheduler counts of records as it stores them."""
    database.execute("INSERT INTO record_groups SELECT workload,target,device,1,count(*),count(*),sum(outcome=1),"
                     "coalesce(min(CASE WHEN outcome=1 THEN median_ns END),0),0 FROM records GROUP BY workload,target,device")


def plant_devices(database, count):
    """So many tasks with records on two devices; on the second one all are twice as fast."""
    cursor = database.cursor()
    target = cursor.execute("INSERT INTO targets(text) VALUES('llvm -mcpu=y')").lastrowid
    devices = [cursor.execute("INSERT INTO devices(key) VALUES(?)", (key,)).lastrowid for key in ("old " + HOSTILE, OTHER_DEVICE)]
    for i in range(count):
        workload = cursor.execute("INSERT INTO workloads(key,text,label,flops) VALUES(?,?,?,?)", (f"{i:016x}", WORKLOAD, f"task {i} " + HOSTILE, 2e9)).lastrowid
        for n, device in enumerate(devices):
            ns = (1e6 + i) / (1 + n)
            cursor.execute("INSERT INTO records(workload,target,device,trace,outcome,median_ns,created_ns,provenance,measurement,digest,imported_by)"
                           " VALUES(?,?,?,'a trace',1,?,?,'',?,?,'ann')",
                           (workload, target, device, ns, BEGIN_NS, measurement(ns), (i * 2 + n).to_bytes(32, "little")))
    plant_groups(database)


class Scheduler:
    """heddle-scheduler with --http, and without a tracker unless it is embedded. `plant` is called with the database before it starts."""

    def __init__(self, directory, plant=None, *flags, embedded=False):
        self.directory = pathlib.Path(directory)
        self.flags = flags
        self.cluster = ("--embedded",) if embedded else ("--tracker", "127.0.0.1:1")
        if plant:
            self.start()  # makes the tables
            self.stop()
            with sqlite3.connect(self.directory / "data/heddle.db") as database:
                plant(database)
            database.close()
        self.start()

    def start(self):
        log = self.directory / "log"
        with open(log, "wb") as file:
            self.process = subprocess.Popen([str(BIN / "heddle-scheduler"), "--http", "127.0.0.1:0", *self.cluster, "--data", str(self.directory / "data"),
                                             *self.flags], stdout=file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while "listening on" not in log.read_text():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the scheduler did not start: " + log.read_text()[-2000:])
            time.sleep(0.02)
        lines = log.read_text().splitlines()
        address = next(line for line in lines if line.startswith("page at ")).removeprefix("page at http://").rstrip("/")
        self.host, self.port = address.rsplit(":", 1)
        self.port = int(self.port)
        self.server = next(line for line in lines if line.startswith("listening on ")).removeprefix("listening on ")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def get(self, address, method="GET", body=None, headers=None):
        """Status, headers, body, and seconds to the first byte."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.connect()
        begin = time.monotonic()
        connection.request(method, address, body, headers or {})
        response = connection.getresponse()
        first_byte = time.monotonic() - begin
        data = response.read()
        connection.close()
        return response.status, response.headers, data, first_byte

    def act(self, job, action):
        """What the form of the page does. Status and headers."""
        return self.get(f"/jobs/{job}/{action}", "POST", "reason=a+test", {"Origin": f"http://{self.host}:{self.port}"})[:2]

    def heddle(self, *words):
        return subprocess.run([str(BIN / "heddle"), "--server", self.server, *map(str, words)], capture_output=True, text=True, timeout=120)
