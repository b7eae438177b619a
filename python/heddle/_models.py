"""Models in the forms that people have them in, as files that the service takes."""
from __future__ import annotations

import contextlib
import inspect
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .errors import UsageError

# Held while a function of another package is replaced.
_PATCHING = threading.Lock()


@contextlib.contextmanager
def as_file(model: Any, example_inputs: Any = None) -> Iterator[tuple[str, str]]:
    """The path of a file with the model, for the time of the context, and the model's name ("": that of the file).

    Client.submit tells what a model may be. UsageError: it is none of these, or its package refuses to export it.
    """
    if isinstance(model, (str, os.PathLike)):
        yield os.fspath(model), ""
        return
    with tempfile.TemporaryDirectory(prefix="heddle-model-", ignore_cleanup_errors=True) as folder:
        path, name = _write(model, example_inputs, pathlib.Path(folder))
        yield str(path), name


def _write(model: Any, example_inputs: Any, folder: pathlib.Path) -> tuple[pathlib.Path, str]:
    if isinstance(model, (bytes, bytearray, memoryview)):
        path = folder / "model.onnx"
        path.write_bytes(model)
        return path, "model"
    name = type(model).__name__
    for package, kind, export in _EXPORTERS:
        if _is_a(model, package, kind):
            return export(model, example_inputs, folder), name
    raise UsageError(
        f"a model of the type {type(model).__module__}.{name} is not understood; give the path or the bytes of an ONNX "
        f"model, an onnx.ModelProto, a torch.nn.Module, an estimator of scikit-learn, or a Booster")


def _is_a(model: Any, package: str, kind: str) -> bool:
    """Whether a class of this name and package is among the model's classes. Nothing is imported for that."""
    return any(
        base.__name__ == kind and base.__module__.split(".")[0].startswith(package) for base in type(model).__mro__)


def _export(what: str, export: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls another package. What it raises, and that may be anything, becomes one line."""
    try:
        return export(*args, **kwargs)
    except Exception as error:
        missing = _missing_package(error)
        if missing:
            raise UsageError(
                f"{what}: that needs the package {missing}, which is missing or too old; pip install --upgrade {missing}") from error
        line = " ".join(str(error).split())[:500] or type(error).__name__
        raise UsageError(f"{what}: {line}") from error


def _missing_package(error: BaseException | None) -> str:
    """The package whose import failed, if that is the reason of the error: "onnxscript", say, of torch; otherwise ""."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.split(".")[0]
        error = error.__cause__
    return ""


def _of_onnx(model: Any, example_inputs: Any, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "model.onnx"
    data = _export(
        "the model cannot be written as one message; save it with onnx.save, with external data, and give its path",
        model.SerializeToString)
    path.write_bytes(data)
    return path


def _of_torch(model: Any, example_inputs: Any, folder: pathlib.Path) -> pathlib.Path:
    if example_inputs is None:
        raise UsageError("a torch module needs example_inputs: a tensor, or a tuple of what its forward takes")
    torch = sys.modules["torch"]
    path = folder / "model.onnx"
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    # Parts may be in other modes than the whole: normalisation that is not trained on, say.
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            # Newer versions print what they do unless verbose is False.
            _export("torch.onnx cannot export the model", torch.onnx.export, model, inputs, str(path),
                    input_names=_torch_names(torch, model, inputs), verbose=False, **_torch_exporter(torch, model))
    finally:
        for part, training in modes:
            part.training = training
    return path


def _torch_exporter(torch: Any, model: Any) -> dict[str, Any]:
    """The exporter, where torch has to be told: that of torch 2.9 and later refuses scripted modules, which the older one takes."""
    scripted = _is_a(model, "torch", "ScriptModule")
    return {"dynamo": False} if scripted and "dynamo" in inspect.signature(torch.onnx.export).parameters else {}


def _torch_names(torch: Any, model: Any, inputs: tuple[Any, ...]) -> list[str] | None:
    """What the module's forward calls its inputs. None, for torch to find names: they are not all tensors with names."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())[: len(inputs)]
    except (TypeError, ValueError):  # a scripted module
        return None
    named = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    return named if len(named) == len(inputs) and all(isinstance(value, torch.Tensor) for value in inputs) else None


def _of_scikit(model: Any, example_inputs: Any, folder: pathlib.Path) -> pathlib.Path:
    try:
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise UsageError("models of scikit-learn are exported by skl2onnx; install it: pip install skl2onnx") from error
    if example_inputs is not None:
        if len(getattr(example_inputs, "shape", ())) != 2:
            raise UsageError("example_inputs of a model of scikit-learn are rows with their types: a 2-D array or a data frame")
        given: dict[str, Any] = {"X": _single_precision(example_inputs[:1])}
    elif hasattr(model, "n_features_in_"):
        given = {"initial_types": [("X", FloatTensorType([None, model.n_features_in_]))]}
    else:
        raise UsageError("a model of scikit-learn that is not fitted cannot be exported; fit it, or give example_inputs")
    # The versions of ONNX that our importer is tested with.
    versions = {"": 18, "ai.onnx.ml": 3}
    what = "skl2onnx cannot export the model"
    if example_inputs is None and hasattr(model, "feature_names_in_"):
        what += " (some rows as example_inputs would tell it the columns)"
    with _plain_attributes():
        proto = _export(what, _to_onnx, skl2onnx, model, target_opset=versions, **given)
    return _of_onnx(proto, None, folder)


def _single_precision(rows: Any) -> Any:
    """The rows, an array or a data frame, with float32 for float64: skl2onnx's encoders give float32, which it does not convert
    where both meet."""
    if hasattr(rows, "dtypes"):
        return rows.astype({column: np.float32 for column, kind in rows.dtypes.items() if kind == np.float64})
    return rows.astype(np.float32) if rows.dtype == np.float64 else rows


def _to_onnx(skl2onnx: Any, model: Any, **given: Any) -> Any:
    if hasattr(model, "classes_"):
        # Scores as one matrix, not as a list of dictionaries. NameError: a step has no such option, since it never gives those.
        with contextlib.suppress(NameError):
            return skl2onnx.to_onnx(model, options={"zipmap": False}, **given)
    return skl2onnx.to_onnx(model, **given)


@contextlib.contextmanager
def _plain_attributes() -> Iterator[None]:
    """Lets skl2onnx give arrays, booleans and NumPy's numbers as attributes of a node, for the time of the context: current
    versions of Protobuf refuse them, and with them the histogram gradient boosting of scikit-learn."""
    import onnx

    def plain(value: Any) -> Any:
        return int(value) if isinstance(value, (bool, np.bool_)) else value.item() if isinstance(value, np.generic) else value

    def make(key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return made(key, [plain(v) for v in value] if isinstance(value, (list, np.ndarray)) else value, *args, **kwargs)

    with _PATCHING:
        made = onnx.helper.make_attribute
        onnx.helper.make_attribute = make
        try:
            yield
        finally:
            onnx.helper.make_attribute = made


def _of_xgboost(model: Any, example_inputs: Any, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "model.json"
    _export("xgboost cannot save the model", model.save_model, str(path))
    return path


def _of_lightgbm(model: Any, example_inputs: Any, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "model.txt"
    booster = model if type(model).__name__ == "Booster" else model.booster_
    _export("lightgbm cannot save the model", booster.save_model, str(path))
    return path


# (package, class, exporter): the first that fits. The estimators of xgboost and lightgbm are also scikit-learn's.
_EXPORTERS = (
    ("onnx", "ModelProto", _of_onnx),
    ("torch", "Module", _of_torch),
    ("xgboost", "Booster", _of_xgboost),
    ("xgboost", "XGBModel", _of_xgboost),
    ("lightgbm", "Booster", _of_lightgbm),
    ("lightgbm", "LGBMModel", _of_lightgbm),
    ("sklearn", "BaseEstimator", _of_scikit),
)
