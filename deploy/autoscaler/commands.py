"""Programs whose output the autoscaler reads."""

import subprocess


class CommandError(Exception):
    """A program did not start, took too long, or failed. The text is its name and its last line."""


def output_of(command, limit_s):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise CommandError(f"{command[0]}: {words[-1][:300]}")
    return done.stdout
