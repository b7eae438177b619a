"""The models of `bench/run.sh classical`, made the same way everywhere: python -m bench.classical.make NAME FOLDER

Writes into FOLDER, unless it is there already, made by the same code and the same versions of the libraries:
  table*.npy         the rows that are predicted: f32 [TABLE_ROWS, FEATURES]
  NAME.*             the model as its library saves it; NAME.onnx
  NAME.npy           what the library predicts for the table: f32 or f64 [TABLE_ROWS, outputs]
  NAME.about.json    what follows, which is also printed
Prints {"made_by": .., "file": what Heddle reads, "own": what its library reads, "table", "onnx": null or why there is no ONNX file,
"leaves": of all trees, "depth": of the deepest, null if there are no trees}.
"""

import dataclasses
import glob
import hashlib
import importlib.metadata
import json
import os
import sys

from bench.classical import forests, scikit

CALLS, MODELS = forests.CALLS, forests.MODELS + scikit.MODELS
BY_NAME = {spec.name: spec for spec in CALLS + MODELS}


def made_by(spec):
    """What the model depends on."""
    maker = forests if isinstance(spec, forests.Spec) else scikit
    digest = hashlib.sha256()
    for source in (forests.__file__, maker.__file__):
        with open(source, "rb") as file:
            digest.update(file.read())
    versions = {name: importlib.metadata.version(name) for name in maker.PACKAGES}
    return {"spec": dataclasses.asdict(spec), "versions": versions, "code": digest.hexdigest()}


def make(spec, folder, wanted):
    """Makes what is missing or was made otherwise than `wanted` says. Returns what the header of this file says."""
    path = os.path.join(folder, f"{spec.name}.about.json")
    if os.path.exists(path):
        with open(path) as file:
            about = json.load(file)
        if about.get("made_by") == wanted:
            return about
        os.remove(path)  # what is made now may stay unfinished
    os.makedirs(folder, exist_ok=True)
    for compiled in glob.glob(os.path.join(glob.escape(folder), f"{spec.name}.*.*")):
        os.remove(compiled)  # by peers, from the file that is replaced now
    write = forests.write if isinstance(spec, forests.Spec) else scikit.write
    about = {"made_by": wanted, **write(spec, folder)}
    with open(path, "w") as file:
        json.dump(about, file)
    return about


if __name__ == "__main__":
    wanted = BY_NAME[sys.argv[1]]
    print(json.dumps(make(wanted, sys.argv[2], made_by(wanted))))
