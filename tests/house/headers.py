#!/usr/bin/env python3
"""Every header includes what it uses of the headers that cmake/house.cmake precompiles.

Precompiled headers hide a missing #include: the header then compiles in the build and nowhere else. This check is textual and takes a
second: a header that spells std::vector includes <vector>, itself or through another header of this repository. The full
check compiles each header alone, without precompiled ones, and takes minutes.

Usage: headers.py ROOT | --compile BUILD_DIR ROOT [HEADER..] | --self-test
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

# Header -> what makes it necessary.
USES = {
    "<algorithm>": r"std::(sort|find|find_if|min|max|clamp|any_of|all_of|none_of|count|count_if|fill|copy|equal|reverse|transform|lower_bound)\(",
    "<cstdint>": r"\b(std::)?u?int(8|16|32|64)_t\b",
    "<functional>": r"std::function<",
    "<map>": r"std::(multi)?map<",
    "<memory>": r"std::(unique_ptr|shared_ptr|weak_ptr)<|std::make_(unique|shared)<",
    "<optional>": r"std::(optional<|nullopt)",
    "<set>": r"std::(multi)?set<",
    "<string>": r"std::(string\b|to_string\()",
    "<string_view>": r"std::string_view\b",
    "<unordered_map>": r"std::unordered_map<",
    "<utility>": r"std::(move\(|pair<|exchange\(|swap\()",
    "<variant>": r"std::(variant<|monostate|holds_alternative|get_if<|visit\()",
    "<vector>": r"std::vector<",
    '"absl/status/statusor.h"': r"absl::StatusOr<",
    '"absl/status/status.h"': r"absl::(Status\b|OkStatus\(|\w+Error\()",
    '"absl/strings/str_cat.h"': r"absl::Str(Cat|Append)\(",
    '"absl/strings/str_join.h"': r"absl::StrJoin\(",
    '"absl/time/time.h"': r"absl::(Time\b|Duration\b|Seconds\(|Milliseconds\(|Infinite)",
}
# Headers of others that give what a second header gives, by the standard or by their own promise.
GIVES = {
    "<stdint.h>": ["<cstdint>"],
    "<map>": ["<utility>"],
    "<unordered_map>": ["<utility>"],
    "<variant>": ["<utility>"],
    "<string>": ["<string_view>"],
    '"absl/status/statusor.h"': ['"absl/status/status.h"'],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"][^>"]+[>"])', re.M)
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def missing(name, texts):
    """The headers that `name` uses and does not include. `texts`: the repository's headers by path."""
    given, queue, seen = set(), [name], {name}
    while queue:
        for included in INCLUDE.findall(texts[queue.pop()]):
            given |= {included, *GIVES.get(included, ())}
            path = included.strip('"')
            if path in texts and path not in seen:
                seen.add(path)
                queue.append(path)
    code = COMMENT.sub("", "\n".join(line for line in texts[name].splitlines() if "#include" not in line))
    return [header for header, use in USES.items() if header not in given and re.search(use, code)]


def headers(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.h"], capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if (root / name).exists()]
    return {name: (root / name).read_text() for name in names}


def flags_of(build):
    """The language standard, and every definition and include folder of any file of the build."""
    flags = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        for word, after in zip(words, words[1:] + [""]):
            if word.startswith(("-I", "-D", "-std=")):
                flags[word,] = None
            elif word == "-isystem":
                flags[word, after] = None
    return [word for flag in flags for word in flag]


def compile_alone(root, flags, name):
    argv = ["c++", *flags, f"-I{root}", "-fsyntax-only", "-x", "c++", str(root / name)]
    done = subprocess.run(argv, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    return f"{name}: does not compile alone: {(errors or ['?'])[0]}" if done.returncode else None


def self_test():
    texts = {
        "a.h": "#include <vector>\nstd::vector<int> a;\n",
        "b.h": '#include "a.h"\nstd::vector<int> b;  // std::map<int, int>\n',
        "c.h": "std::vector<int> c; int64_t d;\n",
        "d.h": "#include <map>\nstd::pair<int, int> p;\n",
    }
    assert [missing(name, texts) for name in texts] == [[], [], ["<cstdint>", "<vector>"], []]


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    if sys.argv[1] == "--compile":
        build, root = (pathlib.Path(word) for word in sys.argv[2:4])
        names = sys.argv[4:] or [name for name in headers(root) if not name.startswith("tests/codegen/cuda/cuda_host_shim")]
        flags = flags_of(build)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [line for line in pool.map(lambda name: compile_alone(root, flags, name), names) if line]
    else:
        texts = headers(pathlib.Path(sys.argv[1]))
        found = [f"{name}: uses, but does not include, {', '.join(missing(name, texts))}" for name in texts if missing(name, texts)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
