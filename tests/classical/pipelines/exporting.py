"""Models and pipelines as ONNX files, as skl2onnx writes them with onnxmltools' converters for XGBoost and LightGBM."""

import numpy as np

from made import OPSETS, Made


def register_converters():
    """Tells skl2onnx about the models of XGBoost and LightGBM, once."""
    import lightgbm
    import xgboost
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import calculate_linear_classifier_output_shapes, calculate_linear_regressor_output_shapes

    for model, convert in (
        (xgboost.XGBClassifier, convert_xgboost),
        (xgboost.XGBRegressor, convert_xgboost),
        (xgboost.XGBRanker, convert_xgboost),
        (lightgbm.LGBMClassifier, convert_lightgbm),
        (lightgbm.LGBMRegressor, convert_lightgbm),
        (lightgbm.LGBMRanker, convert_lightgbm),
    ):
        classifies = model.__name__.endswith("Classifier")
        shapes = calculate_linear_classifier_output_shapes if classifies else calculate_linear_regressor_output_shapes
        options = {"nocl": [True, False], "zipmap": [True, False, "columns"]} if classifies else {"split": None}
        update_registered_converter(model, f"Heddle{model.__name__}", shapes, convert, options=options)


def last_of(model):
    return last_of(model.steps[-1][1]) if hasattr(model, "steps") else model


def export(model, inputs, options=None, types=None):
    """`inputs`: name: array, each [rows, columns]. The number of rows stays open. `options` of the last step. `types`: of the inputs, where the file
    has no tensors."""
    import plain_attributes  # noqa: F401, for what it changes
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, Int64TensorType, StringTensorType

    if not export.ready:
        register_converters()
        export.ready = True
    kinds = {"f4": FloatTensorType, "f8": DoubleTensorType, "i8": Int64TensorType}
    types = types or [(name, kinds.get(array.dtype.str[1:], StringTensorType)([None, array.shape[1]])) for name, array in inputs.items()]
    options = {id(last_of(model)): options} if options else None
    return to_onnx(model, initial_types=types, options=options, target_opset=OPSETS).SerializeToString()


export.ready = False


def by_model(model, new, inputs=None, options=None, csv=False, scores=None, types=None):
    """What a model says of the rows `new`, and its ONNX file. `inputs`: the same rows as the file takes them, if not as one table.
    `scores`: of the rows, where neither predict_proba nor decision_function nor predict gives them. `types`: as of export."""
    from sklearn.base import is_classifier

    inputs = inputs or {"X": new}
    last, labels, classes = last_of(model), None, None
    options = dict(options or {})
    if is_classifier(last):
        if type(last).__name__ != "LinearSVC":  # whose converter has no such option, and no map
            options.setdefault("zipmap", False)
        labels = model.predict(new)
        if labels.dtype.kind in "OSU":
            classes = [str(name) for name in last.classes_]
            labels = np.searchsorted(last.classes_, labels)
        if scores is None and hasattr(model, "predict_proba"):
            scores = model.predict_proba(new)
        elif scores is None:
            scores = model.decision_function(new)
            if len(last.classes_) == 2:
                options["raw_scores"] = True  # with the sign of decision_function
    elif scores is None:
        scores = model.predict(new) if hasattr(model, "predict") else model.transform(new)
    return Made(export(model, inputs, options, types), ".onnx", inputs, labels, scores, classes, csv)
