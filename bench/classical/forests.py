"""Forests of XGBoost and LightGBM, with their ONNX files. make.py calls `write`."""

import dataclasses
import json
import os

PACKAGES = ("xgboost", "lightgbm", "onnxmltools", "numpy")
ROWS = "rows"  # the name of the dimension, in our own readers and in ONNX files
FEATURES, CLASSES = 28, 5
TRAINING_ROWS = TABLE_ROWS = 20000
MISSING_FEATURES, MISSING_SHARE = 8, 0.05  # so many features have missing values
LEARNING_RATE = 0.1
SPARSE_LEAVES = 64  # of a sparse tree, at most


@dataclasses.dataclass(frozen=True)
class Spec:
    """Dense trees have as many leaves as the depth and the training rows allow: XGBoost grows them level by level. Sparse trees are
    deep and narrow: LightGBM grows them leaf by leaf, and ends early."""

    shape: str  # "dense" or "sparse"
    trees: int  # of all classes together
    depth: int  # at most
    task: str = "regression"  # or "binary", "multiclass"
    tolerance = 1e-5  # of a score, absolute for small ones and relative for large ones

    @property
    def name(self):
        return f"{self.shape}-{self.trees}x{self.depth}" + ("" if self.task == "regression" else f"-{self.task}")

    @property
    def file(self):
        """XGBoost's regressors are JSON, its classifiers UBJSON."""
        if self.shape == "sparse":
            return f"{self.name}.txt"
        return f"{self.name}.json" if self.task == "regression" else f"{self.name}.ubj"

    @property
    def most_leaves(self):
        """Of a tree."""
        return 2**self.depth if self.shape == "dense" else min(max(self.depth + 1, 2**self.depth // 8), SPARSE_LEAVES)


# One tree, so that a call with one row is little but the call.
CALLS = tuple(Spec(shape, 1, 3) for shape in ("dense", "sparse"))
MODELS = tuple(Spec(shape, trees, depth) for trees in (100, 500) for depth in (3, 6, 8, 12) for shape in ("dense", "sparse"))
MODELS += tuple(Spec(shape, 500, 8, "binary") for shape in ("dense", "sparse"))
MODELS += tuple(Spec(shape, 100, 6, "multiclass") for shape in ("dense", "sparse"))


def make_rows(rows, seed):
    """f32 [rows, FEATURES]. Values are multiples of 1/256, so thresholds between them are the same number in f32 and f64, and no
    library can be wrong by its precision."""
    import numpy as np  # the driver imports this file without it

    random = np.random.default_rng(seed)
    x = np.round(random.standard_normal((rows, FEATURES)) * 256).astype(np.float32) / 256
    x[:, :MISSING_FEATURES][random.random((rows, MISSING_FEATURES)) < MISSING_SHARE] = np.nan
    return x


def make_signal(x, seed):
    """Many features act together, and there is noise, so that later trees find something to split, too."""
    import numpy as np

    known = np.nan_to_num(x.astype(np.float64), nan=0.5)
    signal = np.sin(known @ np.linspace(-0.5, 0.5, FEATURES)) + known[:, 0] * known[:, 9] + np.abs(known[:, 10]) * known[:, 11]
    return signal + 0.3 * np.random.default_rng(seed).standard_normal(len(x))


def classes_of(signal, classes):
    """Classes of equal size, by the signal."""
    import numpy as np

    return np.searchsorted(np.quantile(signal, np.arange(1, classes) / classes), signal)


def make_labels(x, task, seed):
    signal = make_signal(x, seed)
    return signal if task == "regression" else classes_of(signal, 2 if task == "binary" else CLASSES)


def train_dense(spec, x, y):
    import xgboost

    objective = {"regression": "reg:squarederror", "binary": "binary:logistic", "multiclass": "multi:softprob"}[spec.task]
    options = {"objective": objective, "tree_method": "hist", "max_depth": spec.depth, "eta": LEARNING_RATE}
    options |= {"min_child_weight": 0, "seed": 1, "nthread": 1}  # one thread: sums do not depend on the machine
    if spec.task == "multiclass":
        options["num_class"] = CLASSES
    return xgboost.train(options, xgboost.DMatrix(x, y), rounds_of(spec))


def train_sparse(spec, x, y):
    import lightgbm

    options = {"objective": spec.task, "max_depth": spec.depth, "num_leaves": spec.most_leaves}
    options |= {"learning_rate": LEARNING_RATE, "min_data_in_leaf": 5, "seed": 1, "num_threads": 1, "deterministic": True}
    options |= {"force_row_wise": True, "verbosity": -1}
    if spec.task == "multiclass":
        options["num_class"] = CLASSES
    return lightgbm.train(options, lightgbm.Dataset(x, y), rounds_of(spec))


def rounds_of(spec):
    return spec.trees // CLASSES if spec.task == "multiclass" else spec.trees


def describe_dense(booster, x):
    """Its trees as nested dictionaries, and its predictions."""
    import xgboost

    return [json.loads(tree) for tree in booster.get_dump(dump_format="json")], booster.predict(xgboost.DMatrix(x))


def describe_sparse(booster, x):
    return [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]], booster.predict(x, num_threads=1)


def children_of(node):
    """The children of a node, as either library dumps it."""
    return node.get("children") or [node[side] for side in ("left_child", "right_child") if side in node]


def count_leaves(node):
    return sum(map(count_leaves, children_of(node))) or 1


def max_depth(node):
    """The longest way to a leaf, in inner nodes."""
    return max((1 + max_depth(child) for child in children_of(node)), default=0)


def write_onnx(spec, booster, path):
    """None, or why it is not written."""
    from onnxmltools.convert import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    inputs = [("x", FloatTensorType([None, FEATURES]))]
    try:
        if spec.shape == "dense":
            model = convert_xgboost(booster, initial_types=inputs)
        else:
            model = convert_lightgbm(booster, initial_types=inputs, zipmap=False)
    except Exception as error:  # what a converter does not know ends in all kinds of errors
        return f"{type(error).__name__}: {error}".splitlines()[0]
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    return None


def write(spec, folder):
    import numpy as np

    table = make_rows(TABLE_ROWS, seed=2)
    np.save(os.path.join(folder, "table.npy"), table)
    x = make_rows(TRAINING_ROWS, seed=1)
    y = make_labels(x, spec.task, seed=3)
    train, describe = {"dense": (train_dense, describe_dense), "sparse": (train_sparse, describe_sparse)}[spec.shape]
    booster = train(spec, x, y)
    booster.save_model(os.path.join(folder, spec.file))
    trees, predicted = describe(booster, table)
    np.save(os.path.join(folder, f"{spec.name}.npy"), predicted.reshape(TABLE_ROWS, -1))
    about = {"file": spec.file, "own": spec.file, "table": "table.npy"}
    about |= {"leaves": sum(map(count_leaves, trees)), "depth": max(map(max_depth, trees))}
    return about | {"onnx": write_onnx(spec, booster, os.path.join(folder, f"{spec.name}.onnx"))}
