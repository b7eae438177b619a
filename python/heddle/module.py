"""Modules that run: files that `heddle fetch`, `heddle tune` and Job.fetch write. No service is needed."""
from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _runtime
from ._text import escaped, html_table
from .errors import NotFound, UsageError

if TYPE_CHECKING:
    from .client import Job

# Kernels want their tensors at multiples of this many bytes.
_ALIGNMENT = 64

_NUMPY: dict[str, np.dtype[Any]] = {
    "f16": np.dtype("float16"), "f32": np.dtype("float32"), "f64": np.dtype("float64"),
    "i8": np.dtype("int8"), "i16": np.dtype("int16"), "i32": np.dtype("int32"), "i64": np.dtype("int64"),
    "u8": np.dtype("uint8"), "u16": np.dtype("uint16"), "u32": np.dtype("uint32"), "u64": np.dtype("uint64"),
    "bool": np.dtype("bool"),
    "bf16": np.dtype("float32"),  # NumPy has no bfloat16: values are converted
}
_TEXTS: np.dtype[Any] = np.dtype("O")

# Rows that run between two looks for Ctrl-C, in blocks of the module.
_BLOCKS_TOGETHER = 16


@dataclass(frozen=True)
class TensorInfo:
    """An input or an output of a module."""

    name: str
    dtype: str
    """"f32", "i64", .. as Heddle writes it; `numpy_dtype` is NumPy's."""
    shape: tuple[int, ...]
    """With independent rows, dimension 0 is the largest block that is computed at once; any number of rows runs. Of an
    output whose extents depend on data: the largest possible shape. Of texts: without the bytes of a text."""
    is_text: bool = False
    """Texts: arrays of str, of at most `text_bytes` bytes in UTF-8."""
    text_bytes: int = 0
    columns: tuple[str, ...] = ()
    """Names of the elements of a row, if they have names."""
    labels: tuple[str, ...] = ()
    """labels[k] is what the integer k stands for, such as the name of a class; empty: integers stand for themselves."""

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of arrays for `Module.run`; of texts: np.dtype("O"), whose elements are str."""
        return _TEXTS if self.is_text else _NUMPY[self.dtype]


def empty(shape: int | Sequence[int], dtype: Any = "float32") -> np.ndarray:
    """A new C-contiguous array of any values whose memory a module uses without a copy: it begins at a multiple of 64
    bytes, which that of numpy.empty often does not."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise UsageError("heddle.empty makes arrays of numbers; there is no memory to share of Python's objects")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    size = int(np.prod(extents, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    array: np.ndarray = memory[begin : begin + size].view(dtype).reshape(extents)
    return array


class Module:
    """A tuned model that runs on this machine.

    Calls of several threads run one after the other. Load the module once for each thread to run them at the same time.
    """

    def __init__(self, module: str | os.PathLike[str] | bytes, *, threads: int = 0) -> None:
        """Loads a module.

        module: the path of a module file, or its bytes. Nobody may write to the file while it is used.
        threads: 0 stands for the number that the module was tuned for.

        NotFound: there is no such file. UsageError: it is no module, is damaged, or needs a CPU or GPU that this
        machine lacks.
        """
        if isinstance(module, (bytes, bytearray, memoryview)):
            self._source = "a module in memory"
            self._model = _runtime.Model.from_bytes(bytes(module), threads)
        else:
            self._source = os.fspath(module)
            try:
                os.stat(module)
            except OSError as error:
                raise NotFound(f"cannot read '{self._source}': {error.strerror}") from error
            self._model = _runtime.Model.from_file(os.fsencode(module), threads)
        self._lock = threading.Lock()
        self.inputs: tuple[TensorInfo, ...] = tuple(map(_info, self._model.inputs()))
        """What the model takes."""
        self.outputs: tuple[TensorInfo, ...] = tuple(map(_info, self._model.outputs()))
        """What the model gives."""
        self.any_rows: bool = self._model.rows_are_independent()
        """Whether dimension 0 of all tensors counts rows that do not depend on each other. Then `run` takes any number."""
        self.copied: tuple[str, ...] = ()
        """The inputs and outputs that the latest run copied, by name. Others were used where they are."""
        self.job: Job | None = None
        """The job that made the module, if heddle.tune or Job.module returned it."""

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[Any] | Any,
        *,
        out: Mapping[str, np.ndarray] | None = None,
        copy: Literal[False] | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs the model, and returns its outputs by name as new NumPy arrays.

        inputs: values by input name, or a list of them in order, or the value itself of a single input. A value is a
            NumPy array, anything with __dlpack__ on the CPU (such as a torch tensor), or nested lists of numbers. Its
            dtype must be that of the input, and its shape too, except that models with independent rows (`any_rows`)
            take any number of rows.
        out: arrays to write outputs to, by name: C-contiguous, of the output's dtype and largest shape.
        copy: False refuses to copy a tensor, with a UsageError that says why it would be. None copies where it must.

        No copy is made of an input that is C-contiguous and begins at a multiple of 64 bytes, as torch tensors and
        arrays of heddle.empty do, nor of any output. Copied are inputs that lie otherwise, texts, bf16 (whose values
        are float32 here), tensors of GPU modules, and, in models with independent rows, all tensors unless there are
        exactly as many rows as the largest block has. `Module.copied` tells which. Results go on without a copy, too:
        torch.from_dlpack(outputs["y"]).

        UsageError: a missing or unknown name, a wrong dtype or shape.
        """
        if copy not in (None, False):
            raise UsageError(f"copy={copy!r}: it must be False or None; a copy can be refused, not demanded")
        given = self._by_name(inputs)
        unknown = [name for name in out or {} if name not in {spec.name for spec in self.outputs}]
        if unknown:
            raise UsageError(f"out has '{unknown[0]}', and the outputs are {_names(self.outputs)}")
        with self._lock:
            rows = self._rows(given)
            arrays, changed = [], []
            for spec in self.inputs:
                array = _input(spec, given[spec.name], rows)
                stored = _stored(spec, array)
                if stored is not array:
                    changed.append(spec.name)
                    if copy is False:
                        raise UsageError(_why_changed(spec, array))
                arrays.append(stored)
            results = [_output(spec, (out or {}).get(spec.name), rows) for spec in self.outputs]
            if out:
                _refuse_shared(self.outputs, results, arrays)
            if rows is not None and rows != self._block():
                if copy is False:
                    raise UsageError(
                        f"copy=False: {rows} rows run in blocks of at most {self._block()}, which are copied; give "
                        f"{self._block()} rows at a time")
                self._run_rows(rows, arrays, results)
                self.copied = _all_names(self.inputs, self.outputs)
            else:
                if copy is False:
                    self._refuse_copies(arrays, results)
                copied_inputs, copied_outputs, shapes = self._model.run(arrays, results)
                results = [
                    _leading(result, tuple(shape), index in copied_outputs)
                    for index, (result, shape) in enumerate(zip(results, shapes))
                ]
                names = {self.inputs[i].name for i in copied_inputs} | {self.outputs[i].name for i in copied_outputs}
                converted = {spec.name for spec in self.outputs if _is_converted(spec)}
                names |= converted | set(changed)
                self.copied = tuple(n for n in _all_names(self.inputs, self.outputs) if n in names)
            return {
                spec.name: _shown(spec, result, (out or {}).get(spec.name)) for spec, result in zip(self.outputs, results)
            }

    def _block(self) -> int:
        return self.inputs[0].shape[0]

    def _run_rows(self, rows: int, arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        together = _BLOCKS_TOGETHER * self._block()
        for begin in range(0, rows, together):  # between two pieces, Python sees Ctrl-C
            self._model.run_rows(begin, min(together, rows - begin), arrays, results)

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        names = [spec.name for spec in self.inputs]
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        elif isinstance(inputs, (list, tuple)) and len(names) != 1:
            if len(inputs) != len(names):
                raise UsageError(f"{len(inputs)} inputs where there are {len(names)}: {_names(self.inputs)}")
            given = dict(zip(names, inputs))
        elif isinstance(inputs, (list, tuple)) and len(inputs) == 1 and _is_array(inputs[0]):
            given = {names[0]: inputs[0]}
        elif len(names) == 1:
            given = {names[0]: inputs}
        else:
            raise UsageError(f"give inputs by name: {_names(self.inputs)}")
        for name in given:
            if name not in names:
                raise UsageError(f"there is no input '{name}'; the inputs are {_names(self.inputs)}")
        for name in names:
            if name not in given:
                raise UsageError(f"input '{name}' is missing; the inputs are {_names(self.inputs)}")
        return given

    def _rows(self, given: dict[str, Any]) -> int | None:
        """How many rows the inputs have; None if the model fixes it."""
        if not self.any_rows:
            return None
        rows = None
        for spec in self.inputs:
            value = given[spec.name] = _array(spec, given[spec.name])
            if value.ndim == 0:
                raise UsageError(f"input '{spec.name}' is a single number; give rows: {_text(spec.dtype, spec.shape)}")
            if rows is not None and value.shape[0] != rows:
                raise UsageError(f"input '{spec.name}' has {value.shape[0]} rows, and another has {rows}; give as many")
            rows = value.shape[0]
        return rows

    def _refuse_copies(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        for spec, array in (*zip(self.inputs, arrays), *zip(self.outputs, results)):
            if array.nbytes and array.ctypes.data % _ALIGNMENT:
                raise UsageError(
                    f"copy=False: tensor '{spec.name}' begins at no multiple of {_ALIGNMENT} bytes; heddle.empty makes "
                    f"arrays that do")
        for spec in self.outputs:
            if _is_converted(spec):
                raise UsageError(f"copy=False: output '{spec.name}' is {'text' if spec.is_text else spec.dtype}, which is converted")

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {_text(spec.dtype, spec.shape)}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {_text(spec.dtype, spec.shape)}" for spec in self.outputs)
        return f"<heddle.Module {self._source!r}: ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        rows = [
            (kind, spec.name, _text(spec.dtype, spec.shape), ", ".join(spec.labels[:8]) + (", .." if len(spec.labels) > 8 else ""))
            for kind, specs in (("input", self.inputs), ("output", self.outputs)) for spec in specs
        ]
        title = f"<p>heddle.Module {escaped(str(self._source))}</p>"
        return title + html_table(("", "name", "type", "labels"), rows)


def _info(tensor: tuple[str, str, tuple[int, ...], bool, tuple[str, ...], tuple[str, ...]]) -> TensorInfo:
    name, dtype, shape, is_text, columns, labels = tensor
    if is_text:
        return TensorInfo(name, dtype, shape[:-1], True, shape[-1], columns, labels)
    return TensorInfo(name, dtype, shape, False, 0, columns, labels)


def _names(specs: Sequence[TensorInfo]) -> str:
    return ", ".join(f"'{spec.name}'" for spec in specs)


def _all_names(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(spec.name for spec in (*inputs, *outputs)))


def _text(dtype: Any, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "__dlpack__")


def _is_converted(spec: TensorInfo) -> bool:
    """Whether values have another form here than in the module."""
    return spec.is_text or spec.dtype == "bf16"


def _array(spec: TensorInfo, value: Any) -> np.ndarray:
    """The value as an array, which shares memory with the value if that is an array."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except Exception as error:  # of NumPy, or of whoever made the value: a device, a dtype, a tensor with gradients
            raise UsageError(f"input '{spec.name}' cannot be read through DLPack: {error}") from error
    try:
        return np.asarray(value, dtype=spec.numpy_dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"input '{spec.name}' is no array of {spec.numpy_dtype}: {error}") from error


def _input(spec: TensorInfo, value: Any, rows: int | None) -> np.ndarray:
    """The value as an array of the right dtype and shape."""
    array = _array(spec, value)
    shape = spec.shape if rows is None else (rows, *spec.shape[1:])
    if spec.is_text:
        if array.dtype.kind not in "OUS":
            raise UsageError(f"input '{spec.name}' is {array.dtype}; give an array of str")
    elif array.dtype != spec.numpy_dtype:
        raise UsageError(
            f"input '{spec.name}' is {array.dtype} where the model takes {spec.numpy_dtype}; write "
            f"array.astype(numpy.{spec.numpy_dtype})")
    if array.shape != shape:
        raise UsageError(
            f"input '{spec.name}' has shape {list(array.shape)} where the model takes {list(spec.shape)}"
            + (", or as many rows as you like" if rows is not None else ""))
    return array


def _stored(spec: TensorInfo, array: np.ndarray) -> np.ndarray:
    """The array as the module stores it: the array itself if that is possible."""
    if spec.is_text:
        return _text_bytes(spec, array)
    if spec.dtype == "bf16":
        return _bf16_bits(array)
    if array.flags.c_contiguous:
        return array
    stored = empty(array.shape, array.dtype)
    stored[...] = array
    return stored


def _why_changed(spec: TensorInfo, array: np.ndarray) -> str:
    if _is_converted(spec):
        return f"copy=False: input '{spec.name}' is {'text' if spec.is_text else spec.dtype}, which is converted"
    return f"copy=False: input '{spec.name}' is not C-contiguous (strides {list(array.strides)}, shape {list(array.shape)})"


def _output(spec: TensorInfo, out: np.ndarray | None, rows: int | None) -> np.ndarray:
    """Memory for an output as the module stores it."""
    shape = spec.shape if rows is None else (rows, *spec.shape[1:])
    if spec.is_text:
        if out is not None:
            raise UsageError(f"out['{spec.name}']: texts are made anew; leave it out")
        return empty((*shape, spec.text_bytes), np.uint8)
    if out is None:
        return empty(shape, np.uint16 if spec.dtype == "bf16" else spec.numpy_dtype)
    if not isinstance(out, np.ndarray) or out.dtype != spec.numpy_dtype or out.shape != shape:
        found = _text(out.dtype, out.shape) if isinstance(out, np.ndarray) else type(out).__name__
        raise UsageError(f"out['{spec.name}'] is {found}; give an array {_text(spec.numpy_dtype, shape)}")
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise UsageError(f"out['{spec.name}'] must be C-contiguous and writable; heddle.empty makes such arrays")
    return empty(shape, np.uint16) if spec.dtype == "bf16" else out


def _refuse_shared(specs: Sequence[TensorInfo], results: list[np.ndarray], arrays: list[np.ndarray]) -> None:
    """An output must lie beside all other tensors."""
    for index, (spec, result) in enumerate(zip(specs, results)):
        others = arrays + results[:index] + results[index + 1 :]
        if any(np.may_share_memory(result, other) for other in others):
            raise UsageError(f"out['{spec.name}'] shares memory with another tensor; give it memory of its own")


def _leading(array: np.ndarray, shape: tuple[int, ...], dense: bool) -> np.ndarray:
    """The part of an output that a run wrote: its leading part, or, if `dense`, its first elements."""
    if shape == array.shape:
        return array
    if dense:
        return array.reshape(-1)[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
    return array[tuple(slice(extent) for extent in shape)]


def _shown(spec: TensorInfo, stored: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """What the module stored, as NumPy has it."""
    if spec.is_text:
        return _texts(stored)
    if spec.dtype != "bf16":
        return stored
    wide = (stored.astype(np.uint32) << 16).view(np.float32)
    if out is None:
        return wide
    part = out[tuple(slice(extent) for extent in wide.shape)]
    part[...] = wide
    return part


def _bf16_bits(array: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, rounded to the nearest, ties to even. NaN stays NaN."""
    bits = np.asarray(array, order="C").view(np.uint32)
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    quiet = ((bits >> 16) | 0x40).astype(np.uint16)
    stored = empty(array.shape, np.uint16)
    stored[...] = np.where(np.isnan(array), quiet, rounded)
    return stored


def _text_bytes(spec: TensorInfo, array: np.ndarray) -> np.ndarray:
    """Texts as rows of bytes with zeros behind them. A text that is too long is cut, as the command line does."""
    stored = empty((*array.shape, spec.text_bytes), np.uint8)
    stored[...] = 0
    flat = stored.reshape(-1, spec.text_bytes)
    for place, value in zip(flat, array.reshape(-1)):
        data = value if isinstance(value, bytes) else str(value).encode()
        if b"\0" in data:
            raise UsageError(f"input '{spec.name}' has a text with a zero byte; leave it out")
        data = data[: spec.text_bytes]
        place[: len(data)] = np.frombuffer(data, np.uint8)
    return stored


def _texts(stored: np.ndarray) -> np.ndarray:
    shape, width = stored.shape[:-1], stored.shape[-1]
    texts = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=object)
    for i, row in enumerate(np.ascontiguousarray(stored).reshape(-1, width)):
        texts[i] = row.tobytes().split(b"\0", 1)[0].decode(errors="replace")
    return texts.reshape(shape)
