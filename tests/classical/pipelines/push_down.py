#!/usr/bin/env python3
"""Shows what it brings that nothing is computed before a selection of features but what is selected (the pass narrow-columns).

Usage: push_down.py BIN_DIR, which has heddle and heddle-compile-default

Pipelines of 90 numbers and 29 categories, as the data set Nomao has them, become modules with the pass and without it. Both have to say
what scikit-learn says, within 1e-5, and are timed in turns with 4096 rows a call. Prints how many times as fast the pass makes each; the exit
status is 1 if that is below the goal. A norm over a row needs the whole row, so a selection behind one has no goal.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np

import exporting

NUMBERS, CATEGORIES, VALUES = 90, 29, 20  # each category has so many values
ROWS = 4096
TOLERANCE = 1e-5
LIMIT_S = 600


def drawn(rows, seed):
    """f32 [rows, NUMBERS + CATEGORIES]; categories are whole numbers, since all columns of a table have one type."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.standard_normal((rows, NUMBERS)), rng.integers(0, VALUES, (rows, CATEGORIES))], 1).astype(np.float32)


def classes_of(x):
    return (x[:, :10].sum(1) + (x[:, NUMBERS] % 3) + (x[:, NUMBERS + 1] % 5) > 3).astype(int)


def pipelines():
    """Name, pipeline and how many times as fast it shall be; 0: there is no goal."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_selection import SelectPercentile
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

    def columns():
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        numbers, categories = list(range(NUMBERS)), list(range(NUMBERS, NUMBERS + CATEGORIES))
        return ColumnTransformer([("categories", encoder, categories), ("numbers", StandardScaler(), numbers)])

    logistic = LogisticRegression(max_iter=300)
    sparse = LogisticRegression(l1_ratio=1.0, solver="liblinear", C=0.08)
    return (
        ("20 % of the features are selected", make_pipeline(columns(), SelectPercentile(percentile=20), logistic), 2.0),
        ("20 % are selected behind a norm", make_pipeline(columns(), Normalizer(), SelectPercentile(percentile=20), logistic), 0),
        ("a linear model with weights of zero behind encoders", make_pipeline(OneHotEncoder(handle_unknown="ignore", sparse_output=False), sparse), 1.5),
    )


def run(*argv):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"{pathlib.Path(argv[0]).name}: {done.stderr.strip()[-400:]}")
    return done.stdout


def measure(tools, name, model, goal, folder):
    """Whether the goal is met, and both modules say what scikit-learn says."""
    x, new = drawn(4000, 1), drawn(ROWS, 2)
    if "numbers" not in str(model):  # the last one has no numbers
        x, new = x[:, NUMBERS:], new[:, NUMBERS:]
    model.fit(x, classes_of(drawn(4000, 1)))
    coefficients = model.steps[-1][1].coef_
    expected = model.predict_proba(new)
    made = exporting.by_model(model, new)
    path = folder / "model.onnx"
    path.write_bytes(made.model)
    np.save(folder / "rows.npy", new)
    modules, worst = {}, 0.0
    for kind, more in (("narrow", ()), ("whole", ("--disable-pass", "narrow-columns"))):
        modules[kind] = folder / f"{kind}.heddle"
        run(tools / "heddle-compile-default", path, "-o", modules[kind], "--shape", f"rows={ROWS}", *more)
        results = folder / kind
        results.mkdir()
        run(tools / "heddle", "run", modules[kind], "--input", folder / "rows.npy", "-o", results)
        found = [np.load(file) for file in results.iterdir()]
        (scores,) = [array for array in found if array.dtype.kind == "f"]
        worst = float(np.maximum(worst, np.max(np.abs(scores - expected))))  # NaN stays NaN
    told = run(tools / "heddle", "run", modules["narrow"], "--against", modules["whole"], "--evaluate", "--json")
    narrow, whole = (module["median_ns"] for module in json.loads(told)["modules"])
    zeros = np.mean(coefficients == 0)
    print(f"{name}: {whole / narrow:.2f}x ({whole / 1e3:.0f} us without the pass, {narrow / 1e3:.0f} us with it), scores differ by {worst:.1g},"
          f" {100 * zeros:.0f} % of the weights are zero{f', goal {goal}x' if goal else ''}", flush=True)
    return worst <= TOLERANCE and whole >= goal * narrow


def main():
    tools = pathlib.Path(sys.argv[1]).resolve()
    warnings.simplefilter("ignore")
    met = True
    for name, model, goal in pipelines():
        with tempfile.TemporaryDirectory(prefix="heddle-push-down-") as folder:
            met &= measure(tools, name, model, goal, pathlib.Path(folder))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
