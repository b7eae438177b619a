"""What can go wrong, by who has to act. The classes are the exit statuses of the command `heddle`.

    Error              everything below; `status` is the exit status of the command line
      InternalError    1  a defect, or a machine failed
      UsageError       2  what was asked for is wrong; the message says what to change
      NothingValid     3  no candidate of a task was valid
      NotFound         4  there is no such job, file or task
      Unreachable      5  no scheduler answers
      TimedOut         6  a time limit passed
      Cancelled        7  the job was cancelled

Ctrl-C raises KeyboardInterrupt, as everywhere in Python.
"""
from __future__ import annotations


class Error(Exception):
    """The base of all errors of this package. One line says what is wrong and what helps."""

    status = 1


class InternalError(Error):
    """A defect, or a failed machine. Exit status 1 of the command line."""


class UsageError(Error, ValueError):
    """What was asked for is wrong, and the message says what to change. Exit status 2."""

    status = 2


class NothingValid(Error):
    """No candidate of a task was valid. Exit status 3."""

    status = 3


class NotFound(Error, LookupError):
    """There is no such job, file or task. Exit status 4."""

    status = 4


class Unreachable(Error, ConnectionError):
    """No scheduler answers. Exit status 5."""

    status = 5


class TimedOut(Error, TimeoutError):
    """A time limit passed. Exit status 6."""

    status = 6


class Cancelled(Error):
    """The job was cancelled. Exit status 7."""

    status = 7


_BY_STATUS: dict[int, type[Error]] = {
    kind.status: kind for kind in (InternalError, UsageError, NothingValid, NotFound, Unreachable, TimedOut, Cancelled)
}

# What the command line calls its flags in messages, and what they are called here.
_FLAGS = {
    "--time-limit ": "time_limit=",
    "--target-latency ": "target_latency=",
    "--deadline ": "deadline=",
    "--allocation ": "allocation=",
    "--input-value ": "input_values=",
    "--shape ": "shapes=",
    "--server": "server=",
    "--tls-dir": "tls_dir",
    "--token-file": "token_file",
}


def error_of(status: int, message: str) -> Error:
    """The error for an exit status of the command line, with the message in the words of this package."""
    for flag, name in _FLAGS.items():
        message = message.replace(flag, name)
    return _BY_STATUS.get(status, InternalError)(message)
