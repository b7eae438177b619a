"""Heddle tunes neural networks and decision trees for the machine they run on, and runs them.

    import heddle
    module = heddle.tune("model.onnx", trials=64)        # starts a service if none is running
    outputs = module.run({"x": x})                       # NumPy in, NumPy out

    job = heddle.Client().submit("model.onnx")           # the same through a running service
    module = job.wait().module()

    module = heddle.Module("model.heddle")               # a module from a file: needs no service

What can go wrong is in heddle.errors; each class stands for an exit status of the command `heddle`.

Threads: a Module runs one call at a time; other threads wait. Clients and jobs may be used by several threads. The
interpreter's lock is released while a module runs and while the service is waited for.

Forks: a module runs only in the process that loaded it, and gRPC does not survive a fork. In a forked child, a module
of its parent, and any Client once its parent used one, raise UsageError; load the module again there, or start the
process with multiprocessing's "spawn" method, which has none of these limits.
"""
from .client import Client, Job, Jobs, Task, Tasks, TuningOptions
from .errors import Cancelled, Error, InternalError, NotFound, NothingValid, TimedOut, Unreachable, UsageError
from .module import Module, TensorInfo, empty
from .tuning import tune

__version__ = "0.1.0"

__all__ = [
    "Cancelled", "Client", "Error", "InternalError", "Job", "Jobs", "Module", "NotFound", "NothingValid", "Task",
    "Tasks", "TensorInfo", "TimedOut", "TuningOptions", "Unreachable", "UsageError", "empty", "tune",
]
