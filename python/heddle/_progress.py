"""How far a job is, while it is waited for: redrawn in notebooks and on terminals, otherwise a line now and then."""
from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any

from . import _views

# Seconds between two pictures.
_NOTEBOOK_S = 0.5
_TERMINAL_S = 0.2
_LINES_S = 5.0


class Progress:
    """Shows the states of one job. `wanted`: None shows progress in notebooks and on terminals, True everywhere, False
    nowhere. It goes to a notebook's cell or to standard error."""

    def __init__(self, wanted: bool | None) -> None:
        self._kind = _kind(wanted)
        self._next = 0.0
        self._state = ""
        self._line = ""
        self._handle: Any = None

    def show(self, job: dict[str, Any]) -> None:
        """`job` is the latest state. Call it often; it draws when it is time."""
        changed = job.get("state") != self._state
        now = time.monotonic()
        if self._kind == "none" or (now < self._next and not changed):
            return
        self._state = job.get("state", "")
        if self._kind == "notebook":
            self._next = now + _NOTEBOOK_S
            self._display({"text/html": _views.job_html(job), "text/plain": _views.line(job)})
        elif self._kind == "terminal":
            self._next = now + _TERMINAL_S
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r" + f"{_views.bar(job)} {_views.line(job)}"[:width] + "\x1b[K")
            sys.stderr.flush()
            self._line = "drawn"
        elif _views.line(job) != self._line:
            self._next = now + _LINES_S
            self._line = _views.line(job)
            print(self._line, file=sys.stderr)

    def finish(self) -> None:
        """Leaves the last picture where it is."""
        if self._kind == "terminal" and self._line:
            sys.stderr.write("\n")

    def say(self, text: str) -> None:
        """One line for people, unless they want none."""
        if self._kind != "none":
            print(text, file=sys.stderr)

    def _display(self, picture: dict[str, str]) -> None:
        if self._handle is None:
            self._handle = sys.modules["IPython"].display.display(picture, raw=True, display_id=True)
        else:
            self._handle.update(picture, raw=True)


def _kind(wanted: bool | None) -> str:
    if wanted is False:
        return "none"
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if type(shell).__name__ == "ZMQInteractiveShell":
        return "notebook"
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb"):
        return "terminal"
    return "lines" if wanted else "none"
