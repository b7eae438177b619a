#!/usr/bin/env python3
"""The installed package: its files, its documentation, and what importing it costs.

Usage: package_test.py BIN_DIR [unittest arguments], in an environment with the package
"""
import base64
import hashlib
import importlib.metadata
import inspect
import pathlib
import subprocess
import sys
import unittest

sys.argv.pop(1)

import heddle


class PackageTest(unittest.TestCase):
    def test_files_are_those_of_the_wheel(self):
        files = [file for file in importlib.metadata.files("heddle") if file.hash is not None]
        self.assertTrue({"heddle/py.typed", "heddle/__init__.py", "heddle/_runtime.pyi"} <= {str(file) for file in files})
        for file in files:
            digest = hashlib.new(file.hash.mode, file.locate().read_bytes()).digest()
            self.assertEqual(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), file.hash.value, str(file))

    def test_metadata(self):
        self.assertEqual(importlib.metadata.version("heddle"), heddle.__version__)
        self.assertIn("numpy>=1.23", importlib.metadata.requires("heddle"))
        # Nothing stands in for the installed package.
        self.assertTrue(pathlib.Path(heddle.__file__).is_relative_to(sys.prefix))

    def test_all_that_is_public_is_documented_and_typed(self):
        for name in heddle.__all__:
            thing = getattr(heddle, name)
            self.assertTrue(inspect.getdoc(thing), name)
            members = {} if not inspect.isclass(thing) or issubclass(thing, Exception) else vars(thing)
            functions = {f"{name}.{key}": value for key, value in members.items() if inspect.isfunction(value)}
            if inspect.isfunction(thing):
                functions[name] = thing
            for where, function in functions.items():
                last = where.split(".")[-1]
                if not last.startswith("_"):
                    self.assertTrue(function.__doc__, where)
                if not last.startswith("__") or last == "__init__":
                    signature = inspect.signature(function)
                    self.assertIsNot(signature.return_annotation, inspect.Signature.empty, where)
                    for parameter in list(signature.parameters.values())[where != name :]:
                        self.assertIsNot(parameter.annotation, inspect.Parameter.empty, f"{where}: {parameter}")
            for key, value in members.items():
                if isinstance(value, property):
                    self.assertTrue(value.__doc__, f"{name}.{key}")

    def test_running_modules_loads_no_client(self):
        program = "import heddle, sys; heddle.Module; print('heddle._service' in sys.modules, open('/proc/self/maps').read().count('libgrpc'))"
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertEqual(told.split(), ["False", "0"])


if __name__ == "__main__":
    unittest.main()
