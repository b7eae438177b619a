#!/usr/bin/env python3
"""Writes a copy of a source of the scheduler with a bug in it, which scheduler_faults_test, nemesis_test or fail_over_test must find.

Usage: planted_bugs.py BUG SOURCE ROOT OUT    SOURCE is relative to ROOT. Fails where it has no such text any more.
"""
import pathlib
import sys

# (bug, source) -> texts and what stands in their place
BUGS = {
    # Results count whatever their fencing token.
    ("without-fence", "scheduler/store/sql_writer.cc"): [
        ("  return StaleFence(change.fence, seen);", "  return absl::OkStatus();"),
    ],
    ("without-fence", "scheduler/service/scheduler_loop.cc"): [
        ("if (lease.fencing_token() < seen) {", "if (lease.fencing_token() == 0) {"),
    ],
    # Trials are shown before they are on disk, which is slow.
    ("shows-too-early", "scheduler/store/store_writer.cc"): [
        ('#include "base/clock.h"\n', '#include "absl/time/clock.h"\n#include "base/clock.h"\n'),
        ("    const bool written = ApplyAll(group);\n",
         "    for (const Entry& entry : group) {\n"
         "      if (entry.durable) entry.durable();\n"
         "    }\n"
         "    absl::SleepFor(absl::Milliseconds(100));\n"
         "    const bool written = ApplyAll(group);\n"),
        ("if (written && entry.durable) entry.durable();", ""),
    ],
    # A leader writes whatever epoch it is, and takes its time to end once another leads.
    ("without-epoch", "scheduler/store/sql_record_store.cc"): [
        ("    if (epoch_ == 0) return absl::OkStatus();\n", "    if (epoch_ >= 0) return absl::OkStatus();\n"),
    ],
    ("without-epoch", "scheduler/service/leadership.cc"): [
        ('#include "absl/strings/str_cat.h"\n', '#include "absl/strings/str_cat.h"\n#include "absl/time/clock.h"\n'),
        ("    lost_ = true;\n  }\n  options_.lost(reason);\n",
         "    lost_ = true;\n  }\n  absl::SleepFor(absl::Seconds(3));\n  options_.lost(reason);\n"),
    ],
}


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    bug, source, root, out = sys.argv[1:]
    text = (pathlib.Path(root) / source).read_text()
    for before, after in BUGS[bug, source]:
        if text.count(before) != 1:
            sys.exit(f"planted_bugs.py: {source} has {text.count(before)} times '{before.strip()}'; "
                     f"plant the bug '{bug}' anew")
        text = text.replace(before, after)
    pathlib.Path(out).write_text(text)


main()
