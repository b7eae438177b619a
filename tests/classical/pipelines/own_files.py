"""Models in the files of XGBoost and LightGBM themselves, with most of their objectives."""

import os
import tempfile

import numpy as np

from made import Cases, Made, shipped, task

cases = Cases()
ROUNDS = 12


def file_of(booster, suffix):
    """What the library's save_model writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"model{suffix}")
        booster.save_model(path)
        with open(path, "rb") as file:
            return file.read()


# ---- XGBoost ----


def train_xgboost(data, target, objective, rounds=ROUNDS, types=None, matrix=None, **options):
    import xgboost

    options = {"objective": objective, "max_depth": 4, "eta": 0.3, "seed": 1, "nthread": 1, "verbosity": 0} | options
    if matrix is None:
        matrix = xgboost.DMatrix(data.x, target, feature_types=types, enable_categorical=types is not None)
    return xgboost.train(options, matrix, rounds)


def by_xgboost(booster, new, suffix, labels=False, types=None, scores=True, **how):
    """`labels`: the file is of a classifier, whose label is the class with the highest score."""
    import xgboost

    found = booster.predict(xgboost.DMatrix(new, feature_types=types, enable_categorical=types is not None), **how)
    label = None
    if labels:
        label = found.argmax(1) if found.ndim == 2 else (found > 0.5).astype(int)
    return Made(file_of(booster, suffix), suffix, {"x": new}, label, found if scores else None)


REGRESSION = {
    "reg:squarederror": "y", "reg:pseudohubererror": "y", "reg:absoluteerror": "y", "reg:squaredlogerror": "positive",
    "count:poisson": "counts", "reg:gamma": "positive", "reg:tweedie": "positive", "reg:logistic": "binary",
}
for number, (objective, target) in enumerate(REGRESSION.items()):
    suffix = (".json", ".ubj")[number % 2]

    @cases.add(f"XGBoost {objective}, {suffix}", quick=objective == "count:poisson")
    def _(objective=objective, target=target, suffix=suffix):
        data = task(missing=0.1)
        return by_xgboost(train_xgboost(data, getattr(data, target), objective), data.new, suffix)


@cases.add("XGBoost reg:quantileerror, three levels, .json")
def _():
    data = task()
    return by_xgboost(train_xgboost(data, data.y, "reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9]), data.new, ".json")


for objective in ("rank:ndcg", "rank:pairwise", "rank:map"):

    @cases.add(f"XGBoost {objective}, .ubj")
    def _(objective=objective):
        import xgboost

        data = task()
        matrix = xgboost.DMatrix(data.x, data.binary if objective == "rank:map" else data.many)
        matrix.set_group(data.groups)
        return by_xgboost(train_xgboost(data, None, objective, matrix=matrix), data.new, ".ubj")


@cases.add("XGBoost survival:cox, .json")
def _():
    data = task()
    target = np.where(np.arange(len(data.x)) % 3 == 0, -data.positive, data.positive)  # negative: still alive then
    return by_xgboost(train_xgboost(data, target, "survival:cox"), data.new, ".json")


@cases.add("XGBoost survival:aft, .json")
def _():
    import xgboost

    data = task()
    matrix = xgboost.DMatrix(data.x)
    matrix.set_float_info("label_lower_bound", data.positive)
    matrix.set_float_info("label_upper_bound", np.where(np.arange(len(data.x)) % 3 == 0, np.inf, data.positive))
    return by_xgboost(train_xgboost(data, None, "survival:aft", matrix=matrix), data.new, ".json")


@cases.add("XGBoost binary:logistic, missing values, .ubj", quick=True)
def _():
    data = task(missing=0.2)
    return by_xgboost(train_xgboost(data, data.binary, "binary:logistic", scale_pos_weight=2.0), data.new, ".ubj", labels=True)


@cases.add("XGBoost binary:logitraw, .json")
def _():
    data = task()
    made = by_xgboost(train_xgboost(data, data.binary, "binary:logitraw"), data.new, ".json")
    made.labels = (made.scores > 0.5).astype(int)  # as XGBClassifier.predict compares what Booster.predict gives
    return made


@cases.add("XGBoost binary:hinge, .json")
def _():
    data = task()
    return by_xgboost(train_xgboost(data, data.binary, "binary:hinge"), data.new, ".json", labels=True)


@cases.add("XGBoost multi:softprob, .ubj")
def _():
    data = task(missing=0.1)
    return by_xgboost(train_xgboost(data, data.many, "multi:softprob", num_class=4), data.new, ".ubj", labels=True)


@cases.add("XGBoost multi:softmax, whose own prediction is the label, .json")
def _():
    data = task()
    made = by_xgboost(train_xgboost(data, data.many, "multi:softmax", num_class=4), data.new, ".json")
    made.labels, made.scores = made.scores.astype(int), None
    return made


@cases.add("XGBoost dart, .ubj")
def _():
    data = task(missing=0.1)
    booster = train_xgboost(data, data.y, "reg:squarederror", booster="dart", rate_drop=0.3, one_drop=1)
    return by_xgboost(booster, data.new, ".ubj")


@cases.add("XGBoost random forest, .json")
def _():
    data = task()
    booster = train_xgboost(data, data.binary, "binary:logistic", rounds=2, num_parallel_tree=10, subsample=0.7, colsample_bynode=0.5)
    return by_xgboost(booster, data.new, ".json", labels=True)


@cases.add("XGBoost categorical splits, .json", quick=True)
def _():
    data, types = task(missing=0.1, categories=3), ["c"] * 3 + ["float"] * 5
    booster = train_xgboost(data, data.binary, "binary:logistic", types=types, tree_method="hist", max_cat_to_onehot=1)
    return by_xgboost(booster, data.new, ".json", labels=True, types=types)


@cases.add("XGBoost categorical splits one against all others, .ubj")
def _():
    data, types = task(categories=3), ["c"] * 3 + ["float"] * 5
    booster = train_xgboost(data, data.many, "multi:softprob", num_class=4, types=types, tree_method="hist", max_cat_to_onehot=100)
    return by_xgboost(booster, data.new, ".ubj", labels=True, types=types)


for strategy, suffix in (("one_output_per_tree", ".json"), ("multi_output_tree", ".ubj")):

    @cases.add(f"XGBoost two targets, {strategy}, {suffix}")
    def _(strategy=strategy, suffix=suffix):
        data = task()
        target = np.stack([data.y, data.y**2], 1)
        return by_xgboost(train_xgboost(data, target, "reg:squarederror", multi_strategy=strategy), data.new, suffix)


@cases.add("XGBoost after early stopping, .json")
def _():
    import xgboost

    data = task()
    model = xgboost.XGBRegressor(n_estimators=200, max_depth=5, learning_rate=0.5, early_stopping_rounds=3, n_jobs=1)
    model.fit(data.x[:300], data.y[:300], eval_set=[(data.x[300:], data.y[300:])], verbose=False)
    return Made(file_of(model, ".json"), ".json", {"x": data.new}, None, model.predict(data.new))


@cases.add("XGBoost gblinear, .json", refused="booster gblinear is a linear model without trees: export its coefficients")
def _():
    data = task()
    return by_xgboost(train_xgboost(data, data.y, "reg:squarederror", booster="gblinear"), data.new, ".json")


for name in ("breast_cancer", "digits", "wine"):

    @cases.add(f"XGBClassifier, {name}, .ubj")
    def _(name=name):
        import xgboost

        x, y, new = shipped(name)
        model = xgboost.XGBClassifier(n_estimators=10, max_depth=4, n_jobs=1).fit(x, y)
        scores = model.predict_proba(new)
        return Made(file_of(model, ".ubj"), ".ubj", {"x": new}, model.predict(new), scores[:, 1] if scores.shape[1] == 2 else scores)


@cases.add("XGBRegressor, diabetes, .json")
def _():
    import xgboost

    x, y, new = shipped("diabetes")
    model = xgboost.XGBRegressor(n_estimators=30, max_depth=6, n_jobs=1).fit(x, y)
    return Made(file_of(model, ".json"), ".json", {"x": new}, None, model.predict(new))


# ---- LightGBM ----


def train_lightgbm(data, target, objective, rounds=ROUNDS, group=None, categorical=(), **options):
    import lightgbm

    options = {"objective": objective, "num_leaves": 15, "learning_rate": 0.2, "min_data_in_leaf": 5, "seed": 1, "num_threads": 1,
               "deterministic": True, "verbosity": -1} | options
    rows = lightgbm.Dataset(data.x, target, group=group, categorical_feature=list(categorical))
    return lightgbm.train(options, rows, rounds)


def by_lightgbm(booster, new, labels=False):
    found = booster.predict(new, num_threads=1)
    label = None
    if labels:
        label = found.argmax(1) if found.ndim == 2 else (found > 0.5).astype(int)
    return Made(file_of(booster, ".txt"), ".txt", {"x": new}, label, found)


REGRESSION = {
    "regression": "y", "regression_l1": "y", "huber": "y", "fair": "y", "quantile": "y", "mape": "positive", "poisson": "counts",
    "gamma": "positive", "tweedie": "positive", "cross_entropy": "binary", "cross_entropy_lambda": "binary",
}
for objective, target in REGRESSION.items():

    @cases.add(f"LightGBM {objective}", quick=objective == "tweedie")
    def _(objective=objective, target=target):
        data = task(missing=0.1)
        return by_lightgbm(train_lightgbm(data, getattr(data, target), objective), data.new)


for objective in ("lambdarank", "rank_xendcg"):

    @cases.add(f"LightGBM {objective}")
    def _(objective=objective):
        data = task()
        return by_lightgbm(train_lightgbm(data, data.many, objective, group=data.groups), data.new)


for objective in ("multiclass", "multiclassova"):

    @cases.add(f"LightGBM {objective}", quick=objective == "multiclassova")
    def _(objective=objective):
        data = task(missing=0.1)
        return by_lightgbm(train_lightgbm(data, data.many, objective, num_class=4), data.new, labels=True)


@cases.add("LightGBM binary with a steep sigmoid")
def _():
    data = task(missing=0.1)
    return by_lightgbm(train_lightgbm(data, data.binary, "binary", sigmoid=2.5, is_unbalance=True), data.new, labels=True)


@cases.add("LightGBM of square roots")
def _():
    data = task()
    return by_lightgbm(train_lightgbm(data, 10 * data.y, "regression", reg_sqrt=True), data.new)


for boosting in ("dart", "rf"):

    @cases.add(f"LightGBM boosting={boosting}")
    def _(boosting=boosting):
        data = task()
        options = {"bagging_freq": 1, "bagging_fraction": 0.6, "feature_fraction": 0.6} if boosting == "rf" else {}
        return by_lightgbm(train_lightgbm(data, data.y, "regression", boosting=boosting, **options), data.new)


@cases.add("LightGBM goss and extra trees")
def _():
    data = task()
    booster = train_lightgbm(data, data.binary, "binary", data_sample_strategy="goss", extra_trees=True)
    return by_lightgbm(booster, data.new, labels=True)


@cases.add("LightGBM categorical splits, missing values", quick=True)
def _():
    data = task(missing=0.1, categories=3)
    booster = train_lightgbm(data, data.binary, "binary", categorical=range(3), min_data_per_group=5, cat_smooth=1.0, max_cat_to_onehot=1)
    return by_lightgbm(booster, data.new, labels=True)


@cases.add("LightGBM categories that training has not seen, and negative ones")
def _():
    data = task(categories=3)
    booster = train_lightgbm(data, data.y, "regression", categorical=range(3), min_data_per_group=5)
    data.new[::3, 0], data.new[::4, 1], data.new[::5, 2] = 77, -3, np.nan
    return by_lightgbm(booster, data.new)


@cases.add("LightGBM zero as missing")
def _():
    data = task(missing=0.1)
    data.x[::4, 2] = data.x[::5, 1] = data.new[::4, 2] = data.new[::5, 1] = 0
    return by_lightgbm(train_lightgbm(data, data.y, "regression", zero_as_missing=True), data.new)


@cases.add("LightGBM without a place for missing values")
def _():
    data = task(missing=0.1)
    return by_lightgbm(train_lightgbm(data, data.y, "regression", use_missing=False), data.new)


@cases.add("LightGBM with linear leaves", refused="leaves with linear models are not supported: train with linear_tree=false")
def _():
    data = task()
    return by_lightgbm(train_lightgbm(data, data.y, "regression", linear_tree=True), data.new)


for name in ("breast_cancer", "iris", "digits"):

    @cases.add(f"LGBMClassifier, {name}")
    def _(name=name):
        import lightgbm

        x, y, new = shipped(name)
        model = lightgbm.LGBMClassifier(n_estimators=10, num_leaves=15, n_jobs=1, verbosity=-1).fit(x, y)
        return by_lightgbm(model.booster_, new, labels=True)
