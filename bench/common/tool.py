"""Runs the programs of the repository, and waits for them."""

import subprocess

from bench.common.side import SideError

LIMIT_S = 1200


def run_tool(argv):
    """The standard output of a tool. SideError with its last message if it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise SideError(f"{argv[0]} took longer than {LIMIT_S} s") from None
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise SideError(words[-1][:400])
    return done.stdout
