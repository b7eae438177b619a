#!/usr/bin/env python3
"""Documents and comments name only paths that exist, and README.md stays short.

Checked are links and paths in backquotes, and in comments of sources every word with the ending of a file. A path may be shortened at its front if the rest is the end of some path of the
repository, and at its end by the ending that a header and its source share. Not checked is text between fences, and paths with a placeholder
in capitals, such as compiler/pass/NAME.h.

Usage: documents.py ROOT | --self-test
"""
import os
import pathlib
import re
import subprocess
import sys

README_LINES = 120
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
QUOTED = re.compile(r"`([A-Za-z0-9_.][A-Za-z0-9_./-]*)`")
# A quoted word counts as a path if it begins with a folder at the top of the repository, or ends like this.
ENDING = re.compile(r"\.(h|cc|proto|md)$|[a-z]/$")
PLACEHOLDER = re.compile(r"(^|[/_])(?!README)[A-Z]{3,}([._]|$)")
COMMENT = re.compile(r"(?:^|\s)//(.*)")
# A word with .h alone may be a loop over the dimension h.
COMMENTED = re.compile(r"(?<![\w./<\"-])((?:[\w-]+/)+[\w-]+\.h|[\w-][\w./-]*\.(?:cc|proto|md|py|sh))\b")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def problems(name, text, paths):
    """What is wrong with the document `name`, one line each. `paths` are all files and folders of the repository."""
    if name == "README.md" and len(text.splitlines()) > README_LINES:
        yield f"{name}: has {len(text.splitlines())} lines; the limit is {README_LINES}: move details to docs/"
    prose = FENCE.sub("", text)
    for target in LINK.findall(prose):
        if "://" not in target and os.path.normpath(os.path.join(os.path.dirname(name), target)) not in paths:
            yield f"{name}: links to {target}, which does not exist"
    for path in QUOTED.findall(prose):
        is_path = path.split("/")[0] in paths and "/" in path or ENDING.search(path)
        if is_path and not path.startswith(("build/", ".")) and not PLACEHOLDER.search(path) and not exists(path.rstrip("/"), paths):
            yield f"{name}: names {path}, which does not exist"


def problems_in_comments(name, text, paths):
    for number, line in enumerate(text.splitlines(), 1):
        for comment in COMMENT.findall(line):
            for path in COMMENTED.findall(comment):
                if not exists(path, paths):
                    yield f"{name}:{number}: names {path}, which does not exist"


def exists(path, paths):
    wanted = (path, path + ".h")
    return any(known in wanted or known.endswith(tuple("/" + end for end in wanted)) for known in paths)


def check(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.splitlines() if (root / name).exists()]
    paths = {str(path) for name in files for path in (pathlib.PurePath(name), *pathlib.PurePath(name).parents)}
    checks = {".md": problems, ".h": problems_in_comments, ".cc": problems_in_comments, ".proto": problems_in_comments}
    return [line for name in files for ending, check in checks.items() if name.endswith(ending)
            for line in check(name, (root / name).read_text(), paths)]


def self_test():
    paths = {"room", "room/part", "room/part/a.h", "room/b.md"}

    def found(text, name="room/page.md"):
        return len(list(problems(name, text, paths)))

    for good in ("`room/NAME.h` `room/part/a.h` `room/part/a` `part/` [a](part/a.h) [b](https://x.y/z) `a.h` `a/b` `--flag`", "```\n`room/c.h`\n```", "[b](b.md#part)"):
        assert found(good) == 0, good
    for bad in ("`room/c.h`", "[c](c.h)", "`c.h`", "`none/`", "`room/c`"):
        assert found(bad) == 1, bad
    for good in ("x(); // see part/a.h, and conv.h", "a/none.h", "// <none/c.h>"):
        assert not list(problems_in_comments("a.cc", good, paths)), good
    for bad in ("// see part/c.h", "x(); // none.cc"):
        assert len(list(problems_in_comments("a.cc", bad, paths))) == 1, bad
    assert found("line\n" * (README_LINES + 1), "README.md") == 1
    assert found("line\n" * README_LINES, "README.md") == 0


def main():
    if sys.argv[1] == "--self-test":
        self_test()
        return 0
    found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
