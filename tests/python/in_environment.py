#!/usr/bin/env python3
"""Makes a fresh virtual environment, installs the wheel into it without a network, and runs the tests of this folder there.

Usage: in_environment.py WHEEL BUILD_DIR [unittest arguments]

NumPy comes from the system (Debian's python3-numpy). Without it or python3-venv, the status is 77, by which ctest knows a skipped test.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 800


def main():
    wheel, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if importlib.util.find_spec("numpy") is None:
        print("skipped: there is no NumPy; install Debian's python3-numpy")
        return SKIPPED
    if importlib.util.find_spec("ensurepip") is None:
        print("skipped: virtual environments cannot be made; install Debian's python3-venv")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="heddle-python-") as folder:
        environment = pathlib.Path(folder) / "environment"
        venv.create(environment, system_site_packages=True, with_pip=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel], check=True, timeout=LIMIT_S)
        # Nothing of the source tree may stand in for what the wheel lacks.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HEDDLE_SERVER", "HEDDLE_TLS", "HEDDLE_TOKEN"))}
        failed = []
        for test in sorted(HERE.glob("*_test.py")):
            print(f"== {test.name}", flush=True)
            done = subprocess.run([python, test, build / "bin", *sys.argv[3:]], cwd=folder, env=clean, timeout=LIMIT_S)
            if done.returncode != 0:
                failed.append(test.name)
        if failed:
            print("failed: " + ", ".join(failed))
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
