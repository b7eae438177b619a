"""Linear models, support vector machines and whole pipelines of scikit-learn, with their ONNX files. make.py calls `write`.

Categories are whole numbers, since all columns of a table have one type.
"""

import dataclasses
import os
import pickle

from bench.classical import forests

PACKAGES = ("scikit-learn", "skl2onnx", "onnx", "numpy")
CATEGORICAL = 8  # the last features of a mixed table
CATEGORIES = 20  # of the first of them; each has two more than the one before
SVM_ROWS = 500  # of the training rows. Most become support vectors
COMPONENTS = 12  # of the principal component analysis


@dataclasses.dataclass(frozen=True)
class Spec:
    shape: str  # "linear" or "pipeline"
    name: str
    classes: int = 2  # 0: a number is predicted
    table: str = "plain"  # without missing values; or "mixed": some of the numbers are missing, and the last features are categories
    tolerance: float = 1e-5  # of a score, absolute for small ones and relative for large ones


SUMS = 1e-4  # where a score is a sum of hundreds of products in single precision
MODELS = (
    Spec("linear", "logistic-2"),
    Spec("pipeline", "onehot-logistic", table="mixed"),
    Spec("linear", "logistic-10", 10),
    Spec("pipeline", "onehot-boosting", table="mixed"),
    Spec("linear", "ridge", 0),
    Spec("pipeline", "pca-logistic", 5),
    Spec("linear", "sgd-5", 5),
    Spec("linear", "svc-2", tolerance=SUMS),
    Spec("linear", "nusvc-3", 3, tolerance=SUMS),
)


def estimator(spec):
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC, NuSVC

    numbers = list(range(forests.FEATURES - CATEGORICAL))
    categories = list(range(forests.FEATURES - CATEGORICAL, forests.FEATURES))

    def columns(*steps):
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        return ColumnTransformer([("numbers", make_pipeline(*steps), numbers), ("categories", encoder, categories)])

    imputer = SimpleImputer(strategy="median")
    logistic = LogisticRegression(max_iter=1000)
    # Trees ask numbers as they are: scaled ones lie on the other side of a threshold if they are rounded otherwise.
    # skl2onnx does not convert HistGradientBoostingClassifier with current versions of protobuf.
    boosting = GradientBoostingClassifier(n_estimators=100, max_depth=5, subsample=0.5, max_features=0.3, random_state=1)
    return {
        "logistic-2": lambda: logistic,
        "logistic-10": lambda: logistic,
        "ridge": Ridge,
        "sgd-5": lambda: SGDClassifier(loss="log_loss", random_state=1),
        "svc-2": SVC,
        "nusvc-3": lambda: NuSVC(nu=0.3),
        "onehot-logistic": lambda: make_pipeline(columns(imputer, StandardScaler()), logistic),
        "onehot-boosting": lambda: make_pipeline(columns(imputer), boosting),
        "pca-logistic": lambda: make_pipeline(StandardScaler(), PCA(COMPONENTS), logistic),
    }[spec.name]()


def make_rows(spec, rows, seed):
    """f32 [rows, FEATURES], as the spec's `table` says."""
    import numpy as np  # the driver imports this file without it

    x = forests.make_rows(rows, seed)
    if spec.table == "plain":
        return np.nan_to_num(x)
    random = np.random.default_rng(seed + 1)
    for k in range(CATEGORICAL):
        x[:, forests.FEATURES - CATEGORICAL + k] = random.integers(0, CATEGORIES + 2 * k, rows)
    return x


def make_labels(spec, x):
    import numpy as np

    known = x.astype(np.float64)
    if spec.table == "mixed":
        known[:, -CATEGORICAL:] = known[:, -CATEGORICAL:] % 5 - 2
    signal = forests.make_signal(known, seed=3)
    return signal if spec.classes == 0 else forests.classes_of(signal, spec.classes)


def scores_of(model, rows):
    """Probabilities or else distances or else numbers: [rows, outputs], or [rows] for one output."""
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            return getattr(model, method)(rows)
    return model.predict(rows)


def load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def to_onnx(model):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    last = model.steps[-1][1] if hasattr(model, "steps") else model
    options = {}
    if hasattr(last, "classes_"):
        options["zipmap"] = False
        if len(last.classes_) == 2 and not hasattr(last, "predict_proba"):
            options["raw_scores"] = True  # with the sign of decision_function
    inputs = [("x", FloatTensorType([None, forests.FEATURES]))]
    made = convert_sklearn(model, initial_types=inputs, options={id(last): options} if options else None)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = forests.ROWS  # so that a module may be made for any number
    return made


def trees_of(model):
    """Leaves of all trees together and the depth of the deepest; 0 and None if the model has none."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    trees = [tree.tree_ for trees in getattr(last, "estimators_", []) for tree in trees]
    return {"leaves": int(sum(tree.n_leaves for tree in trees)), "depth": max((int(tree.max_depth) for tree in trees), default=None)}


def write(spec, folder):
    import numpy as np

    table = make_rows(spec, forests.TABLE_ROWS, seed=2)
    np.save(os.path.join(folder, f"table-{spec.table}.npy"), table)
    rows = SVM_ROWS if "svc" in spec.name else forests.TRAINING_ROWS
    x = make_rows(spec, rows, seed=1)
    model = estimator(spec).fit(x, make_labels(spec, x))
    with open(os.path.join(folder, f"{spec.name}.pkl"), "wb") as file:
        pickle.dump(model, file)
    with open(os.path.join(folder, f"{spec.name}.onnx"), "wb") as file:
        file.write(to_onnx(model).SerializeToString())
    np.save(os.path.join(folder, f"{spec.name}.npy"), scores_of(model, table).reshape(forests.TABLE_ROWS, -1))
    about = {"file": f"{spec.name}.onnx", "own": f"{spec.name}.pkl", "onnx": None, "table": f"table-{spec.table}.npy"}
    return about | trees_of(model)
