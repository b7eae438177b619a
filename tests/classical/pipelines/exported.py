"""Models of XGBoost and LightGBM as ONNX files, alone and behind steps of scikit-learn."""

import numpy as np

from exporting import by_model
from made import Cases, shipped, task
from scikit import by_columns, one_hot

cases = Cases()


def xgboost_model(kind, **options):
    import xgboost

    return getattr(xgboost, f"XGB{kind}")(**({"n_estimators": 12, "max_depth": 4, "n_jobs": 1, "random_state": 1} | options))


def lightgbm_model(kind, **options):
    import lightgbm

    options = {"n_estimators": 12, "num_leaves": 15, "min_child_samples": 5, "n_jobs": 1, "random_state": 1, "verbosity": -1} | options
    return getattr(lightgbm, f"LGBM{kind}")(**options)


LIBRARIES = {"XGB": xgboost_model, "LGBM": lightgbm_model}
OBJECTIVES = (
    ("XGB", "reg:squarederror", "y"), ("XGB", "count:poisson", "counts"), ("XGB", "reg:gamma", "positive"), ("XGB", "reg:tweedie", "positive"),
    ("LGBM", "regression", "y"), ("LGBM", "huber", "y"), ("LGBM", "quantile", "y"), ("LGBM", "poisson", "counts"), ("LGBM", "tweedie", "positive"),
)
for library, objective, target in OBJECTIVES:

    @cases.add(f"{library}Regressor {objective}, ONNX", quick=objective == "poisson")
    def _(library=library, objective=objective, target=target):
        data = task(missing=0.1 if library == "XGB" else 0)
        return by_model(LIBRARIES[library]("Regressor", objective=objective).fit(data.x, getattr(data, target)), data.new)


for library in LIBRARIES:

    @cases.add(f"{library}Ranker, ONNX")
    def _(library=library):
        data = task()
        return by_model(LIBRARIES[library]("Ranker").fit(data.x, data.many, group=data.groups), data.new)

    for name in ("breast_cancer", "iris", "digits"):

        @cases.add(f"{library}Classifier, {name}, ONNX")
        def _(library=library, name=name):
            x, y, new = shipped(name)
            return by_model(LIBRARIES[library]("Classifier").fit(x, y), new)

    @cases.add(f"{library}Classifier, missing values, ONNX")
    def _(library=library):
        data = task(missing=0.2)
        return by_model(LIBRARIES[library]("Classifier").fit(data.x, data.many), data.new)

    @cases.add(f"{library}Classifier behind encoders of a table with texts, ONNX", quick=library == "XGB")
    def _(library=library):
        return by_columns(LIBRARIES[library]("Classifier"), one_hot())


@cases.add("XGBClassifier, categorical splits, ONNX", quick=True)
def _():
    data = task(categories=3)
    types = ["c"] * 3 + ["float"] * 5
    model = xgboost_model("Classifier", enable_categorical=True, feature_types=types, tree_method="hist", max_cat_to_onehot=1)
    return by_model(model.fit(data.x, data.binary), data.new)


@cases.add("LGBMClassifier, categorical splits, ONNX")
def _():
    data = task(categories=3)
    model = lightgbm_model("Classifier", min_data_per_group=5, cat_smooth=1.0, max_cat_to_onehot=1)
    return by_model(model.fit(data.x, data.binary, categorical_feature=[0, 1, 2]), data.new)


@cases.add("LGBMRegressor of two targets, ONNX")
def _():
    from sklearn.multioutput import MultiOutputRegressor

    data = task()
    model = MultiOutputRegressor(lightgbm_model("Regressor"))
    return by_model(model.fit(data.x, np.stack([data.y, -2 * data.y], 1)), data.new)
