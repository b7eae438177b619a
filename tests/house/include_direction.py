#!/usr/bin/env python3
"""Who may include whom. Anything that is not listed here is forbidden.

Usage: include_direction.py ROOT | --self-test
"""
import pathlib
import re
import sys

GRAPH = ["compiler/graph/core", "compiler/tensor", "compiler/ir", "compiler/machine"]
# room -> rooms or headers it may include besides itself and base/. The longest prefix of a file's path names its room.
ALLOWED = {
    "base": [],
    "proto": [],
    "views": ["proto"],
    "compiler/ir": [],
    "compiler/interpreter": ["compiler/ir"],
    "compiler/tensor": ["compiler/ir"],
    "compiler/machine": [],
    "compiler/schedule": ["compiler/ir", "compiler/machine", "compiler/schedule/primitives/primitives.h"],
    "compiler/schedule/rules": ["compiler/ir", "compiler/machine", "compiler/schedule", "compiler/schedule/primitives"],
    "compiler/schedule/primitives": ["compiler/ir", "compiler/schedule/access.h", "compiler/schedule/cursor.h",
                                     "compiler/schedule/required_region.h", "compiler/schedule/tree.h"],
    "compiler/pass": ["compiler/ir", "compiler/machine"],
    "compiler/codegen": ["compiler/pass", "compiler/ir", "compiler/machine", "compiler/runtime"],
    "compiler/graph/core": ["compiler/tensor", "compiler/ir"],
    "compiler/graph/ops": GRAPH,
    "compiler/graph/passes": GRAPH + ["compiler/graph/ops", "compiler/graph/layout", "compiler/interpreter"],
    "compiler/graph/layout": GRAPH + ["compiler/graph/ops"],
    "compiler/graph/fusion": GRAPH + ["compiler/graph/ops"],
    "compiler/plan": ["compiler/graph", "compiler/machine"],
    "compiler/substitution": ["compiler/graph", "compiler/ir", "compiler/plan/plan.h"],
    "compiler/classical": ["compiler/graph", "compiler/tensor", "compiler/ir"],
    "compiler/onnx": ["compiler/classical", "compiler/graph", "compiler/tensor", "compiler/ir"],
    "compiler/driver": ["compiler"],
    "compiler/measure": ["compiler/codegen", "compiler/runtime", "compiler/interpreter", "compiler/ir", "compiler/machine",
                         "compiler/pass"],
    "compiler/runtime": [],
    "cost_model": ["PUBLIC", "compiler/ir/analysis/interval.h", "compiler/ir/ir.h", "compiler/ir/verify/verifier.h",
                   "compiler/ir/visit.h", "compiler/schedule/replayer.h", "compiler/pass/hoist_constants.h"],
    "python": ["proto", "client", "compiler/runtime/heddle.h"],
    "tracker": ["proto"],
    "scheduler/core": ["proto"],
    "scheduler/store": ["proto", "scheduler/core"],
    "scheduler/ledger": ["proto", "scheduler/core", "scheduler/store"],
    "scheduler/page": ["proto", "scheduler/store/record_store.h", "views"],
    "scheduler/service": ["proto", "scheduler/core", "scheduler/store", "scheduler/ledger", "scheduler/page"],
    "scheduler/sim": ["proto", "scheduler/core", "scheduler/store", "scheduler/ledger"],
    "scheduler/whatif": ["proto", "scheduler/core", "scheduler/page/source.h", "scheduler/sim", "scheduler/store/record_store.h",
                         "views/what_if.h"],
    "scheduler": ["proto", "scheduler/core/policy.h", "scheduler/service", "scheduler/whatif"],
    "worker": ["proto", "worker/supervisor", "worker/stages", "PUBLIC", "cost_model"],
    "worker/stages": ["proto", "worker", "PUBLIC", "cost_model"],
    # The supervisor never touches a model or a candidate.
    "worker/supervisor": ["proto", "worker"],
    "client": ["proto", "views", "PUBLIC"],
}
# Headers of compiler/ that the rooms outside it may use.
PUBLIC = [
    "compiler/driver/choose_plan.h",
    "compiler/driver/compile.h",
    "compiler/driver/import_model.h",
    "compiler/driver/model_layout.h",
    "compiler/graph/core/graph.h",
    "compiler/graph/fusion/fuse.h",
    "compiler/graph/fusion/memory_plan.h",
    "compiler/schedule/space.h",
    "compiler/schedule/trace.h",
    "compiler/ir/arithmetic.h",
    "compiler/ir/text.h",
    "compiler/onnx/format/onnx_format.pb.h",
    "compiler/onnx/parts.h",
    "compiler/onnx/summary.h",
    "compiler/measure/measure.h",
    "compiler/measure/compare.h",
    "compiler/measure/in_turns.h",
    "compiler/codegen/backend.h",
    "compiler/codegen/disassemble.h",
    "compiler/machine/measured_machine.h",
    "compiler/machine/target_info.h",
    "compiler/measure/measure_machine.h",
    "compiler/plan/plan.h",
    "compiler/runtime/device_kind.h",
    "compiler/runtime/executor.h",
    "compiler/runtime/machine_limits.h",
    "compiler/runtime/module.h",
    "compiler/runtime/module_head.h",
    "compiler/runtime/timing.h",
]
# Headers that stay behind a few .cc files: (pattern, folders that may include it).
HEAVY = [
    (r"llvm/|lld/", ["compiler/codegen"]),
    (r"pybind11/", ["python/native"]),
    (r"xgboost/", ["cost_model/model"]),
    (r"sqlite3\.h", ["scheduler/store"]),
    (r"libpq", ["scheduler/store/postgres"]),
    (r"microhttpd\.h", ["base/daemon"]),
    (r"prometheus/", ["base/daemon"]),
    (r"curl/", ["scheduler/service/telemetry"]),
    (r"z3\+\+\.h", ["compiler/substitution/prover"]),
    (r"grpcpp/|.*\.grpc\.pb\.h", ["proto", "tracker", "scheduler/service", "worker", "client"]),
    (r"toml\+\+/", ["client/config"]),
    (r"onnx/", []),  # the installed ONNX library: the importer has rules of its own
    (r"compiler/onnx/format/", ["compiler/onnx", "client/zoo"]),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)


def room_of(path):
    rooms = [room for room in ALLOWED if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def allowed_of(room):
    for entry in ALLOWED[room] + ["base", room]:
        yield from PUBLIC if entry == "PUBLIC" else [entry]


# A room in the list stands for its own files, not for the rooms inside it; any other folder for all that is in it.
def covers(entry, included):
    return included == entry or room_of(included) == entry or (entry not in ALLOWED and included.startswith(entry + "/"))


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
        allowed = list(allowed_of(room))
        if not any(covers(a, included) for a in allowed):
            yield f"{path}: includes {included}; {room} may include only {', '.join(allowed)}"


def self_test():
    bad = [
        ("scheduler/service/a.cc", '#include "compiler/ir/ir.h"'),
        ("scheduler/core/a.cc", '#include "scheduler/store/record_store.h"'),
        ("compiler/ir/a.cc", '#include "compiler/tensor/expression.h"'),
        ("compiler/schedule/a.cc", '#include "compiler/schedule/rules/stage.h"'),
        ("compiler/graph/core/a.cc", '#include "compiler/graph/ops/window.h"'),
        ("compiler/runtime/a.h", '#include "compiler/ir/ir.h"'),
        ("base/a.h", '#include "proto/common.pb.h"'),
        ("worker/a.cc", '#include "scheduler/core/dispatcher.h"'),
        ("worker/a.cc", '#include "compiler/driver/internal.h"'),
        ("worker/supervisor/a.cc", '#include "compiler/driver/compile.h"'),
        ("worker/supervisor/a.cc", '#include "worker/stages/stages.h"'),
        ("client/a.cc", "#include <llvm/IR/Module.h>"),
    ]
    good = [
        ("worker/main.cc", '#include "worker/supervisor/worker_server.h"'),
        ("worker/a.cc", '#include "cost_model/search/search.h"'),
        ("worker/a.cc", '#include "compiler/driver/compile.h"'),
        ("compiler/ir/a.h", '#include "base/status_macros.h"'),
        ("compiler/codegen/a.cc", '#include "compiler/runtime/abi.h"'),
        ("tests/a.cc", '#include "scheduler/core/dispatcher.h"'),
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
