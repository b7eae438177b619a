"""A classical model on one runtime, as a side of `bench/run.sh classical`: side.py RUNTIME THREADS, with a name of RUNTIMES.

  {"do": "version"} -> {"version": ".."}
  {"do": "open", "model": FILE, "table": NPY, "rows": 100, "scores": NPY} -> {"id": 0, "way": ".."}
  {"do": "round", "id": 0} -> {"samples_ns": [..]}
A call predicts one block of `rows` rows of the table, and each call takes the next block, of at most MOST_BLOCKS. The scores of all
these blocks are written: [rows, outputs]. Where a runtime has several ways to predict, "way" is the fastest one, which is measured.
The blocks are in memory before a round in the number format that the runtime takes. What a runtime does with them belongs to the
call: copies, matrices of its own, making room for scores.
"""

import ctypes
import dataclasses
import importlib.metadata
import json
import os
import statistics
import sys
import typing

import numpy as np

from bench.classical import scikit
from bench.classical.rotate import At, Each, Rotation
from bench.common import onnx_runtime
from bench.models import model_side

MOST_BLOCKS = 1024


class Blocks:
    """The first blocks of `rows` rows of a table."""

    def __init__(self, table, rows):
        self.rows, self.count = rows, min(len(table) // rows, MOST_BLOCKS)
        self.table = np.ascontiguousarray(table[: self.rows * self.count])

    def pieces(self):
        return np.split(self.table, self.count)


@dataclasses.dataclass
class Way:
    """`calls(n)` makes n calls, each with the next block; the first is for block 0. `read(block)` gives the scores of the last call,
    which was for `block`. `kept` lives as long, since calls use addresses in it."""

    name: str
    calls: typing.Callable
    read: typing.Callable
    kept: object = None


class Output:
    """Room for the scores of all blocks, one after the other."""

    def __init__(self, blocks, width, dtype):
        self.data = np.zeros((blocks.count, blocks.rows, width), dtype)
        self.argument = Each(self.data.ctypes.data, self.data.strides[0])

    def read(self, block):
        return self.data[block]


def rows_of(table, blocks):
    """The argument that points to a block of the table."""
    return Each(table.ctypes.data, table.strides[0] * blocks.rows)


def loop(calls):
    """A way in Python: `calls` has a function for each block."""
    state = {"next": 0}

    def make(count):
        for _ in range(count):
            calls[state["next"]]()
            state["next"] = (state["next"] + 1) % len(calls)

    return make


class Heddle:
    """Through the C API of libheddle.so, as a deployed module runs: heddle_run_rows."""

    def __init__(self, threads):
        self._threads = threads
        self._lib = ctypes.CDLL(os.environ["HEDDLE_LIBRARY"])
        self._lib.heddle_last_error.restype = ctypes.c_char_p

    def version(self):
        return "Heddle"

    def _failed(self):
        return self._lib.heddle_last_error().decode()

    def _check(self, status):
        if status != 0:
            raise RuntimeError(self._failed())

    def ways(self, path, blocks):
        lib, model, info = self._lib, ctypes.c_void_p(), model_side.Heddle._Info()
        self._check(lib.heddle_load(path.encode(), self._threads, ctypes.byref(model)))
        for scores in range(lib.heddle_num_outputs(model)):
            self._check(lib.heddle_output_info(model, scores, ctypes.byref(info)))
            if info.dtype == b"f32":  # labels are integers
                break
        if info.dtype != b"f32" or lib.heddle_num_inputs(model) != 1:
            raise RuntimeError("the module does not make scores of one table")
        output = Output(blocks, info.bytes // 4 // info.shape[0], np.float32)
        if lib.heddle_rows_are_independent(model):
            # For each block, the addresses of its input and of its outputs. Labels are not asked for.
            inputs = (blocks.table.ctypes.data + np.arange(blocks.count) * (blocks.table.strides[0] * blocks.rows)).astype(np.uint64)
            outputs = np.zeros((blocks.count, lib.heddle_num_outputs(model)), np.uint64)
            outputs[:, scores] = output.data.ctypes.data + np.arange(blocks.count) * output.data.strides[0]
            addresses = [Each(each.ctypes.data, each.strides[0]) for each in (inputs, outputs)]
            steps = [(lib.heddle_run_rows, model.value, blocks.rows, *addresses)]
            kept = blocks, inputs, outputs
        else:
            if info.shape[0] != blocks.rows:
                raise RuntimeError(f"the module does not make scores of {blocks.rows} rows")
            steps = [
                (lib.heddle_set_input, model.value, 0, rows_of(blocks.table, blocks), blocks.table[: blocks.rows].nbytes),
                (lib.heddle_run, model.value),
                (lib.heddle_get_output, model.value, scores, output.argument, info.bytes),
            ]
            kept = blocks
        return [Way("C API", Rotation(rotate_library(), blocks.count, steps, self._failed).calls, output.read, kept)]


class Xgboost:
    """A prediction in place, or a matrix made anew for every call: of a matrix that it has seen, XGBoost remembers the scores."""

    def __init__(self, threads):
        import xgboost

        self._xgboost, self._lib, self._threads = xgboost, xgboost.core._LIB, threads
        self._lib.XGBGetLastError.restype = ctypes.c_char_p

    def version(self):
        return f"XGBoost {self._xgboost.__version__}"

    def ways(self, path, blocks):
        lib, booster = self._lib, self._xgboost.Booster(model_file=path)
        booster.set_param({"nthread": self._threads})
        described = [
            json.dumps({"data": [piece.ctypes.data, True], "shape": list(piece.shape), "typestr": "<f4", "version": 3}).encode()
            for piece in blocks.pieces()
        ]
        texts = np.array(described, f"S{max(map(len, described)) + 1}")  # zeros behind each
        text = Each(texts.ctypes.data, texts.itemsize)
        shape, matrix, result = (ctypes.c_void_p() for _ in range(3))
        dimensions = ctypes.c_uint64()
        outs = [ctypes.addressof(value) for value in (shape, dimensions, result)]
        predict = {"type": 0, "training": False, "iteration_begin": 0, "iteration_end": 0, "strict_shape": False}
        options = {**predict, "cache_id": 0, "missing": np.nan}, predict, {"missing": np.nan, "nthread": self._threads}
        configs = [json.dumps(config).encode() for config in options]
        in_place, of_matrix, to_matrix = [ctypes.cast(config, ctypes.c_void_p).value for config in configs]
        matrix_at = ctypes.addressof(matrix)
        kept = booster, texts, shape, matrix, result, dimensions, configs, blocks

        def read(_block):
            extents = np.ctypeslib.as_array(ctypes.cast(shape, ctypes.POINTER(ctypes.c_uint64)), (dimensions.value,))
            return np.ctypeslib.as_array(ctypes.cast(result, ctypes.POINTER(ctypes.c_float)), (int(np.prod(extents)),))

        ways = {
            "in place": [(lib.XGBoosterPredictFromDense, booster.handle.value, text, in_place, None, *outs)],
            "matrix": [
                (lib.XGDMatrixCreateFromDense, text, to_matrix, matrix_at),
                (lib.XGBoosterPredictFromDMatrix, booster.handle.value, At(matrix_at), of_matrix, *outs),
                (lib.XGDMatrixFree, At(matrix_at)),
            ],
        }
        library, failed = rotate_library(), lambda: lib.XGBGetLastError().decode()
        return [Way(name, Rotation(library, blocks.count, steps, failed).calls, read, kept) for name, steps in ways.items()]


class LightGbm:
    """Its prediction for a matrix, and for one row also its fast one, which is prepared once."""

    FLOAT32, NORMAL = 0, 0

    def __init__(self, threads):
        import lightgbm

        self._lightgbm, self._lib, self._threads = lightgbm, lightgbm.basic._LIB, threads
        self._lib.LGBM_GetLastError.restype = ctypes.c_char_p

    def version(self):
        return f"LightGBM {self._lightgbm.__version__}"

    def ways(self, path, blocks):
        lib, booster = self._lib, self._lightgbm.Booster(model_file=path)
        output = Output(blocks, booster.num_model_per_iteration(), np.float64)
        length = ctypes.c_int64()
        parameters = f"num_threads={self._threads}".encode()
        options = [0, -1, ctypes.cast(parameters, ctypes.c_void_p).value, ctypes.addressof(length), output.argument]
        features = blocks.table.shape[1]
        rows = rows_of(blocks.table, blocks)
        described = [self.FLOAT32, blocks.rows, features, 1]  # 1: row by row
        steps = {"matrix": (lib.LGBM_BoosterPredictForMat, booster._handle.value, rows, *described, self.NORMAL, *options)}
        fast = ctypes.c_void_p()
        if blocks.rows == 1:
            if lib.LGBM_BoosterPredictForMatSingleRowFastInit(
                booster._handle, self.NORMAL, 0, -1, self.FLOAT32, features, ctypes.c_char_p(parameters), ctypes.byref(fast)
            ):
                raise RuntimeError(lib.LGBM_GetLastError().decode())
            steps["single row"] = (lib.LGBM_BoosterPredictForMatSingleRowFast, fast.value, rows, *options[3:])
        kept = booster, parameters, length, blocks
        library, failed = rotate_library(), lambda: lib.LGBM_GetLastError().decode()
        return [Way(name, Rotation(library, blocks.count, [step], failed).calls, output.read, kept) for name, step in steps.items()]


class OnnxRuntime(onnx_runtime.Runtime):
    """Rows and scores are bound once for each block, so that nothing is copied."""

    def ways(self, path, blocks):
        session = self.session(path)
        (x,) = [tensor.name for tensor in session.get_inputs()]
        *_, scores = [output.name for output in session.get_outputs()]  # a classifier gives labels first
        pieces = blocks.pieces()
        (first,) = session.run([scores], {x: pieces[0]})
        bindings = []
        for piece in pieces:
            binding = session.io_binding()
            binding.bind_ortvalue_input(x, self.ort.OrtValue.ortvalue_from_numpy(piece))
            binding.bind_ortvalue_output(scores, self.ort.OrtValue.ortvalue_from_numpy(np.zeros_like(first)))
            bindings.append(binding)
        # What session.run_with_iobinding calls, without its way there.
        run = session._sess.run_with_iobinding
        calls = [lambda bound=binding._iobinding: run(bound, None) for binding in bindings]

        def read(block):
            (found,) = bindings[block].copy_outputs_to_cpu()
            return found

        return [Way("bound", loop(calls), read)]


class Lleaves:
    """LightGBM's models compiled by LLVM. Rows are f64, which it would make of others in each call. With several threads, its own
    prediction with them and, since small blocks may not gain, the compiled function on one."""

    def __init__(self, threads):
        import lleaves

        self._lleaves, self._threads = lleaves, threads

    def version(self):
        return f"lleaves {importlib.metadata.version('lleaves')}"

    def ways(self, path, blocks):
        model = self._lleaves.Model(model_file=path)
        model.compile(cache=f"{path}.lleaves-{importlib.metadata.version('lleaves')}")
        table = blocks.table.astype(np.float64)
        output = Output(blocks, model.predict(table[:1], n_jobs=1).size, np.float64)
        step = (model._c_entry_func, rows_of(table, blocks), output.argument, 0, blocks.rows)
        ways = [Way("compiled function", Rotation(rotate_library(), blocks.count, [step]).calls, output.read, (model, table))]
        if self._threads > 1:
            found = {}

            def predict(piece):
                found["scores"] = model.predict(piece, n_jobs=self._threads)

            calls = loop([lambda piece=piece: predict(piece) for piece in np.split(table, blocks.count)])
            ways.append(Way("threads", calls, lambda _block: found["scores"]))
        return ways


class Tl2cgen:
    """Trees as C code by Treelite and TL2cgen, compiled by gcc -O3. A row alone goes directly to the compiled function, several
    through TL2cgen's predictor, which has them in matrices of its own before a round."""

    COMPILE_AT_ONCE = 16  # source files

    def __init__(self, threads):
        import tl2cgen

        self._tl2cgen, self._threads = tl2cgen, threads

    def version(self):
        return f"TL2cgen {importlib.metadata.version('tl2cgen')}, Treelite {importlib.metadata.version('treelite')}"

    def _library(self, path):
        made = f"{path}.tl2cgen-{importlib.metadata.version('tl2cgen')}.so"
        if not os.path.exists(made):
            import treelite

            load = {
                ".json": lambda: treelite.frontend.load_xgboost_model(path, format_choice="json"),
                ".ubj": lambda: treelite.frontend.load_xgboost_model(path, format_choice="ubjson"),
                ".txt": lambda: treelite.frontend.load_lightgbm_model(path),
            }[os.path.splitext(path)[1]]
            partly = f"{made}.part.so"  # a name that a broken off compilation leaves behind is not taken for the library
            options = ["-march=native"]
            self._tl2cgen.export_lib(load(), toolchain="gcc", libpath=partly, params={"parallel_comp": self.COMPILE_AT_ONCE}, options=options)
            os.rename(partly, made)
        return made

    def ways(self, path, blocks):
        made = self._library(path)
        predictor = self._tl2cgen.Predictor(made, nthread=min(self._threads, blocks.rows))
        first = predictor.predict(self._tl2cgen.DMatrix(blocks.table[: blocks.rows]))
        output = Output(blocks, first.size // blocks.rows, first.dtype)
        library = self._tl2cgen.predictor._LIB
        if blocks.rows == 1:
            # An entry is a value in the type of the thresholds, or the integer -1, which marks a missing one.
            entries = blocks.table.astype(predictor.threshold_type)
            entries.view(f"i{entries.itemsize}")[np.isnan(entries)] = -1
            function = ctypes.CDLL(made).predict
            function.restype = None
            name, step, kept = "compiled function", (function, rows_of(entries, blocks), 0, output.argument), entries
        else:
            matrices = [self._tl2cgen.DMatrix(piece) for piece in blocks.pieces()]
            handles = np.array([matrix.handle.value for matrix in matrices], np.int64)
            batch = (library.TL2cgenPredictorPredictBatch, predictor.handle.value, At(handles.ctypes.data, handles.itemsize), 0, 0, output.argument)
            name, step, kept = "predictor", batch, (matrices, handles, predictor)
        return [Way(name, Rotation(rotate_library(), blocks.count, [step]).calls, output.read, kept)]


class ScikitLearn:
    """Its own prediction, which users call from Python."""

    def __init__(self, threads):
        import sklearn
        import threadpoolctl

        self._sklearn = sklearn
        self._limits = threadpoolctl.threadpool_limits(threads)  # as long as it lives

    def version(self):
        return f"scikit-learn {self._sklearn.__version__}"

    def ways(self, path, blocks):
        model = scikit.load(path)
        found = {}

        def predict(piece):
            found["scores"] = scikit.scores_of(model, piece)

        calls = loop([lambda piece=piece: predict(piece) for piece in blocks.pieces()])
        return [Way("Python", calls, lambda _block: found["scores"])]


RUNTIMES = {
    "heddle": Heddle,
    "xgboost": Xgboost,
    "lightgbm": LightGbm,
    "onnxruntime": OnnxRuntime,
    "lleaves": Lleaves,
    "tl2cgen": Tl2cgen,
    "sklearn": ScikitLearn,
}


def rotate_library():
    return ctypes.CDLL(os.environ["HEDDLE_ROTATE"])


def scores_of(way, blocks):
    """The scores of all blocks, by the first calls of a way: [rows, outputs]."""
    found = []
    for block in range(blocks.count):
        way.calls(1)
        found.append(np.array(way.read(block), copy=True).reshape(blocks.rows, -1))
    return np.concatenate(found)


def main():
    answers = model_side.take_output()
    runtime = RUNTIMES[sys.argv[1]](int(sys.argv[2]))
    opened = []

    def answer(request):
        if request["do"] == "version":
            return {"version": runtime.version()}
        if request["do"] == "open":
            blocks = Blocks(np.load(request["table"]), request["rows"])
            ways = runtime.ways(request["model"], blocks)
            scores = {way.name: scores_of(way, blocks) for way in ways}
            if len(ways) > 1:
                ways.sort(key=lambda way: statistics.median(model_side.time_calls(way.calls)))
            np.save(request["scores"], scores[ways[0].name])
            opened.append(ways[0])
            return {"id": len(opened) - 1, "way": ways[0].name}
        if request["do"] == "round":
            return {"samples_ns": model_side.time_calls(opened[request["id"]].calls)}
        return {"error": f"no request '{request['do']}'"}

    model_side.serve(answer, answers)


if __name__ == "__main__":
    main()
