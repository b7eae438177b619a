"""A whole model on one runtime, as a side of benchmarks such as `bench/run.sh models`.

python -m bench.models.model_side heddle|onnxruntime|openvino|mnn|tvm THREADS

  {"do": "version"} -> {"version": ".."}
  {"do": "inputs", "model": FILE, "inputs": NPZ, "seed": 0}                   writes random inputs; onnxruntime only
  {"do": "tune", "model": FILE, "trials": 64} -> {}                           trials a task; records are kept beside the model; tvm only
  {"do": "open", "model": FILE, "inputs": NPZ, "outputs": NPZ} -> {"id": 0}   runs once and writes the outputs
  {"do": "round", "id": 0} -> {"samples_ns": [..]}
Inputs are in place before a round, so a call is one inference and nothing else.
"""

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np

from bench.common import onnx_runtime

SAMPLES = 5
SAMPLE_NS = 10_000_000
ROUND_NS = 1_000_000_000  # a round that takes longer ends with the samples it has


class Heddle:
    """Through the C API of libheddle.so, as a deployed module runs."""

    class _Info(ctypes.Structure):
        _fields_ = [
            ("name", ctypes.c_char_p),
            ("dtype", ctypes.c_char_p),
            ("shape", ctypes.POINTER(ctypes.c_int64)),
            ("rank", ctypes.c_int32),
            ("bytes", ctypes.c_size_t),
        ]

    def __init__(self, threads):
        self._threads = threads
        self._lib = ctypes.CDLL(os.environ["HEDDLE_LIBRARY"])
        self._lib.heddle_last_error.restype = ctypes.c_char_p

    def version(self):
        return "Heddle"

    def _check(self, status):
        if status != 0:
            raise RuntimeError(self._lib.heddle_last_error().decode())

    def open(self, path, inputs):
        model = ctypes.c_void_p()
        self._check(self._lib.heddle_load(path.encode(), self._threads, ctypes.byref(model)))
        info = self._Info()
        for i in range(self._lib.heddle_num_inputs(model)):
            self._check(self._lib.heddle_input_info(model, i, ctypes.byref(info)))
            data = np.ascontiguousarray(inputs[info.name.decode()])
            self._check(self._lib.heddle_set_input(model, i, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes)))
        run = self._lib.heddle_run

        def call():
            if run(model):
                self._check(1)

        def outputs():
            found = {}
            for i in range(self._lib.heddle_num_outputs(model)):
                self._check(self._lib.heddle_output_info(model, i, ctypes.byref(info)))
                dtype = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32}[info.dtype.decode()]
                data = np.empty(info.shape[: info.rank], dtype)
                self._check(self._lib.heddle_get_output(model, i, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes)))
                found[info.name.decode()] = data
            return found

        return call, outputs


class OnnxRuntime(onnx_runtime.Runtime):
    """Inputs and outputs are bound once, so that nothing is copied."""

    def open(self, path, inputs):
        session = self.session(path)
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, self.ort.OrtValue.ortvalue_from_numpy(value))
        names = [output.name for output in session.get_outputs()]
        for name in names:
            binding.bind_output(name, "cpu")
        return lambda: session.run_with_iobinding(binding), lambda: dict(zip(names, binding.copy_outputs_to_cpu()))

    def random_inputs(self, path, seed):
        """Floats are normally distributed. Integers, which are tokens and masks, are 0 or 1. A free dimension is 1."""
        random = np.random.default_rng(seed)
        inputs = {}
        for tensor in self.session(path).get_inputs():
            shape = [extent if isinstance(extent, int) else 1 for extent in tensor.shape]
            if tensor.type == "tensor(float)":
                inputs[tensor.name] = random.standard_normal(shape, np.float32)
            else:
                dtype = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}[tensor.type]
                inputs[tensor.name] = random.integers(0, 2, shape).astype(dtype)
        return inputs


class OpenVino:
    """With the latency hint, in single precision: by default it takes bfloat16 where the CPU supports it."""

    def __init__(self, threads):
        import openvino

        self._ov = openvino
        self._core = openvino.Core()
        self._config = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }

    def version(self):
        return f"OpenVINO {self._ov.__version__}"

    def open(self, path, inputs):
        compiled = self._core.compile_model(path, "CPU", self._config)
        request = compiled.create_infer_request()
        for name, value in inputs.items():
            request.set_tensor(name, self._ov.Tensor(value))

        def call_async():  # builds no dictionary of the outputs, but hands the call to another thread
            request.start_async()
            request.wait()

        def call_here():
            request.infer(share_outputs=True)

        call = min((call_async, call_here), key=lambda way: statistics.median(time_round(way)))
        return call, lambda: {port.any_name: request.get_tensor(port).data.copy() for port in compiled.outputs}


class Mnn:
    """Single precision: by default it may take half precision. Its converter runs in a process of its own, since it may end the
    process, and by its binding, since its command line reports each use to its makers' servers."""

    CONVERT = "import sys, _tools; _tools.mnnconvert(sys.argv[1:])"
    # LSTMs become loops unless told otherwise, and its converter may fail at that.
    WAYS = ([], ["--useOriginRNNImpl"])

    def __init__(self, threads):
        import MNN

        self._mnn = MNN
        self._config = {"backend": "CPU", "numThread": threads, "precision": "high"}

    def version(self):
        return f"MNN {self._mnn.version()}"

    def _convert(self, path):
        """Returns the path of the converted model."""
        made = f"{path}.mnn"
        said = []
        for way in self.WAYS:
            if os.path.exists(made):
                os.remove(made)
            argv = [sys.executable, "-c", self.CONVERT, "mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", made]
            done = subprocess.run(argv + ["--bizCode", "bench"] + way, capture_output=True, text=True)
            if os.path.exists(made) and os.path.getsize(made):
                return made
            said = (done.stdout + done.stderr).strip().splitlines() or [f"status {done.returncode}"]
        raise RuntimeError(f"the model is not converted: {said[-1]}")

    def open(self, path, inputs):
        mnn = self._mnn
        made = self._convert(path)
        interpreter = mnn.Interpreter(made)
        os.remove(made)  # it is in memory
        session = interpreter.createSession(self._config)
        slots = interpreter.getSessionInputAll(session)
        if set(slots) != set(inputs):
            raise RuntimeError(f"the inputs are {sorted(slots)}, not {sorted(inputs)}")
        for name, slot in slots.items():
            data = np.ascontiguousarray(inputs[name])
            kind = mnn.Halide_Type_Float
            if data.dtype != np.float32:  # it has no 64-bit integers
                data, kind = data.astype(np.int32), mnn.Halide_Type_Int
            slot.copyFrom(mnn.Tensor(data.shape, kind, data, mnn.Tensor_DimensionType_Caffe))

        def call():
            if interpreter.runSession(session):
                raise RuntimeError("the session does not run")

        def outputs():
            found = {}
            for name, slot in interpreter.getSessionOutputAll(session).items():
                data = np.empty(slot.getShape(), np.float32)
                host = mnn.Tensor(slot.getShape(), slot.getDataType(), data, mnn.Tensor_DimensionType_Caffe)
                slot.copyToHostTensor(host)
                found[name] = np.array(host.getNumpyData()).reshape(slot.getShape())
            return found

        return call, outputs


class Tvm:
    """Apache TVM. It is tuned if the folder MODEL.tvm-THREADS has MetaSchedule's records, with weights in the layouts that they
    chose. TVM's trials and builds run on the cores of this process."""

    def __init__(self, threads):
        os.environ["TVM_NUM_THREADS"] = str(threads)  # before it is loaded
        import tvm

        self._tvm = tvm
        self._threads = threads
        self._target = tvm.target.Target({"kind": "llvm", "mcpu": self._cpu(), "num-cores": threads})

    def _cpu(self):
        return self._tvm.get_global_func("target.llvm_get_system_cpu")()

    def version(self):
        return f"Apache TVM {self._tvm.__version__}"

    def _import(self, path):
        """The program, its weights, and the names of the inputs and outputs in order."""
        import onnx
        from tvm.relax.frontend import detach_params
        from tvm.relax.frontend.onnx import from_onnx

        model = onnx.load(path)
        weights = {tensor.name for tensor in model.graph.initializer}
        names = [tensor.name for tensor in model.graph.input if tensor.name not in weights]
        program, apart = detach_params(from_onnx(model, keep_params_in_input=True))
        return program, apart.get("main", []), names, [tensor.name for tensor in model.graph.output]

    def _tuned(self, program, path, trials):
        """The program with schedules from the model's records, after `trials` more trials a task."""
        records = f"{path}.tvm-{self._threads}"
        os.makedirs(records, exist_ok=True)
        if not trials and not os.listdir(records):
            return program
        pipeline = self._tvm.relax.get_pipeline(
            "static_shape_tuning",
            total_trials=trials and 10**6,
            max_trials_per_task=trials,
            target=self._target,
            work_dir=records,
            cpu_weight_prepack=True,
        )
        with self._target:  # its default rules take the target from here
            return pipeline(program)

    def tune(self, path, trials):
        self._tuned(self._import(path)[0], path, trials)

    def open(self, path, inputs):
        tvm = self._tvm
        program, weights, names, output_names = self._import(path)
        program = self._tuned(program, path, 0)
        machine = tvm.relax.VirtualMachine(tvm.compile(program, target=self._target), tvm.cpu())
        if any(variable.name_hint == "main_transform_params" for variable in program.get_global_vars()):
            weights = machine["main_transform_params"](weights)
        arguments = [tvm.runtime.tensor(inputs[name]) for name in names] + list(weights)
        machine.set_input("main", *arguments)

        def outputs():
            found = machine.get_outputs("main")
            found = [found] if len(output_names) == 1 and hasattr(found, "numpy") else found
            return {name: value.numpy() for name, value in zip(output_names, found)}

        return lambda: machine.invoke_stateful("main"), outputs


def time_calls(calls):
    """Samples in ns of one call, each the mean of at least 10 ms; `calls(n)` makes n of them. The first sample is dropped as
    warm-up if there is another."""
    samples = []
    now = time.perf_counter_ns
    batch = 1
    end = now() + ROUND_NS
    for _ in range(SAMPLES + 1):
        made, start = 0, now()
        while True:
            calls(batch)
            made += batch
            elapsed = now() - start
            if elapsed >= SAMPLE_NS:
                break
        samples.append(elapsed / made)
        batch = max(1, int(SAMPLE_NS / samples[-1] / 4))
        if now() >= end:
            break
    return samples[1:] or samples


def time_round(call):
    def calls(count):
        for _ in range(count):
            call()

    return time_calls(calls)


def take_output():
    """Standard output as a file for answers alone. What a runtime prints there, such as the progress of TVM's tuner, goes to
    standard error from now on."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def serve(answer, answers):
    """Answers each line of JSON on standard input. An exception becomes an error answer."""
    for line in sys.stdin:
        try:
            text = json.dumps(answer(json.loads(line)))
        except Exception as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0][:400]})
        print(text, file=answers, flush=True)


def main():
    answers = take_output()
    runtime = {"heddle": Heddle, "onnxruntime": OnnxRuntime, "openvino": OpenVino, "mnn": Mnn, "tvm": Tvm}[sys.argv[1]](int(sys.argv[2]))
    opened = []

    def answer(request):
        if request["do"] == "version":
            return {"version": runtime.version()}
        if request["do"] == "open":
            call, outputs = runtime.open(request["model"], dict(np.load(request["inputs"])))
            call()
            np.savez(request["outputs"], **outputs())
            opened.append(call)
            return {"id": len(opened) - 1}
        if request["do"] == "tune":
            runtime.tune(request["model"], request["trials"])
            return {}
        if request["do"] == "inputs":
            np.savez(request["inputs"], **runtime.random_inputs(request["model"], request["seed"]))
            return {}
        if request["do"] == "round":
            return {"samples_ns": time_round(opened[request["id"]])}
        return {"error": f"no request '{request['do']}'"}

    serve(answer, answers)


if __name__ == "__main__":
    main()
