"""What a case is, and the data that models are trained on."""

import dataclasses
import typing

import numpy as np

ROWS = 50  # that are predicted; no model has seen them
OPSETS = {"": 18, "ai.onnx.ml": 3}


@dataclasses.dataclass
class Made:
    """A model file, rows for it, and what its own library makes of these rows."""

    model: bytes
    suffix: str  # .onnx, .json, .ubj or .txt: what the library writes
    inputs: dict  # name of an input: its array; a file of XGBoost or LightGBM has the input "x"
    labels: typing.Optional[np.ndarray] = None  # [rows], or none
    scores: typing.Optional[np.ndarray] = None  # [rows] or [rows, outputs], or none
    classes: typing.Optional[list] = None  # texts that labels are, in the order of the scores
    csv: bool = False  # the rows go in as a table of texts and numbers, by the names of the inputs


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: typing.Callable[[], Made]
    refused: str = ""  # what the message has to say, if the model is one that we refuse
    # The words that refuse a module for other numbers of rows, where it cannot be seen that rows do not depend on each other, or where
    # they do. The module is then made for as many rows as are predicted. No other refusal is followed by a second try.
    whole: str = ""
    # Why the ONNX file does not say what the library computes. ONNX Runtime then has to make of the file what we make of it.
    exporter: str = ""
    tolerance: float = 1e-5  # of a score, relative above 1
    quick: bool = False  # one of the dozen that ctest runs


class Cases(list):
    def add(self, name, **what):
        """Declares a case: @cases.add("name") before a function that makes it."""

        def declare(make):
            self.append(Case(name, make, **what))
            return make

        return declare


# ---- Data. All is determined by seeds; features are f32, as they are in our modules ----


def shipped(name):
    """Training rows, their labels, and rows to predict, of a data set that scikit-learn brings along."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    return x[:-ROWS], y[:-ROWS], x[-ROWS:]


FEATURES = 8


def drawn(count, seed, missing=0.0, categories=0):
    """f32 [count, FEATURES]: multiples of 1/64, so that no threshold between two of them is rounded. The first `categories` features
    are whole numbers from 0 to 9, and of the others a share `missing` is NaN."""
    rng = np.random.default_rng(seed)
    x = (np.round(rng.standard_normal((count, FEATURES)) * 64) / 64).astype(np.float32)
    holes = rng.random(x.shape) < missing
    x[holes] = np.nan
    for k in range(categories):
        x[:, k] = rng.integers(0, 10, count)
    return x


def signal_of(x, seed=5):
    """f64 [rows]: what there is to learn, with some noise."""
    known = np.nan_to_num(x.astype(np.float64), nan=0.7)
    signal = np.sin(known[:, 0]) + known[:, 1] * known[:, 2] + np.abs(known[:, 3]) - 0.5 * known[:, 4]
    return signal + 0.1 * np.random.default_rng(seed).standard_normal(len(x))


def classes_of(signal, count):
    return np.searchsorted(np.quantile(signal, np.arange(1, count) / count), signal)


@dataclasses.dataclass(frozen=True)
class Task:
    """Generated rows with targets of all kinds."""

    x: np.ndarray
    y: np.ndarray  # real numbers
    new: np.ndarray

    @property
    def binary(self):
        return classes_of(self.y, 2)

    @property
    def many(self):
        return classes_of(self.y, 4)

    @property
    def counts(self):
        return np.random.default_rng(6).poisson(np.exp(np.clip(self.y, -3, 2)))

    @property
    def positive(self):
        return np.exp(np.clip(self.y, -3, 3))

    @property
    def groups(self):
        """How many rows each query of a ranking has."""
        return [20] * (len(self.x) // 20)


def task(missing=0.0, categories=0, count=600):
    x = drawn(count, 2, missing, categories)
    return Task(x, signal_of(x), drawn(ROWS, 3, missing, categories))
