#!/usr/bin/env python3
"""heddle.Module: the numbers of the command line, memory that is shared, and the mistakes people make.

Usage: module_test.py BIN_DIR [unittest arguments], in an environment with the package
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
WRITE_TEST_MODULE = BIN.parent / "tests" / "runtime" / "write_test_module"
LIMIT_S = 240  # no single command here takes longer

import numpy as np

import heddle
from heddle import module as module_file


class Tensor:
    """A tensor of another library: nothing but DLPack leads to its memory."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def aligned(array):
    memory = heddle.empty(array.shape, array.dtype)
    memory[...] = array
    return memory


def misaligned(array):
    """The array, four bytes behind a multiple of 64."""
    memory = heddle.empty(array.size + 1, array.dtype)[1:].reshape(array.shape)
    memory[...] = array
    return memory


class ModuleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.directory.name)
        cls.square = cls.path / "square.heddle"  # y = (a + i / 4)^2, i being the number of the element
        cls.rows = cls.path / "rows.heddle"      # sum: 100 and the sum of a row; size: the rows of the block that made it
        subprocess.run([WRITE_TEST_MODULE, cls.square], check=True, timeout=LIMIT_S)
        subprocess.run([WRITE_TEST_MODULE, cls.rows, "rows"], check=True, timeout=LIMIT_S)
        cls.a = (np.arange(1000, dtype=np.float32) % 7).reshape(10, 100)
        cls.y = (cls.a + np.arange(1000, dtype=np.float32).reshape(10, 100) / 4) ** 2

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def refused(self, says, call, *args, kind=heddle.UsageError, **kwargs):
        with self.assertRaises(kind) as caught:
            call(*args, **kwargs)
        for word in (says,) if isinstance(says, str) else says:
            self.assertIn(word, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        return caught.exception

    def test_the_numbers_of_the_command_line(self):
        model, module, x, y = (self.path / name for name in ("mlp.onnx", "mlp.heddle", "x.npy", "y.npy"))
        for command in (["heddle", "zoo", "mlp", "-o", model], ["heddle-compile-default", model, "-o", module]):
            subprocess.run([BIN / command[0], *command[1:]], check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
        loaded = heddle.Module(module)
        spec = loaded.inputs[0]
        value = np.random.default_rng(1).standard_normal(spec.shape).astype(spec.numpy_dtype)
        np.save(x, value)
        subprocess.run([BIN / "heddle", "run", module, "--input", x, "-o", y], check=True, timeout=LIMIT_S, stderr=subprocess.DEVNULL)
        outputs = loaded.run({spec.name: value})
        self.assertEqual(list(outputs), [output.name for output in loaded.outputs])
        expected = np.load(y)
        self.assertGreater(np.ptp(expected), 0)
        for way in (outputs, loaded.run(aligned(value), copy=False), loaded.run(Tensor(value))):
            np.testing.assert_array_equal(way[loaded.outputs[0].name], expected)
        # From memory, and with another number of threads.
        again = heddle.Module(module.read_bytes(), threads=1)
        np.testing.assert_array_equal(again.run(value)[loaded.outputs[0].name], expected)

    def test_describes_tensors(self):
        square, rows = heddle.Module(self.square), heddle.Module(self.rows)
        self.assertEqual([(t.name, t.dtype, t.shape) for t in square.inputs], [("a", "f32", (10, 100))])
        self.assertEqual([(t.name, t.dtype, t.shape) for t in square.outputs], [("y", "f32", (10, 100))])
        self.assertEqual(square.inputs[0].numpy_dtype, np.float32)
        self.assertFalse(square.any_rows)
        self.assertTrue(rows.any_rows)
        self.assertEqual(rows.inputs[0].columns, ("height", "depth", "weight", "width"))
        self.assertEqual((rows.outputs[0].columns, rows.outputs[0].labels), ((), ()))
        self.assertIn("a: f32[10,100]", repr(square))
        path = self.path / "<b>&.heddle"
        path.write_bytes(self.square.read_bytes())
        page = heddle.Module(path)._repr_html_()
        self.assertIn("&lt;b&gt;&amp;.heddle", page)
        self.assertNotIn("<b>", page)

    def test_inputs_in_any_form(self):
        module = heddle.Module(self.square)
        for inputs in ({"a": self.a}, [self.a], self.a, self.a.tolist(), [Tensor(self.a)], Tensor(self.a), {"a": self.a.tolist()}):
            np.testing.assert_array_equal(module.run(inputs)["y"], self.y)

    def test_memory_is_shared(self):
        module = heddle.Module(self.square)
        x, out = aligned(self.a), heddle.empty((10, 100))
        outputs = module.run({"a": Tensor(x)}, out={"y": out}, copy=False)
        self.assertEqual(module.copied, ())
        self.assertIs(outputs["y"], out)
        np.testing.assert_array_equal(out, self.y)
        # What DLPack gives is the memory itself, on both sides.
        self.assertEqual(np.from_dlpack(Tensor(x)).ctypes.data, x.ctypes.data)
        self.assertEqual(np.from_dlpack(outputs["y"]).ctypes.data, out.ctypes.data)
        # The next run reads what stands there then, and writes elsewhere.
        x += 1
        second = module.run(x, copy=False)["y"]
        self.assertNotEqual(second.ctypes.data, out.ctypes.data)
        np.testing.assert_array_equal(out, self.y)
        self.assertEqual(second[0, 4], (self.a[0, 4] + 2) ** 2)

    def test_a_run_keeps_no_address(self):
        module = heddle.Module(self.square)
        x = aligned(self.a)
        first = module.run(x, copy=False)["y"]
        del x
        # Memory that cannot be bound takes the place of what was: nothing is written to `first`.
        module.run(misaligned(self.a + 3), out={"y": misaligned(self.a)})
        np.testing.assert_array_equal(first, self.y)

    def test_says_when_it_copies(self):
        module = heddle.Module(self.square)
        x = misaligned(self.a)
        np.testing.assert_array_equal(module.run(x)["y"], self.y)
        self.assertEqual(module.copied, ("a",))
        self.refused(("copy=False", "'a'", "multiple of 64", "heddle.empty"), module.run, x, copy=False)
        strided = np.asfortranarray(self.a)
        np.testing.assert_array_equal(module.run(strided)["y"], self.y)
        self.assertEqual(module.copied, ("a",))
        self.refused(("copy=False", "not C-contiguous"), module.run, strided, copy=False)
        out = misaligned(np.zeros((10, 100), np.float32))
        self.assertIs(module.run(aligned(self.a), out={"y": out})["y"], out)
        np.testing.assert_array_equal(out, self.y)
        self.assertEqual(module.copied, ("y",))
        self.refused(("'y'", "multiple of 64"), module.run, aligned(self.a), out={"y": out}, copy=False)
        self.refused("copy=True", module.run, self.a, copy=True)

    def test_out_must_fit(self):
        module = heddle.Module(self.square)
        x = aligned(self.a)
        self.refused("'z'", module.run, x, out={"z": x})
        self.refused(("out['y'] is float64[10,100]", "float32[10,100]"), module.run, x, out={"y": np.zeros((10, 100))})
        self.refused("out['y'] is list", module.run, x, out={"y": []})
        self.refused("C-contiguous", module.run, x, out={"y": np.zeros((100, 10), np.float32).T})
        self.refused("shares memory", module.run, x, out={"y": x})
        constant = heddle.empty((10, 100))
        constant.flags.writeable = False
        self.refused("writable", module.run, x, out={"y": constant})

    def test_any_number_of_rows(self):
        module = heddle.Module(self.rows)
        for count in (0, 1, 7, 8, 9, 50, 128, 129, 1000):
            x = np.arange(4 * count, dtype=np.float32).reshape(count, 4) % 91
            outputs = module.run({"x": x})
            np.testing.assert_array_equal(outputs["sum"], 100 + x.sum(axis=1))
            self.assertEqual(outputs["size"].shape, (count,))
        self.assertEqual(module.copied, ("x", "sum", "size"))
        x = aligned(np.ones((8, 4), np.float32))
        np.testing.assert_array_equal(module.run(x, copy=False)["sum"], np.full(8, 104, np.float32))
        self.assertEqual(module.copied, ())
        self.refused(("9 rows", "at most 8"), module.run, np.ones((9, 4), np.float32), copy=False)
        self.refused(("[9, 3]", "as many rows as you like"), module.run, np.ones((9, 3), np.float32))
        self.refused("single number", module.run, np.float32(3))

    def test_errors(self):
        module = heddle.Module(self.square)
        self.refused(("float64", "float32", "astype"), module.run, self.a.astype(np.float64))
        self.refused(("[100, 10]", "[10, 100]"), module.run, self.a.T)
        self.refused(("no input 'b'", "'a'"), module.run, {"b": self.a})
        self.refused(("'a' is missing",), module.run, {})
        self.refused(("'a'", "float32"), module.run, {"a": "some words"})
        self.refused("DLPack", module.run, type("Odd", (), {"__dlpack__": lambda self: 1, "__dlpack_device__": lambda self: (2, 0)})())
        error = self.refused("nowhere.heddle", heddle.Module, self.path / "nowhere.heddle", kind=heddle.NotFound)
        self.assertEqual((error.status, isinstance(error, LookupError)), (4, True))
        self.refused("not", heddle.Module, b"no module at all")
        damaged = bytearray(self.square.read_bytes())
        damaged[-1] ^= 1
        self.assertEqual(self.refused("checksum", heddle.Module, bytes(damaged)).status, 2)
        self.refused("threads is 9999", heddle.Module, self.square, threads=9999)
        self.refused("numbers", heddle.empty, 3, object)

    def test_threads(self):
        module = heddle.Module(self.square)
        wrong = []

        def run(offset):
            for _ in range(200):
                x = self.a + offset
                expected = (x + np.arange(1000, dtype=np.float32).reshape(10, 100) / 4) ** 2
                if not np.array_equal(module.run(x)["y"], expected):
                    wrong.append(offset)

        threads = [threading.Thread(target=run, args=(offset,)) for offset in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(wrong, [])

    def test_other_threads_go_on_while_a_module_runs(self):
        module = heddle.Module(self.rows)
        count = 4_000_000
        x, total, size = np.ones((count, 4), np.float32), np.empty(count, np.float32), np.empty(count, np.float32)
        stop, ticks = threading.Event(), []

        def tick():
            while not stop.is_set():
                ticks.append(time.monotonic())
                time.sleep(0.001)

        for _ in range(3):  # other work of the machine may stop the ticks for a while
            ticks.clear()
            stop.clear()
            ticker = threading.Thread(target=tick)
            ticker.start()
            begin = time.monotonic()
            module._model.run_rows(0, count, [x], [total, size])
            end = time.monotonic()
            stop.set()
            ticker.join(60)
            during = [begin, *(t for t in ticks if begin < t < end), end]
            if max(b - a for a, b in zip(during, during[1:])) < (end - begin) / 2:
                break
        else:
            self.fail("no other thread ran while a module did")
        self.assertEqual(total[-1], 104)

    def test_a_forked_child_is_told(self):
        module = heddle.Module(self.square, threads=2)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                module.run(self.a)
            except heddle.UsageError as error:
                status = 0 if "forked" in str(error) else 2
            del module  # must not wait for threads that are not here
            again = heddle.Module(self.square, threads=2)
            os._exit(status if np.array_equal(again.run(self.a)["y"], self.y) else 3)
        deadline = time.monotonic() + 60
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(child, 9)
                os.waitpid(child, 0)
                self.fail("the child hangs")
            time.sleep(0.01)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        np.testing.assert_array_equal(module.run(self.a)["y"], self.y)


class FormsTest(unittest.TestCase):
    """Values that NumPy has in another form than modules do."""

    def test_bf16(self):
        # Halfway cases go to the even one; what is too large becomes infinite; NaN stays NaN.
        values = np.array([1.0, -2.5, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, np.inf, -np.inf, 0.0], np.float32)
        expected = [0x3F80, 0xC020, 0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7F80, 0xFF80, 0]
        self.assertEqual(module_file._bf16_bits(values).tolist(), expected)
        self.assertEqual(module_file._bf16_bits(np.float32(-1) * np.ones((), np.float32)).shape, ())
        for nan in (0x7FC00000, 0x7F800001, 0xFFFFFFFF):
            bits = module_file._bf16_bits(np.array([nan], np.uint32).view(np.float32))
            back = module_file._shown(heddle.TensorInfo("y", "bf16", (1,)), bits, None)
            self.assertTrue(np.isnan(back[0]), hex(nan))

    def test_texts(self):
        spec = heddle.TensorInfo("t", "u8", (2, 2), is_text=True, text_bytes=4)
        stored = module_file._text_bytes(spec, np.array([["a", "bcdefg"], ["", "é€"]], object))
        self.assertEqual(stored[0].tolist(), [[97, 0, 0, 0], [98, 99, 100, 101]])
        self.assertEqual(module_file._texts(stored)[0].tolist(), ["a", "bcde"])
        self.assertEqual(module_file._texts(stored)[1, 0], "")
        with self.assertRaises(heddle.UsageError):
            module_file._text_bytes(spec, np.array([["a\0b", ""], ["", ""]], object))

    def test_extents_that_depend_on_data(self):
        whole = np.arange(12).reshape(3, 4)
        self.assertEqual(module_file._leading(whole, (2, 3), dense=False).tolist(), [[0, 1, 2], [4, 5, 6]])
        self.assertEqual(module_file._leading(whole, (2, 3), dense=True).tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertIs(module_file._leading(whole, (3, 4), dense=True), whole)

    def test_empty_is_aligned(self):
        for shape in ((), 0, 1, (3, 5), [7, 0, 2]):
            for dtype in ("f4", "i8", "?", "u1"):
                array = heddle.empty(shape, dtype)
                self.assertEqual(array.ctypes.data % 64 if array.size else 0, 0)
                self.assertTrue(array.flags.c_contiguous and array.flags.writeable)
                self.assertEqual(array.shape, np.empty(shape, dtype).shape)


if __name__ == "__main__":
    unittest.main()
