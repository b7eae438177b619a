#!/usr/bin/env python3
"""Who may include whom. Anything that is not listed here is forbidden.

Usage: include_direction.py ROOT | --self-test
"""
import pathlib
import re
import sys

# room -> rooms it may include besides itself. The first matching prefix of a file's path names its room.
ALLOWED = {
    "compiler/ir": [],
    "compiler/tensor": ["compiler/ir"],
    "compiler/schedule": ["compiler/ir"],
    "compiler/pass": ["compiler/ir"],
    "compiler/codegen": ["compiler/pass", "compiler/ir", "compiler/runtime/abi.h", "compiler/runtime/gpu_launch.h"],
    "compiler/runtime": [],
    "compiler/graph": ["compiler/tensor", "compiler/ir"],
    "compiler": ["compiler"],  # compile.h and measure.h: the compiler as its users see it
    "cost_model": ["compiler"],
    "tracker": ["proto"],
    "scheduler": ["proto"],
    "worker": ["proto", "compiler", "cost_model"],
    "client": ["proto", "compiler"],
    "proto": [],
}
# Headers that stay behind a few .cc files: (pattern, folders that may include it).
HEAVY = [
    (r"llvm/|lld/", ["compiler/codegen"]),
    (r"xgboost/", ["cost_model"]),
    (r"sqlite3\.h", ["scheduler"]),
    (r"grpcpp/|.*\.grpc\.pb\.h", ["proto", "tracker", "scheduler", "worker", "client"]),
    (r"onnx/", ["compiler/graph"]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)


def room_of(path):
    for room in ALLOWED:
        if path.startswith(room + "/"):
            return room
    return None


def violations(path, text):
    room = room_of(path)
    if room is None:
        return
    for included in INCLUDE.findall(text):
        for pattern, folders in HEAVY:
            if re.match(pattern, included) and not any(path.startswith(f + "/") for f in folders):
                yield f"{path}: includes {included}, which only {', '.join(folders)} may"
        if room_of(included) is None:
            continue
        allowed = ALLOWED[room] + [room]
        if not any(included == a or included.startswith(a + "/") for a in allowed):
            yield f"{path}: includes {included}; {room} may include only {', '.join(allowed)}"


def self_test():
    bad = [
        ("scheduler/a.cc", '#include "compiler/ir/ir.h"'),
        ("compiler/ir/a.cc", '#include "compiler/tensor/expression.h"'),
        ("compiler/runtime/a.h", '#include "compiler/ir/ir.h"'),
        ("worker/a.cc", '#include "scheduler/dispatcher.h"'),
        ("client/a.cc", "#include <llvm/IR/Module.h>"),
    ]
    good = [
        ("worker/a.cc", '#include "cost_model/search.h"'),
        ("compiler/codegen/a.cc", '#include "compiler/runtime/abi.h"'),
        ("tests/a.cc", '#include "scheduler/dispatcher.h"'),
    ]
    for path, text in bad:
        assert list(violations(path, text)), f"missed: {path} {text}"
    for path, text in good:
        assert not list(violations(path, text)), f"false alarm: {path} {text}"


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    root = pathlib.Path(sys.argv[1])
    found = []
    for top in sorted({room.split("/")[0] for room in ALLOWED}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix in (".h", ".cc", ".c"):
                found += violations(str(file.relative_to(root)), file.read_text())
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
