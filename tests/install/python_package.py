#!/usr/bin/env python3
"""The files of python3-heddle: those of the wheel but for what Debian has elsewhere, known to importlib.metadata and so to pip, and loaded
with libheddle.so from libheddle0.

Usage: python_package.py FOLDER WHEEL_FOLDER DEPENDS
FOLDER has python3-heddle and libheddle0, unpacked; DEPENDS are the dependencies of the former. Run by Debian's Python with
PYTHONPATH=FOLDER/usr/lib/python3/dist-packages and LD_LIBRARY_PATH=FOLDER/usr/lib.
"""
import importlib.metadata
import pathlib
import re
import sys
import zipfile

import heddle

ADDED = {f"heddle-{heddle.__version__}.dist-info/INSTALLER"}
ELSEWHERE = re.compile(r"heddle/libheddle\.so\.\d+|.*/LICENSE|.*/RECORD")


def main():
    folder, wheels, depends = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    modules = folder / "usr/lib/python3/dist-packages"
    [wheel] = wheels.glob(f"heddle-{heddle.__version__}-cp3{sys.version_info.minor}-*.whl")
    files = {str(file.relative_to(modules)) for file in modules.rglob("*") if file.is_file()}
    wanted = {name for name in zipfile.ZipFile(wheel).namelist() if not ELSEWHERE.fullmatch(name)} | ADDED
    assert files == wanted, f"in one of package and wheel only: {files ^ wanted}"

    [found] = importlib.metadata.distributions(name="heddle", path=[str(modules)])
    assert found.version == heddle.__version__, found.version
    [numpy] = [need.removeprefix("numpy>=") for need in found.requires if need.startswith("numpy")]
    minor = sys.version_info.minor
    for needed in (f"python3 (>= 3.{minor}~)", f"python3 (<< 3.{minor + 1})", f"python3-numpy (>= 1:{numpy})", "libheddle0 (>= ", "libllvm19", "libgrpc++"):
        assert needed in depends, f"the package does not depend on {needed}: {depends}"

    heddle.Client("127.0.0.1:9")  # loads the client, and connects to nothing yet
    loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
    assert any(path.startswith(f"{modules}/heddle/_service.") for path in loaded), loaded
    assert any(path.startswith(f"{folder}/usr/lib/libheddle.so.") for path in loaded), loaded


if __name__ == "__main__":
    main()
