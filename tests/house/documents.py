#!/usr/bin/env python3
"""Documents name only paths that exist, and README.md stays short.

Checked are links, and paths in backquotes that begin with a folder of the repository or name a file beside the document.
Text between fences is not checked.

Usage: documents.py ROOT | --self-test
"""
import pathlib
import re
import subprocess
import sys
import tempfile

README_LINES = 120
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
QUOTED = re.compile(r"`([A-Za-z0-9_.][A-Za-z0-9_./-]*)`")
# What a quoted word must end with to be taken for a file in the document's own folder.
FILE = re.compile(r"\.(h|cc|py|sh|proto|md|json)$|/$")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def problems(root, name, text, tops):
    """What is wrong with the document `name`, one line each. `tops` are the folders at the top of the repository."""
    if name == "README.md" and len(text.splitlines()) > README_LINES:
        yield f"{name}: has {len(text.splitlines())} lines; the limit is {README_LINES}: move details to docs/"
    folder = (root / name).parent
    prose = FENCE.sub("", text)
    for target in LINK.findall(prose):
        if "://" not in target and not (folder / target).exists():
            yield f"{name}: links to {target}, which does not exist"
    for path in QUOTED.findall(prose):
        if path.split("/")[0] in tops and "/" in path:
            found = exists(root, path)
        elif FILE.search(path) and not path.startswith("."):
            found = exists(folder, path) or exists(root, path) or "/" not in path and named_anywhere(root, path)
        else:
            continue
        if not found:
            yield f"{name}: names {path}, which does not exist"


def exists(folder, path):
    """A path may leave out the ending that a header and its source share."""
    return (folder / path).exists() or (folder / (path + ".h")).exists()


def named_anywhere(root, path):
    """A bare file name: of a generated file, or of any file of the repository."""
    return not path.endswith((".h", ".cc", ".md", ".proto")) or any(root.glob(f"*/**/{path}"))


def check(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.splitlines() if (root / name).exists()]
    tops = {name.split("/")[0] for name in files if "/" in name}
    found = []
    for name in files:
        if name.endswith(".md"):
            found += problems(root, name, (root / name).read_text(), tops)
    return found


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "room").mkdir()
        (root / "room" / "a.h").touch()

        def found(text, name="page.md"):
            return len(list(problems(root, name, text, {"room"})))

        for good in ("`room/a.h` `room/` [a](room/a.h) [b](https://x.y/z) `a.h` `a/b` `--flag`", "```\n`room/b.h`\n```", "[a](room/a.h#part)"):
            assert found(good) == 0, good
        for bad in ("`room/b.h`", "[b](room/b.h)", "`b.h`", "`nothing.md`"):
            assert found(bad) == 1, bad
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
