#!/usr/bin/env python3
"""Models in the forms of other packages. Stand-ins take the packages' places, so this shows what is asked of them, not that they do it.

Usage: models_test.py BIN_DIR [unittest arguments], in an environment with the package
"""
import contextlib
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.argv.pop(1)

import numpy as np

import heddle
from heddle._models import as_file


def stand_in(name, package, **members):
    """A class that calls itself one of another package."""
    return type(name, (), {"__module__": package, **members})


class FormsTest(unittest.TestCase):
    def content(self, model, example_inputs=None):
        with as_file(model, example_inputs) as (path, name):
            content = pathlib.Path(path).read_bytes()
        self.assertFalse(pathlib.Path(path).exists())
        return content, pathlib.Path(path).suffix, name

    def refused(self, says, model, example_inputs=None):
        with self.assertRaises(heddle.UsageError) as caught:
            with as_file(model, example_inputs):
                pass
        self.assertIn(says, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_paths_stay_where_they_are(self):
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            for path in (file.name, pathlib.Path(file.name)):
                with as_file(path) as found:
                    self.assertEqual(found, (file.name, ""))
            self.assertTrue(pathlib.Path(file.name).exists())

    def test_bytes(self):
        for data in (b"model", bytearray(b"model"), memoryview(b"model")):
            self.assertEqual(self.content(data), (b"model", ".onnx", "model"))

    def test_onnx(self):
        model = stand_in("ModelProto", "onnx.onnx_ml_pb2", SerializeToString=lambda self: b"proto")()
        self.assertEqual(self.content(model), (b"proto", ".onnx", "ModelProto"))

        def too_large(self):
            raise ValueError("message exceeds\nmaximum protobuf size")

        self.refused("external data", stand_in("ModelProto", "onnx_ml_pb2", SerializeToString=too_large)())

    def test_torch(self):
        asked = []

        def export(model, inputs, path, input_names, verbose):
            asked.append((inputs, input_names, [part.training for part in model.modules()], verbose))
            pathlib.Path(path).write_bytes(b"exported")

        module = stand_in("Module", "torch.nn.modules.module")
        frozen = module()
        frozen.training = False

        class Net(module):
            training = True

            def modules(self):
                return [self, frozen]

            def eval(self):
                self.training = frozen.training = False

            def forward(self, image, mask=None, *rest):
                pass

        model = Net()
        torch = types.SimpleNamespace(onnx=types.SimpleNamespace(export=export), no_grad=contextlib.nullcontext, Tensor=str)
        with mock.patch.dict(sys.modules, torch=torch):
            self.assertEqual(self.content(model, "x"), (b"exported", ".onnx", "Net"))
            for inputs in (("x", "y"), ("x", "y", "z"), ("x", None)):
                self.content(model, inputs)
            self.refused("example_inputs", model)
            torch.onnx.export = mock.Mock(side_effect=RuntimeError("no such\noperator"))
            self.refused("torch.onnx cannot export the model: no such operator", model, "x")
        self.assertEqual([inputs for inputs, *_ in asked], [("x",), ("x", "y"), ("x", "y", "z"), ("x", None)])
        self.assertEqual([names for _, names, *_ in asked], [["image"], ["image", "mask"], None, None])
        self.assertEqual({(tuple(modes), verbose) for *_, modes, verbose in asked}, {((False, False), False)})
        self.assertEqual((model.training, frozen.training), (True, False))

    def test_scripted_modules_of_torch(self):
        asked = []

        def export(model, inputs, path, input_names, verbose, **more):
            asked.append(more)
            pathlib.Path(path).write_bytes(b"exported")

        def later(model, inputs, path, input_names, verbose, dynamo=True):
            export(model, inputs, path, input_names, verbose, dynamo=dynamo)

        module = stand_in("Module", "torch.nn.modules.module", modules=lambda self: [], eval=lambda self: None, forward=lambda self, x: x)
        scripted = type("RecursiveScriptModule", (type("ScriptModule", (module,), {"__module__": "torch.jit._script"}),), {"__module__": "torch.jit._script"})
        torch = types.SimpleNamespace(onnx=types.SimpleNamespace(), no_grad=contextlib.nullcontext, Tensor=str)
        with mock.patch.dict(sys.modules, torch=torch):
            for torch.onnx.export in (export, later):
                for kind in (module, scripted):
                    self.content(kind(), "x")
        self.assertEqual(asked, [{}, {}, {"dynamo": True}, {"dynamo": False}])

    def test_a_package_that_the_exporter_lacks_is_named(self):
        """As torch 2.9 says it of onnxscript, and torch 2.5 of onnx."""
        missing = ModuleNotFoundError("No module named 'onnxscript.ir'", name="onnxscript.ir")
        wrapped = RuntimeError("Module onnx is not installed!")
        wrapped.__cause__ = ModuleNotFoundError("No module named 'onnx'", name="onnx")
        for error, name in ((missing, "onnxscript"), (wrapped, "onnx")):
            model = stand_in("ModelProto", "onnx", SerializeToString=mock.Mock(side_effect=error))()
            self.refused(f"pip install --upgrade {name}", model)

    def test_scikit(self):
        asked = {}
        made = []
        helper = types.SimpleNamespace(make_attribute=lambda key, value: made.append(value))
        make_attribute = helper.make_attribute

        def to_onnx(model, **given):
            if "options" in given and type(model).__name__ == "LinearSVC":
                raise NameError("Option 'zipmap' not in ['nocl']")
            asked.update(given)
            for value in (np.array([0.5, 1], np.float32), [True, np.uint32(3), "text"], 7):
                helper.make_attribute("key", value)
            return stand_in("ModelProto", "onnx_ml_pb2", SerializeToString=lambda self: b"pipeline")()

        types_ = types.SimpleNamespace(FloatTensorType=lambda shape: ("float", shape))
        packages = {"onnx": types.SimpleNamespace(helper=helper), "skl2onnx": types.SimpleNamespace(to_onnx=to_onnx),
                    "skl2onnx.common": types.SimpleNamespace(), "skl2onnx.common.data_types": types_}
        base = stand_in("BaseEstimator", "sklearn.base")
        fitted = type("LogisticRegression", (base,), {"__module__": "sklearn.linear_model", "classes_": [0, 1], "n_features_in_": 5})()
        with mock.patch.dict(sys.modules, packages):
            self.assertEqual(self.content(fitted), (b"pipeline", ".onnx", "LogisticRegression"))
            self.assertEqual(asked["initial_types"], [("X", ("float", [None, 5]))])
            self.assertEqual(asked["options"], {"zipmap": False})
            self.assertEqual((made, [type(v) for v in made[0]], [type(v) for v in made[1]]),
                             ([[0.5, 1], [1, 3, "text"], 7], [float, float], [int, int, str]))
            self.assertIs(helper.make_attribute, make_attribute)
            asked.clear()
            for kind, wanted in ((int, int), (np.float64, np.float32), (object, object)):
                self.content(fitted, np.array([[1], [2]], kind))
                self.assertEqual((asked["X"].tolist(), asked["X"].dtype), ([[1]], np.dtype(wanted)))
            asked.clear()
            self.content(type("LinearSVC", (type(fitted),), {})())
            self.assertNotIn("options", asked)
            self.refused("not fitted", base())
            for rows in ([[1], [2]], np.array([1, 2])):
                self.refused("2-D array", fitted, rows)
        with mock.patch.dict(sys.modules, {"skl2onnx": None}):
            self.refused("pip install skl2onnx", fitted)

    def test_boosters(self):
        save = lambda self, path: pathlib.Path(path).write_bytes(b"trees")
        xgboost = stand_in("Booster", "xgboost.core", save_model=save)()
        lightgbm = stand_in("Booster", "lightgbm.basic", save_model=save)()
        self.assertEqual(self.content(xgboost), (b"trees", ".json", "Booster"))
        self.assertEqual(self.content(lightgbm), (b"trees", ".txt", "Booster"))
        # Their estimators are scikit-learn's, too, and still save themselves.
        base = stand_in("BaseEstimator", "sklearn.base")
        ours = type("LGBMModel", (base,), {"__module__": "lightgbm.sklearn", "booster_": lightgbm})
        self.assertEqual(self.content(type("LGBMRegressor", (ours,), {"__module__": "lightgbm.sklearn"})()), (b"trees", ".txt", "LGBMRegressor"))

    def test_what_is_no_model(self):
        for model in (None, 3, [1, 2], object()):
            self.refused("is not understood", model)


class ErrorsTest(unittest.TestCase):
    def test_statuses_are_those_of_the_command_line(self):
        for status, kind in ((1, heddle.InternalError), (2, heddle.UsageError), (3, heddle.NothingValid), (4, heddle.NotFound),
                             (5, heddle.Unreachable), (6, heddle.TimedOut), (7, heddle.Cancelled)):
            error = heddle.errors.error_of(status, "because")
            self.assertIs(type(error), kind)
            self.assertIsInstance(error, heddle.Error)
            self.assertEqual((error.status, str(error)), (status, "because"))
        self.assertIsInstance(heddle.errors.error_of(99, ""), heddle.InternalError)
        self.assertTrue(issubclass(heddle.TimedOut, TimeoutError) and issubclass(heddle.Unreachable, ConnectionError))

    def test_flags_have_the_names_of_arguments(self):
        told = str(heddle.errors.error_of(2, "--time-limit 'x' is not a duration; write for example --time-limit 30m"))
        self.assertEqual(told, "time_limit='x' is not a duration; write for example time_limit=30m")


if __name__ == "__main__":
    unittest.main()
