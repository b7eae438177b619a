"""Models and pipelines of scikit-learn as ONNX files."""

import numpy as np

from exporting import by_model
from made import ROWS, Cases, classes_of, shipped, task

cases = Cases()


def scaled(model):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)


def fitted(model, name, options=None):
    x, y, new = shipped(name)
    return by_model(model.fit(x, y), new, options=options)


def named(labels, names):
    return np.array(names)[labels]


def with_holes(x, seed):
    """The same, but a tenth of it is missing."""
    x = x.copy()
    x[np.random.default_rng(seed).random(x.shape) < 0.1] = np.nan
    return x


def with_float_scores(made):
    """The same, but the file says that scores are f32. For rows of doubles, skl2onnx may say that trees give doubles, which they do not."""
    import onnx

    model = onnx.load_model_from_string(made.model)
    for output in model.graph.output:
        if output.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE:
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    made.model = model.SerializeToString()
    return made


def imputed_tree():
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.tree import DecisionTreeClassifier

    return make_pipeline(SimpleImputer(), DecisionTreeClassifier(random_state=1))


# ---- Classifiers on what scikit-learn ships ----


def classifiers():
    from sklearn import discriminant_analysis, ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    logistic = lambda: linear_model.LogisticRegression(max_iter=500)
    return {
        "LogisticRegression": lambda: scaled(logistic()),
        "SGDClassifier": lambda: scaled(linear_model.SGDClassifier(loss="log_loss", random_state=1)),
        "RidgeClassifier": lambda: scaled(linear_model.RidgeClassifier()),
        "DecisionTree": lambda: tree.DecisionTreeClassifier(random_state=1),
        "RandomForest": lambda: ensemble.RandomForestClassifier(20, random_state=1),
        "ExtraTrees": lambda: ensemble.ExtraTreesClassifier(20, random_state=1),
        "GradientBoosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=15, random_state=1),
        "HistGradientBoosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=15, random_state=1),
        "AdaBoost": lambda: ensemble.AdaBoostClassifier(n_estimators=5, random_state=1),
        "Bagging": lambda: ensemble.BaggingClassifier(n_estimators=5, random_state=1),
        "KNeighbors": lambda: scaled(neighbors.KNeighborsClassifier()),
        "GaussianNB": lambda: scaled(naive_bayes.GaussianNB()),
        "BernoulliNB": lambda: scaled(naive_bayes.BernoulliNB()),
        "MultinomialNB": lambda: make_pipeline(MinMaxScaler(clip=True), naive_bayes.MultinomialNB()),
        "ComplementNB": lambda: make_pipeline(MinMaxScaler(clip=True), naive_bayes.ComplementNB()),
        "LinearDiscriminantAnalysis": lambda: scaled(discriminant_analysis.LinearDiscriminantAnalysis()),
        "MLP": lambda: scaled(neural_network.MLPClassifier((16,), max_iter=150, random_state=1)),
        "Voting": lambda: ensemble.VotingClassifier([("a", scaled(logistic())), ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=1))],
                                                    voting="soft", flatten_transform=False),
        "Stacking": lambda: ensemble.StackingClassifier([("a", scaled(logistic())), ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=1))], cv=2),
        "OneVsRest": lambda: OneVsRestClassifier(scaled(logistic())),
        "OneVsOne": lambda: OneVsOneClassifier(scaled(logistic())),
        "Calibrated": lambda: CalibratedClassifierCV(scaled(logistic()), cv=2),
        "LinearSVC": lambda: scaled(svm.LinearSVC(random_state=1)),
    } | {
        f"{model.__name__} {kernel}{', probabilities' if options.get('probability') else ''}":
            lambda model=model, kernel=kernel, options=options: scaled(model(kernel=kernel, **options))
        for model, options in ((svm.SVC, {}), (svm.SVC, {"probability": True, "random_state": 1}), (svm.NuSVC, {"nu": 0.2}))
        for kernel in ("linear", "poly", "rbf", "sigmoid")
    }


SHIPPED = ("breast_cancer", "iris", "wine", "digits")
QUICK = (("LogisticRegression", "digits"), ("RandomForest", "breast_cancer"), ("SVC rbf", "wine"))
# What the converter gets wrong; ONNX Runtime reads the files as we do.
EXPORTER = {"Calibrated": "skl2onnx does not write what a calibrated pipeline predicts",
            "OneVsOne": "skl2onnx adds up the scores of pairs in another way"}
EXPORTER_OF = {("ExtraTrees", "breast_cancer"): "the file's twentieths of ten trees do not add up to one half",
               ("LinearDiscriminantAnalysis", "breast_cancer"): "the file's single precision does not suffice for these coefficients"}
# What skl2onnx does not write: an option that it takes in other cases is unknown to it.
NOT_WRITTEN = {("OneVsOne", "breast_cancer"), *(("LinearSVC", name) for name in SHIPPED[1:])}
for kind in classifiers():
    for name in SHIPPED:
        if (kind, name) in NOT_WRITTEN:
            continue

        @cases.add(f"{kind}, {name}", quick=(kind, name) in QUICK,
                   exporter=EXPORTER_OF.get((kind, name), EXPORTER.get(kind, "")))
        def _(kind=kind, name=name):
            return fitted(classifiers()[kind](), name)


for name in ("breast_cancer", "iris"):
    for kind in ("DecisionTree", "RandomForest", "GradientBoosting", "HistGradientBoosting"):

        @cases.add(f"{kind}, {name}, rows are doubles")
        def _(kind=kind, name=name):
            x, y, new = shipped(name)
            return with_float_scores(by_model(classifiers()[kind]().fit(x.astype(np.float64), y), new.astype(np.float64)))

    for kind in ("LogisticRegression", "RandomForest", "KNeighbors", "SVC rbf", "Voting"):
        # The file has scores as a map from a label to a score, which is a matrix to us.
        for zipmap in (False, True):

            @cases.add(f"{kind}, {name}, labels are texts{', scores are a map' if zipmap else ''}")
            def _(kind=kind, name=name, zipmap=zipmap):
                x, y, new = shipped(name)
                model = classifiers()[kind]().fit(x, named(y, [f"class {i}" for i in range(3)]))
                return by_model(model, new, options={"zipmap": zipmap})

    for kind in ("HistGradientBoosting", "Imputer before DecisionTree"):

        @cases.add(f"{kind}, {name}, missing values")
        def _(kind=kind, name=name):
            x, y, new = shipped(name)
            model = classifiers()[kind]() if kind in classifiers() else imputed_tree()
            return by_model(model.fit(with_holes(x, 2), y), with_holes(new, 3))


@cases.add("RandomForest, wine, labels are texts, rows are doubles")
def _():
    x, y, new = shipped("wine")
    model = classifiers()["RandomForest"]().fit(x.astype(np.float64), named(y, ["barolo", "grignolino", "barbera"]))
    return by_model(model, new.astype(np.float64))


@cases.add("HistGradientBoosting, missing values")
def _():
    data = task(missing=0.2)
    return by_model(classifiers()["HistGradientBoosting"]().fit(data.x, data.binary), data.new)


# ---- Regressors ----


def regressors():
    from sklearn import cross_decomposition, ensemble, gaussian_process, linear_model, neighbors, neural_network, svm, tree

    kernel = gaussian_process.kernels.RBF(2.0)
    return {
        "LinearRegression": linear_model.LinearRegression,
        "Ridge": linear_model.Ridge,
        "Lasso": linear_model.Lasso,
        "ElasticNet": lambda: linear_model.ElasticNet(alpha=0.01),
        "TweedieRegressor": lambda: scaled(linear_model.TweedieRegressor(power=1.5, max_iter=1000)),
        "PoissonRegressor": lambda: scaled(linear_model.PoissonRegressor(max_iter=1000)),
        "GammaRegressor": lambda: scaled(linear_model.GammaRegressor(max_iter=1000)),
        "PLSRegression": lambda: cross_decomposition.PLSRegression(3),
        "DecisionTree": lambda: tree.DecisionTreeRegressor(random_state=1),
        "RandomForest": lambda: ensemble.RandomForestRegressor(20, random_state=1),
        "ExtraTrees": lambda: ensemble.ExtraTreesRegressor(20, random_state=1),
        "GradientBoosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=20, random_state=1),
        "HistGradientBoosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=20, random_state=1),
        "KNeighbors": lambda: scaled(neighbors.KNeighborsRegressor()),
        "MLP": lambda: scaled(neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, random_state=1)),
        "GaussianProcess": lambda: scaled(gaussian_process.GaussianProcessRegressor(kernel, optimizer=None, alpha=1.0, normalize_y=True)),
        "SVR rbf": lambda: scaled(svm.SVR(C=10.0)),
        "SVR linear": lambda: scaled(svm.SVR(kernel="linear")),
        "SVR poly": lambda: scaled(svm.SVR(kernel="poly")),
        "SVR sigmoid": lambda: scaled(svm.SVR(kernel="sigmoid")),
        "Voting": lambda: ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3, random_state=1))]),
    }


@cases.add("SVC rbf, probabilities of 12 classes")
def _():
    data = task()
    model = classifiers()["SVC rbf, probabilities"]()
    return by_model(model.fit(data.x, classes_of(data.y, 12)), data.new)


for metric in ("manhattan", "euclidean"):

    # The file has a loop over the 1500 rows.
    @cases.add(f"KNeighborsRegressor, {metric}, 1500 rows", quick=metric == "euclidean")
    def _(metric=metric):
        from sklearn.neighbors import KNeighborsRegressor

        data = task(count=1500)
        return by_model(scaled(KNeighborsRegressor(7, metric=metric)).fit(data.x, data.y), data.new)


for kind in regressors():

    @cases.add(f"{kind}, diabetes", quick=kind == "GaussianProcess")
    def _(kind=kind):
        return fitted(regressors()[kind](), "diabetes")


# ---- Nearest neighbours and Gaussian processes of other kinds ----


@cases.add("KNeighborsClassifier, by distance, iris", exporter="skl2onnx gives a neighbour at the same place a weight of 1e6, not all of the weight")
def _():
    from sklearn.neighbors import KNeighborsClassifier

    return fitted(scaled(KNeighborsClassifier(weights="distance")), "iris")


for options in ({}, {"optim": "cdist"}):

    @cases.add(f"KNeighborsRegressor, two targets{', operator CDist' if options else ''}",
               exporter="skl2onnx takes the targets of the neighbours in another order")
    def _(options=options):
        from sklearn.neighbors import KNeighborsRegressor

        data = task()
        model = KNeighborsRegressor(5).fit(data.x, np.stack([data.y, -2 * data.y], 1))
        return by_model(model, data.new, options=dict(options))


def kernels():
    from sklearn.gaussian_process import kernels

    return {
        "constant and RBF": kernels.ConstantKernel(2.0) * kernels.RBF([1.0 + k / 8 for k in range(8)]),
        "Matern": kernels.Matern(2.0, nu=1.5),
        "RationalQuadratic and white": kernels.RationalQuadratic(1.5, 0.7) + kernels.WhiteKernel(0.5),
        "DotProduct": kernels.DotProduct(1.5),
    }


for kernel in kernels():

    # The sums of 300 products in single precision, of weights that cancel.
    @cases.add(f"GaussianProcessRegressor, {kernel}", tolerance=1e-4)
    def _(kernel=kernel):
        from sklearn.gaussian_process import GaussianProcessRegressor

        data = task(count=300)
        model = GaussianProcessRegressor(kernels()[kernel], optimizer=None, alpha=1.0, normalize_y=True)
        return by_model(model.fit(data.x, data.y), data.new)


for kernel in ("constant and RBF", "Matern"):

    # skl2onnx writes two classes only. In single precision, a variance that is the difference of two near numbers is not exact.
    @cases.add(f"GaussianProcessClassifier, {kernel}", tolerance=1e-3, quick=kernel == "Matern")
    def _(kernel=kernel):
        from sklearn.gaussian_process import GaussianProcessClassifier

        data = task(count=200)
        return by_model(GaussianProcessClassifier(kernels()[kernel], optimizer=None).fit(data.x, data.binary), data.new)


@cases.add("AdaBoostRegressor, diabetes")
def _():
    from sklearn.ensemble import AdaBoostRegressor

    return fitted(AdaBoostRegressor(n_estimators=7, random_state=1), "diabetes")


for kind in ("LinearRegression", "DecisionTree", "RandomForest"):

    @cases.add(f"{kind}, two targets")
    def _(kind=kind):
        data = task()
        return by_model(regressors()[kind]().fit(data.x, np.stack([data.y, -2 * data.y], 1)), data.new)


for kind in ("DecisionTree", "GradientBoosting", "HistGradientBoosting"):

    @cases.add(f"{kind}, diabetes, rows are doubles")
    def _(kind=kind):
        x, y, new = shipped("diabetes")
        return with_float_scores(by_model(regressors()[kind]().fit(x.astype(np.float64), y), new.astype(np.float64)))


# ---- What finds groups and outliers ----


# The file has the distance as the root of a difference of large numbers in single precision.
@cases.add("KMeans, iris", tolerance=1e-4)
def _():
    from sklearn.cluster import KMeans

    x, _, new = shipped("iris")
    model = KMeans(4, n_init=1, random_state=1).fit(x)
    made = by_model(model, new, scores=model.transform(new))
    made.labels = model.predict(new)
    return made


@cases.add("IsolationForest, breast_cancer")
def _():
    from sklearn.ensemble import IsolationForest

    x, _, new = shipped("breast_cancer")
    model = IsolationForest(n_estimators=10, random_state=1).fit(x)
    made = by_model(model, new, scores=model.decision_function(new))
    made.labels = model.predict(new)
    return made


@cases.add("OneClassSVM, diabetes")
def _():
    from sklearn.svm import OneClassSVM

    x, _, new = shipped("diabetes")
    model = scaled(OneClassSVM()).fit(x)
    made = by_model(model, new, scores=model.decision_function(new))
    made.labels = model.predict(new)
    return made


# ---- Pipelines: what comes before a model ----


def steps():
    from sklearn import decomposition, feature_selection, impute, preprocessing

    return {
        "PCA": lambda: (preprocessing.StandardScaler(), decomposition.PCA(5)),
        "TruncatedSVD": lambda: (preprocessing.StandardScaler(), decomposition.TruncatedSVD(5, random_state=1)),
        "IncrementalPCA": lambda: (preprocessing.StandardScaler(), decomposition.IncrementalPCA(5)),
        "KernelPCA": lambda: (preprocessing.StandardScaler(), decomposition.KernelPCA(5, kernel="rbf", gamma=0.05)),
        "KBins": lambda: (preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),),
        "Polynomial": lambda: (preprocessing.StandardScaler(), preprocessing.PolynomialFeatures(2)),
        "PowerTransformer": lambda: (preprocessing.PowerTransformer(),),
        "RobustScaler": lambda: (preprocessing.RobustScaler(),),
        "MaxAbsScaler": lambda: (preprocessing.MaxAbsScaler(),),
        "Normalizer": lambda: (preprocessing.Normalizer("l1"), preprocessing.StandardScaler()),
        "Normalizer of squares": lambda: (preprocessing.Normalizer("l2"),),
        "Normalizer of the greatest": lambda: (preprocessing.Normalizer("max"),),
        "Binarizer": lambda: (preprocessing.StandardScaler(), preprocessing.Binarizer(threshold=0.25)),
        "SelectKBest": lambda: (preprocessing.StandardScaler(), feature_selection.SelectKBest(k=5)),
        "VarianceThreshold": lambda: (preprocessing.MinMaxScaler(), feature_selection.VarianceThreshold(0.02)),
        "Imputer": lambda: (impute.SimpleImputer(strategy="median"), preprocessing.StandardScaler()),
    }


def before_logistic(kind):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(*steps()[kind](), LogisticRegression(max_iter=500))


STEPS_OF_ALL = ("PCA", "KBins", "Binarizer", "Normalizer", "Normalizer of squares", "Normalizer of the greatest")
for kind in [kind for kind in steps() if kind != "Imputer"]:
    # Squares of digits' pixels are 2144 columns, which takes minutes to train.
    for name in SHIPPED if kind in STEPS_OF_ALL else ("breast_cancer", "iris", "wine") if kind == "Polynomial" else ("wine",):

        if (kind, name) == ("PCA", "iris"):
            continue  # it has four features, and five components are asked for

        @cases.add(f"{kind} before LogisticRegression, {name}", quick=(kind, name) == ("PCA", "wine"))
        def _(kind=kind, name=name):
            return fitted(before_logistic(kind), name)


@cases.add("SelectKBest before RandomForest, breast_cancer")
def _():
    from sklearn.pipeline import make_pipeline

    return fitted(make_pipeline(*steps()["SelectKBest"](), classifiers()["RandomForest"]()), "breast_cancer")


@cases.add("Imputer before LogisticRegression")
def _():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    data = task(missing=0.2)
    return by_model(make_pipeline(*steps()["Imputer"](), LogisticRegression()).fit(data.x, data.many), data.new)


@cases.add("GaussianMixture, iris", tolerance=1e-4)
def _():
    from sklearn.mixture import GaussianMixture

    x, _, new = shipped("iris")
    model = GaussianMixture(3, random_state=1).fit(x)
    made = by_model(model, new, scores=model.predict_proba(new))
    made.labels = model.predict(new)
    return made


@cases.add("FeatureUnion of PCA and SelectKBest before LogisticRegression, breast_cancer")
def _():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    x, y, new = shipped("breast_cancer")
    union = make_union(*(make_pipeline(*steps()[kind]()) for kind in ("PCA", "SelectKBest")))
    return by_model(make_pipeline(union, LogisticRegression(max_iter=500)).fit(x, y), new)


# ---- Tables with texts and missing numbers ----

COLORS = ["red", "green", "blue", "orange", "dark red, nearly black"]


def mixed(seed, count):
    """Two numbers, some of them missing, and two texts: an object array, as the libraries take it."""
    rng = np.random.default_rng(seed)
    rows = np.empty((count, 4), dtype=object)
    numbers = (np.round(rng.standard_normal((count, 2)) * 64) / 64).astype(np.float32)
    numbers[rng.random(numbers.shape) < 0.1] = np.nan
    rows[:, 0], rows[:, 1] = numbers[:, 0], numbers[:, 1]
    rows[:, 2] = np.array(COLORS, dtype=object)[rng.integers(0, len(COLORS), count)]
    rows[:, 3] = np.array(["S", "M", "L"], dtype=object)[rng.integers(0, 3, count)]
    return rows


def mixed_target(rows):
    known = np.nan_to_num(rows[:, :2].astype(np.float64), nan=0.5)
    return (known[:, 0] + known[:, 1] ** 2 + (rows[:, 2] == "red") - (rows[:, 3] == "L") > 0.7).astype(int)


def as_inputs(rows):
    numbers = rows[:, :2].astype(np.float32)
    return {"age": numbers[:, :1], "income": numbers[:, 1:], "color": rows[:, 2:3], "size": rows[:, 3:]}


def by_columns(model, encoder, target=mixed_target):
    """A pipeline of a table of numbers and texts, whose columns are inputs of their own."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    numbers = make_pipeline(*steps()["Imputer"]())
    columns = ColumnTransformer([("numbers", numbers, [0, 1]), ("texts", encoder, [2, 3])])
    x, new = mixed(1, 500), mixed(2, ROWS)
    new[::7, 2] = "no colour of training"
    return by_model(make_pipeline(columns, model).fit(x, target(x)), new, as_inputs(new), csv=True)


def one_hot():
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


@cases.add("a table with texts, OneHotEncoder, LogisticRegression", quick=True)
def _():
    from sklearn.linear_model import LogisticRegression

    return by_columns(LogisticRegression(), one_hot(), lambda x: named(mixed_target(x), ["no", "yes, gladly"]))


@cases.add("a table with texts, OrdinalEncoder, LogisticRegression")
def _():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OrdinalEncoder

    return by_columns(LogisticRegression(), OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1))


# A score adds hundreds of products in single precision, where the library has double.
@cases.add("a table with texts, OneHotEncoder, SVC", tolerance=1e-4)
def _():
    from sklearn.svm import SVC

    return by_columns(SVC(), one_hot())


def categories():
    """i64 [300, 4] and [ROWS, 4], each from 0 to 5, and what to learn of the first ones."""
    rng = np.random.default_rng(3)
    x, new = rng.integers(0, 6, (300, 4)), rng.integers(0, 6, (ROWS, 4))
    return x, (x[:, 0] + x[:, 1] > 5).astype(int), new


def words():
    """The same as texts. One of them is empty, and some new ones are no category."""
    x, y, new = categories()
    names = np.array(["red", "green", "blue", "orange", "red wine", ""], dtype=object)
    new = names[new]
    new[::7, 1] = "greenish"
    return names[x], y, new


def encoders(texts):
    """Encoders of four columns. Those of texts know what to do with what is no category."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    number = lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1) if texts else OrdinalEncoder()
    other = ("number", number(), [3]) if texts else ("scaled", StandardScaler(), [1, 3])
    return {
        "OneHotEncoder": one_hot(),
        "OrdinalEncoder": number(),
        "OneHotEncoder and another for other columns": ColumnTransformer([("hot", one_hot(), [0, 1] if texts else [0, 2]), other]),
    }


for kind in ("numbers", "texts"):
    for encoder in ("OneHotEncoder", "OrdinalEncoder", "OneHotEncoder and another for other columns"):
        for model in ("LogisticRegression", "DecisionTree"):

            @cases.add(f"{encoder} of {kind}, {model}")
            def _(kind=kind, encoder=encoder, model=model):
                from sklearn.linear_model import LogisticRegression
                from sklearn.pipeline import make_pipeline
                from sklearn.tree import DecisionTreeClassifier

                x, y, new = words() if kind == "texts" else categories()
                last = LogisticRegression() if model == "LogisticRegression" else DecisionTreeClassifier(random_state=1)
                return by_model(make_pipeline(encoders(kind == "texts")[encoder], last).fit(x, y), new, csv=kind == "texts")


@cases.add("DictVectorizer, LogisticRegression", quick=True)
def _():
    from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(7)
    maps = [{f"word {k}": float(rng.integers(1, 5)) for k in rng.permutation(12)[:4]} for _ in range(300 + ROWS)]
    y = np.array([(m.get("word 1", 0) + m.get("word 5", 0) > 2) for m in maps[:300]]).astype(int)
    model = make_pipeline(DictVectorizer(sparse=False), LogisticRegression()).fit(maps[:300], y)
    new = maps[300:]
    # A column for each key, in the order of the vocabulary.
    return by_model(model, new, {"X": model.steps[0][1].transform(new).astype(np.float32)},
                    types=[("X", DictionaryType(StringTensorType([1]), FloatTensorType([1])))])


@cases.add("a bag of words before LogisticRegression", refused="StringNormalizer")
def _():
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = np.array([f"{a} {b}" for a in COLORS for b in ("fish", "bird", "dog")], dtype=object)
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, np.arange(len(texts)) % 2)
    return by_model(model, texts, {"text": texts.reshape(-1, 1)}, csv=True)
