"""What whole models are compared with: each peer's process, its model, and the check of its outputs. Used by several benchmarks."""

import importlib.util
import os
import sys

from bench.common.side import Side, SideError

REFERENCE = "ONNX Runtime"  # the outputs of all others are compared with its
# Peers that every row has, and those that are measured where their wheel installs and the model converts.
ALWAYS = {REFERENCE: "onnxruntime", "OpenVINO": "openvino"}
MNN, TVM = "MNN", "Apache TVM"
WHERE_POSSIBLE = {MNN: "mnn", TVM: "tvm"}
MODULES = {MNN: "MNN", TVM: "tvm"}  # by which Python finds them
# Not counted as a peer: untuned or barely tuned it is no fair comparison.
NOT_COUNTED = (TVM,)
OPEN_LIMIT_S = 600  # conversion and compilation of one that is measured where possible
# Largest allowed error of an output against ONNX Runtime's, relative to its largest value. Sums in single precision depend on
# their order, and Winograd's transforms add terms.
TOLERANCE = 1e-4
WINOGRAD_TOLERANCE = 1e-3  # also for the peers, which may choose Winograd by themselves
PEER_TOLERANCES = {MNN: 5e-3}  # it approximates exponential functions: BERT is off by about 1e-3


def largest_error(found, expected):
    """The largest error over all outputs, which both runtimes must name alike."""
    import numpy as np  # as in _open_one: the tests import this file without it

    if set(found) != set(expected):
        raise SideError(f"outputs are {sorted(found)}, not {sorted(expected)}")
    worst = 0.0
    for name, right in expected.items():
        if found[name].shape != right.shape:
            raise SideError(f"output '{name}' has shape {found[name].shape}, not {right.shape}")
        scale = max(float(np.max(np.abs(right))), 1e-30)
        error = float(np.max(np.abs(found[name].astype(np.float64) - right))) / scale
        worst = max(worst, error) if error == error else float("inf")
    return worst


def start_side(args, label, runtime, threads, cpus):
    library = os.path.join(os.path.dirname(args.programs), "lib", "libheddle.so")
    argv = [sys.executable, "-m", "bench.models.model_side", runtime, str(threads)]
    return Side(label, argv, cpus, {"HEDDLE_LIBRARY": library, "PYTHONPATH": args.root})


def installed(result):
    """The peers that can be measured here: name -> runtime of model_side.py. The others are noted."""
    found = dict(ALWAYS)
    for name, runtime in WHERE_POSSIBLE.items():
        if importlib.util.find_spec(MODULES[name]) is None:
            result.add_note(f"{name} is not installed, and not measured")
        else:
            found[name] = runtime
    return found


class Opened:
    """A model that all peers and some modules of ours have open, after comparing all outputs.

    `contenders` is for turns.measure: first ours, in their order, then the peers that can run the model. `errors` are those of
    all against the reference. The sides run until close().
    """

    def __init__(self, args, threads, cpus, result, peers):
        self._args, self._threads, self._result = args, threads, result
        self._sides = {}
        self.contenders, self.errors = {}, {REFERENCE: 0.0}
        try:
            for label, runtime in {"Heddle": "heddle", **peers}.items():
                self._sides[label] = start_side(args, label, runtime, threads, cpus)
        except BaseException:
            self.close()
            raise

    def open(self, name, onnx, ours, stem):
        """`ours`: label -> {"path": of the module, "winograd": whether its outputs may be that far off}. `stem`: the path that
        files of inputs and outputs begin with. SideError if a peer that every row has fails, or if outputs differ."""
        inputs = f"{stem}-inputs.npz"
        self._sides[REFERENCE].ask("inputs", model=onnx, seed=0, inputs=inputs)
        fields, expected = self._open_one(REFERENCE, onnx, inputs, stem)
        opened = {REFERENCE: fields}
        for label, module in ours.items():
            self.contenders[label], outputs = self._open_one("Heddle", module["path"], inputs, stem)
            self.errors[label] = self._check(label, outputs, expected, WINOGRAD_TOLERANCE if module["winograd"] else TOLERANCE)
        for label in self._sides:
            if label in ("Heddle", REFERENCE):
                continue
            try:
                opened[label], outputs = self._open_one(label, onnx, inputs, stem)
                self.errors[label] = self._check(label, outputs, expected, PEER_TOLERANCES.get(label, WINOGRAD_TOLERANCE))
            except SideError as error:
                if label in ALWAYS:
                    raise
                opened.pop(label, None)
                self._result.add_note(f"{name}, {self._threads} threads: no figure of {label}: {error}")
        self.contenders.update(opened)
        for label in opened:
            self._result.versions[label] = self._sides[label].ask("version")["version"]

    def _open_one(self, label, model, inputs, stem):
        """The contender's fields for turns.measure, and its outputs."""
        import numpy as np

        file = f"{stem}-outputs.npz"
        opened = self._sides[label].ask("open", OPEN_LIMIT_S, model=model, inputs=inputs, outputs=file)
        return (self._sides[label], {"id": opened["id"]}), dict(np.load(file))

    def _check(self, label, outputs, expected, allowed):
        error = largest_error(outputs, expected)
        if error > allowed:
            raise SideError(f"{label}: outputs differ from {REFERENCE}'s by {error:.1e} of the largest; {allowed:.0e} is allowed")
        return error

    def close(self):
        for side in self._sides.values():
            side.close()
