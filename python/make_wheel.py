#!/usr/bin/env python3
"""Zips files into a wheel of the package `heddle`, with nothing but Python's own library.

Usage: make_wheel.py heddle-VERSION-PYTHON-ABI-PLATFORM.whl --description README.md [--licence FILE] FILE[:NAME]..

The wheel's name says its version and what it is for. Each FILE goes to heddle/, under NAME if one is given. The same files
give the same bytes.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import zipfile

WHEN = (1980, 1, 1, 0, 0, 0)  # of every entry: the earliest that a zip file knows

METADATA = """Metadata-Version: 2.1
Name: heddle
Version: {version}
Summary: Tunes neural networks and decision trees for the machine they run on, and runs them
Requires-Python: >=3.11
Requires-Dist: numpy>=1.23
Provides-Extra: frames
Requires-Dist: pandas; extra == 'frames'
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""

WHEEL = """Wheel-Version: 1.0
Generator: heddle make_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def entry(name, executable=False):
    info = zipfile.ZipInfo(name, WHEN)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (0o100755 if executable else 0o100644) << 16
    return info


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def make(wheel, contents):
    """Writes the wheel: `contents` are the bytes by name. The list of all files comes last, as the format has it."""
    _, version, python, abi, platform = wheel.name.removesuffix(".whl").split("-")
    info = f"heddle-{version}.dist-info"
    contents = dict(sorted(contents.items()))
    contents[f"{info}/WHEEL"] = WHEEL.format(tag=f"{python}-{abi}-{platform}").encode()
    record = "".join(record_line(name, data) for name, data in contents.items()) + f"{info}/RECORD,,\n"
    contents[f"{info}/RECORD"] = record.encode()
    unfinished = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", compresslevel=6) as file:
        for name, data in contents.items():
            file.writestr(entry(name, executable=".so" in name), data)
    os.replace(unfinished, wheel)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--description", type=pathlib.Path, required=True)
    parser.add_argument("--licence", default="")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args()
    version = given.wheel.name.split("-")[1]
    info = f"heddle-{version}.dist-info"
    contents = {}
    for file in given.files:
        path, _, name = file.partition(":")
        contents["heddle/" + (name or pathlib.Path(path).name)] = pathlib.Path(path).read_bytes()
    contents[f"{info}/METADATA"] = METADATA.format(version=version, description=given.description.read_text()).encode()
    if given.licence:
        contents[f"{info}/LICENSE"] = pathlib.Path(given.licence).read_bytes()
    make(given.wheel, contents)


if __name__ == "__main__":
    main()
