"""Calls of C functions in a loop without Python, each with the next block of rows, so that no cache or branch predictor learns one row."""

import ctypes

MOST_ARGUMENTS = 12


class _Step(ctypes.Structure):  # as in rotate.cc
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("checked", ctypes.c_int64),
        ("arguments", ctypes.c_int64 * MOST_ARGUMENTS),
        ("strides", ctypes.c_int64 * MOST_ARGUMENTS),
        ("addresses", ctypes.c_int64),
    ]


class Each:
    """An argument that is `first` for the first block, and grows by `stride` from one block to the next."""

    def __init__(self, first, stride):
        self.first, self.stride = first, stride


class At:
    """An argument that is a pointer stored at `address` when the function is called; for each block `stride` further on."""

    def __init__(self, address, stride=0):
        self.first, self.stride = address, stride


class Rotation:
    """`calls(n)` does all steps n times, each time for the next of `blocks` blocks.

    A step is (function, *arguments): a function of a ctypes library, and integers, addresses (None: null), Each or At. Its restype
    tells whether it is checked: an int is 0 on success; None is not looked at. `failed` (optional) tells why a step failed. Whoever
    makes a rotation keeps alive what the arguments point to.
    """

    def __init__(self, library, blocks, steps, failed=None):
        self._rotate = library.heddle_bench_rotate
        self._rotate.argtypes = [ctypes.c_void_p] + [ctypes.c_int64] * 4
        self._blocks, self._next, self._failed = blocks, 0, failed
        self._functions = [function for function, *_ in steps]
        self._steps = (_Step * len(steps))(*(self._step(*step) for step in steps))

    @staticmethod
    def _step(function, *arguments):
        step = _Step(function=ctypes.cast(function, ctypes.c_void_p).value, checked=function.restype is not None)
        for k, argument in enumerate(arguments):
            if isinstance(argument, (Each, At)):
                step.arguments[k], step.strides[k] = argument.first, argument.stride
                step.addresses |= isinstance(argument, At) << k
            else:
                step.arguments[k] = argument or 0
        return step

    def calls(self, count):
        status = self._rotate(self._steps, len(self._steps), self._blocks, self._next, count)
        if status != 0:
            raise RuntimeError(self._failed() if self._failed else f"a call returned {status}")
        self._next = (self._next + count) % self._blocks
