#!/usr/bin/env python3
"""Compares heddle with ONNX Runtime on the models and pipelines of scikit-learn that skl2onnx writes. Not part of ctest, since it
needs packages from PyPI:

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install onnx onnxruntime numpy scikit-learn skl2onnx
    ninja -C build/release onnx-model-server
    /tmp/venv/bin/python tests/onnx/pipelines.py

Trains on the data that scikit-learn ships, or on generated data, and runs each model on rows that it has not seen. Labels have to
be equal, and scores equal within 1e-5 (relative above 1). Prints a line for each model that is refused or wrong, and how many
agreed. --compile takes the whole way to machine code; otherwise the imported graph is interpreted. The exit status is 1 if
anything was wrong.
"""
import argparse
import collections
import re
import sys
import warnings

import numpy as np
import onnx
import sklearn
from skl2onnx import to_onnx
from sklearn import (calibration, cluster, datasets, discriminant_analysis, ensemble, gaussian_process, linear_model, multiclass,
                     naive_bayes, neighbors, neural_network, svm, tree)
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (Binarizer, KBinsDiscretizer, MinMaxScaler, Normalizer, OneHotEncoder, OrdinalEncoder,
                                   PolynomialFeatures, StandardScaler)

import differential
import plain_attributes  # noqa: F401, for what it changes

TOLERANCE = 1e-5
ROWS = 40


# ---- Data: training rows and labels, and rows to predict ----


def split(x, y, dtype):
    order = np.random.default_rng(1).permutation(len(x))
    x, y = x[order].astype(dtype), y[order]
    return x[:-ROWS], y[:-ROWS], x[-ROWS:]


def classes(name, dtype=np.float32):
    load = {"binary": datasets.load_breast_cancer, "iris": datasets.load_iris, "wine": datasets.load_wine, "digits": datasets.load_digits}
    return split(*load[name](return_X_y=True), dtype)


def numbers(dtype=np.float32):
    return split(*datasets.load_diabetes(return_X_y=True), dtype)


def with_holes(data):
    x, y, new = (np.array(part) for part in data)
    for part in (x, new):
        part[np.random.default_rng(2).random(part.shape) < 0.1] = np.nan
    return x, y, new


def categories():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, (300, 4))
    return split(x, (x[:, 0] + x[:, 1] > 5).astype(int), np.int64)


def words():
    x, y, new = categories()
    names = np.array(["red", "green", "blue", "orange", "red wine", ""], dtype=object)
    new = names[new]
    new[::7, 1] = "greenish"  # no category
    return names[x], y, new


# ---- Models ----


def cases():
    """Pairs of a name and a function that gives a fitted model and rows."""

    def add(name, model, data):
        found.append((name, lambda: (model.fit(data[0], data[1]), data[2])))

    found = []
    scaled = lambda model: make_pipeline(StandardScaler(), model)
    classifiers = {
        "LogisticRegression": lambda: scaled(linear_model.LogisticRegression()),
        "SGDClassifier": lambda: scaled(linear_model.SGDClassifier(loss="log_loss", random_state=1)),
        "RidgeClassifier": lambda: linear_model.RidgeClassifier(),
        "DecisionTree": lambda: tree.DecisionTreeClassifier(random_state=1),
        "RandomForest": lambda: ensemble.RandomForestClassifier(20, random_state=1),
        "ExtraTrees": lambda: ensemble.ExtraTreesClassifier(20, random_state=1),
        "GradientBoosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=20, random_state=1),
        "HistGradientBoosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=20, random_state=1),
        "AdaBoost": lambda: ensemble.AdaBoostClassifier(n_estimators=5, random_state=1),
        "Bagging": lambda: ensemble.BaggingClassifier(n_estimators=5, random_state=1),
        "KNeighbors": lambda: scaled(neighbors.KNeighborsClassifier()),
        "GaussianNB": lambda: scaled(naive_bayes.GaussianNB()),
        "BernoulliNB": lambda: scaled(naive_bayes.BernoulliNB()),
        "MultinomialNB": lambda: make_pipeline(MinMaxScaler(clip=True), naive_bayes.MultinomialNB()),
        "LDA": lambda: scaled(discriminant_analysis.LinearDiscriminantAnalysis()),
        "MLP": lambda: scaled(neural_network.MLPClassifier((16,), max_iter=100, random_state=1)),
        "Voting": lambda: ensemble.VotingClassifier([("a", scaled(linear_model.LogisticRegression())), ("b", tree.DecisionTreeClassifier(max_depth=3))],
                                                       voting="soft", flatten_transform=False),
        "OneVsRest": lambda: multiclass.OneVsRestClassifier(scaled(linear_model.LogisticRegression())),
        "Calibrated": lambda: calibration.CalibratedClassifierCV(scaled(linear_model.LogisticRegression()), cv=2),
        "PCA": lambda: make_pipeline(StandardScaler(), PCA(3), linear_model.LogisticRegression()),
        "Polynomial": lambda: make_pipeline(StandardScaler(), PCA(3), PolynomialFeatures(2), linear_model.LogisticRegression()),
        "Bins": lambda: make_pipeline(KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"), linear_model.LogisticRegression()),
        "Binarizer": lambda: make_pipeline(StandardScaler(), Binarizer(threshold=0.25), linear_model.LogisticRegression()),
    }
    for norm in ("l1", "l2", "max"):
        classifiers[f"Normalizer {norm}"] = lambda norm=norm: make_pipeline(Normalizer(norm), linear_model.LogisticRegression())
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        classifiers[f"SVC {kernel}"] = lambda kernel=kernel: scaled(svm.SVC(kernel=kernel))
        classifiers[f"SVC {kernel}, probabilities"] = lambda kernel=kernel: scaled(svm.SVC(kernel=kernel, probability=True, random_state=1))
        classifiers[f"NuSVC {kernel}"] = lambda kernel=kernel: scaled(svm.NuSVC(kernel=kernel, nu=0.2))
    for data in ("binary", "iris", "wine", "digits"):
        for name, make in classifiers.items():
            add(f"{name}, {data}", make(), classes(data))
    for data in ("binary", "iris"):
        for name in ("RandomForest", "GradientBoosting", "HistGradientBoosting", "DecisionTree"):
            add(f"{name}, {data}, double", classifiers[name](), classes(data, np.float64))
        x, y, new = classes(data)
        names = np.array([f"class {i}" for i in range(3)])
        for name in ("LogisticRegression", "RandomForest", "KNeighbors", "SVC rbf", "Voting"):
            add(f"{name}, {data}, strings", classifiers[name](), (x, names[y], new))
        add(f"Imputer, {data}", make_pipeline(SimpleImputer(), tree.DecisionTreeClassifier(random_state=1)), with_holes(classes(data)))
        add(f"HistGradientBoosting, {data}, missing", classifiers["HistGradientBoosting"](), with_holes(classes(data)))
    regressors = {
        "LinearRegression": linear_model.LinearRegression, "Ridge": linear_model.Ridge, "Lasso": linear_model.Lasso,
        "TweedieRegressor": lambda: linear_model.TweedieRegressor(power=1, max_iter=1000),
        "DecisionTree": lambda: tree.DecisionTreeRegressor(random_state=1),
        "RandomForest": lambda: ensemble.RandomForestRegressor(20, random_state=1),
        "GradientBoosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=20, random_state=1),
        "HistGradientBoosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=20, random_state=1),
        "KNeighbors": neighbors.KNeighborsRegressor, "MLP": lambda: scaled(neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=100, random_state=1)),
        "GaussianProcess": lambda: gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF(0.5), alpha=0.5),
        "OneClassSVM": lambda: scaled(svm.OneClassSVM()), "IsolationForest": lambda: ensemble.IsolationForest(n_estimators=10, random_state=1),
        "KMeans": lambda: cluster.KMeans(4, n_init=1, random_state=1),
    }
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        regressors[f"SVR {kernel}"] = lambda kernel=kernel: scaled(svm.SVR(kernel=kernel))
    for name, make in regressors.items():
        add(f"{name}, regression", make(), numbers())
    x, y, new = numbers()
    for name in ("LinearRegression", "DecisionTree", "RandomForest"):
        add(f"{name}, two targets", regressors[name](), (x, np.stack([y, -2 * y], 1), new))
    for name in ("DecisionTree", "GradientBoosting", "HistGradientBoosting"):
        add(f"{name}, regression, double", regressors[name](), numbers(np.float64))
    add("OneHot, categories", make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), linear_model.LogisticRegression()), categories())
    add("Ordinal, categories", make_pipeline(OrdinalEncoder(), tree.DecisionTreeClassifier(random_state=1)), categories())
    columns = ColumnTransformer([("hot", OneHotEncoder(sparse_output=False), [0, 2]), ("scaled", StandardScaler(), [1, 3])])
    add("Columns, categories", make_pipeline(columns, linear_model.LogisticRegression()), categories())
    for target in (linear_model.LogisticRegression(), tree.DecisionTreeClassifier(random_state=1)):
        hot, number = OneHotEncoder(handle_unknown="ignore", sparse_output=False), OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        add(f"OneHot, words, {type(target).__name__}", make_pipeline(hot, target), words())
        add(f"Ordinal, words, {type(target).__name__}", make_pipeline(number, sklearn.base.clone(target)), words())
        both = ColumnTransformer([("hot", sklearn.base.clone(hot), [0, 1]), ("number", sklearn.base.clone(number), [3])])
        add(f"Columns, words, {type(target).__name__}", make_pipeline(both, sklearn.base.clone(target)), words())
    selected = lambda model: make_pipeline(StandardScaler(), SelectKBest(k=5), model)
    for name in ("LogisticRegression", "RandomForest"):
        add(f"SelectKBest, {name}", selected(classifiers[name]()), classes("binary"))
    return found


# ---- One case ----


def numbered(result, model):
    """A result of ONNX Runtime as heddle gives it: labels that are strings as their places, a map as a matrix."""
    if isinstance(result, list):
        keys = list(result[0])
        order = getattr(model, "classes_", keys)
        return np.array([[row[k] for k in order] for row in result])
    result = np.asarray(result)
    return np.searchsorted(model.classes_, result) if result.dtype.kind in "OSU" else result


def disagreement(found, expected):
    """What is wrong, or nothing."""
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for k, (f, e) in enumerate(zip(found, expected)):
        if f.shape != e.shape:
            return f"result {k} is {f.shape}, not {e.shape}"
        if f.dtype.kind != e.dtype.kind:
            return f"result {k} is {f.dtype}, not {e.dtype}"
        if e.dtype.kind == "i":
            if not np.array_equal(f, e):
                return f"{np.sum(f != e)} of {e.size} labels differ"
        else:
            apart = np.abs(f.astype(float) - e) / np.maximum(1, np.abs(e))
            if not np.array_equal(np.isnan(f), np.isnan(e)) or np.nanmax(apart) > TOLERANCE:
                return f"result {k} differs by {np.nanmax(apart):.2g}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default=differential.SERVER)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    server, tally = differential.Server(args.server), collections.Counter()
    for name, make in cases():
        if args.only not in name:
            continue
        model, rows = make()
        ways = (None,) if not sklearn.base.is_classifier(model) else (False, True) if "iris" in name else (False,)
        for zipmap in ways:
            try:
                options = None if zipmap is None else {"zipmap": zipmap}
                proto = to_onnx(model, rows[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
                for output in proto.graph.output:  # scores are float, whatever skl2onnx says
                    if output.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE:
                        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
                proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = len(rows)
                bytes_of = proto.SerializeToString()
                results = differential.by_runtime(bytes_of, {"X": rows})
            except Exception as error:  # of skl2onnx, or of ONNX Runtime
                tally["refused by skl2onnx or ONNX Runtime"] += 1
                print(f"no model {name}: {re.sub(chr(10), ' ', str(error))[:150]}")
                continue
            last = model.steps[-1][1] if hasattr(model, "steps") else model
            expected = [numbered(r, last) for r in results]
            status, message, found = server.run("compile" if args.compile else "interpret", bytes_of, {"X": rows}, 300)
            if status != "OK":
                tally["refused" if status != "CRASH" else "wrong"] += 1
                print(f"{status} {name}: {message[:300]}")
                continue
            wrong = disagreement(found, expected)
            tally["wrong" if wrong else "agreed"] += 1
            if wrong:
                print(f"WRONG {name}{', map' if zipmap else ''}: {wrong}")
    print(", ".join(f"{count} {what}" for what, count in tally.most_common()))
    return 1 if tally["wrong"] else 0


sys.exit(main())
