#!/usr/bin/env python3
"""Real models of scikit-learn through heddle.tune, beside what scikit-learn itself says.

Usage: scikit_test.py BIN_DIR [unittest arguments], in an environment with the package

scikit-learn and skl2onnx are those of the environment, otherwise of build/bench/venv-classical, which
tests/classical/pipelines/run.sh --install makes. Without them, the tests are skipped.
"""
import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import programs  # takes BIN_DIR from the arguments

if importlib.util.find_spec("skl2onnx") is None:  # before NumPy is imported, of which they bring their own
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sys.path.insert(0, str(programs.BIN.parents[1] / "bench/venv-classical/lib" / version / "site-packages"))

import numpy as np

import heddle

try:
    import skl2onnx
    import sklearn
    from sklearn import datasets
    from sklearn.base import BaseEstimator
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestRegressor
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import LinearSVC
except ImportError as error:
    MISSING = f"{error}; tests/classical/pipelines/run.sh --install gets scikit-learn and skl2onnx"
else:
    MISSING = ""

ROWS = 37  # of a table: no multiple of a block
BLOCKS = (1, 16)


@unittest.skipIf(MISSING, MISSING)
class ScikitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.service = programs.Service(directory.name)
        cls.addClassCleanup(cls.service.stop)

    def tuned(self, model, **options):
        return heddle.tune(model, server=self.service.address, trials=1, batch=1, compare=False, progress=False, shapes={"rows": BLOCKS}, **options)

    def check_classifier(self, model, x, inputs, **options):
        """Labels and probabilities of a classifier, whatever its labels are."""
        module = self.tuned(model, **options)
        outputs = module.run(inputs)
        label = next(spec for spec in module.outputs if spec.name == "label")
        labels = [label.labels[k] for k in outputs["label"]] if label.labels else outputs["label"].tolist()
        self.assertEqual(labels, model.predict(x).tolist())
        np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(x), rtol=1e-5, atol=1e-5)
        return module

    def test_a_scaler_and_boosted_trees_with_text_labels(self):
        data = datasets.load_iris()
        x = data.data.astype(np.float32)
        model = make_pipeline(StandardScaler(), GradientBoostingClassifier(n_estimators=8, random_state=1)).fit(x, data.target_names[data.target])
        module = self.check_classifier(model, x[::4][:ROWS], {"X": x[::4][:ROWS]})
        self.assertEqual(next(spec for spec in module.outputs if spec.name == "label").labels, tuple(data.target_names))
        self.assertTrue(module.any_rows)
        self.assertEqual(module.job.info()["spec"]["name"], "Pipeline")

    def test_a_scaler_and_logistic_regression(self):
        data = datasets.load_breast_cancer()
        x = data.data.astype(np.float32)
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(x, data.target)
        self.check_classifier(model, x[:ROWS], x[:ROWS])

    def test_histogram_gradient_boosting(self):
        data = datasets.load_iris()
        x = data.data.astype(np.float32)
        model = HistGradientBoostingClassifier(max_iter=4, random_state=1).fit(x, data.target)
        self.check_classifier(model, x[:ROWS], x[:ROWS])

    def test_a_classifier_without_probabilities(self):
        data = datasets.load_iris()
        x = data.data.astype(np.float32)
        model = LinearSVC(random_state=1).fit(x, data.target)
        outputs = self.tuned(model).run(x[::4])
        self.assertEqual(outputs["label"].tolist(), model.predict(x[::4]).tolist())

    def test_a_regressor(self):
        data = datasets.load_diabetes()
        x = data.data.astype(np.float32)
        model = RandomForestRegressor(5, max_depth=6, random_state=1).fit(x, data.target)
        module = self.tuned(model)
        found = module.run(x[:ROWS])[module.outputs[0].name]
        np.testing.assert_allclose(found.ravel(), model.predict(x[:ROWS]), rtol=1e-5)

    def test_columns_of_texts_by_example_inputs(self):
        rng = np.random.default_rng(1)
        x = rng.choice(np.array(["red", "green", "blue"], object), (200, 2))
        model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(x, x[:, 0] == x[:, 1])
        module = self.check_classifier(model, x[:ROWS], x[:ROWS], example_inputs=x)
        self.assertTrue(module.inputs[0].is_text)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "there is no pandas")
    def test_a_data_frame(self):
        import pandas

        rng = np.random.default_rng(1)
        frame = pandas.DataFrame({"age": rng.integers(18, 90, 200), "income": rng.normal(50, 20, 200), "city": rng.choice(["Rome", "Oslo", "Bern"], 200)})
        columns = ColumnTransformer([("numbers", StandardScaler(), ["age", "income"]), ("texts", OneHotEncoder(), ["city"])])
        model = make_pipeline(columns, LogisticRegression()).fit(frame, np.where(frame.age + frame.income > 100, "yes", "no"))
        some = frame[:ROWS]
        module = self.check_classifier(model, some, {name: some[[name]] for name in some}, example_inputs=frame)
        self.assertEqual([(spec.name, spec.dtype, spec.is_text) for spec in module.inputs],
                         [("age", "i64", False), ("income", "f32", False), ("city", "u8", True)])
        with self.assertRaisesRegex(heddle.UsageError, "example_inputs"):
            self.tuned(model)

    def test_what_cannot_be_exported_says_so(self):
        class Own(BaseEstimator):
            n_features_in_ = 2

            def predict(self, x):
                return x

        for model, says in ((LogisticRegression(), "not fitted"), (make_pipeline(StandardScaler()), "not fitted"), (Own(), "skl2onnx cannot export")):
            with self.assertRaises(heddle.UsageError) as caught:
                self.tuned(model)
            self.assertIn(says, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    print(f"skipped: {MISSING}" if MISSING else f"scikit-learn {sklearn.__version__}, skl2onnx {skl2onnx.__version__}, NumPy {np.__version__}", flush=True)
    unittest.main()
