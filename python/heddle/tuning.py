"""Submit, wait and fetch in one call."""
from __future__ import annotations

import os
from typing import Any, Unpack

from ._progress import Progress
from .client import Client, Job, TuningOptions, _service
from .errors import Error
from .module import Module


def tune(
    model: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    example_inputs: Any = None,
    server: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_dir: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    **options: Unpack[TuningOptions],
) -> Module:
    """Tunes a model for this machine, or for another target, and returns the module. `module.job` tells how it went.

    Like the command `heddle tune`: it uses the scheduler that answers, and otherwise starts one for the duration of the
    call, for which the program heddle-scheduler must be on PATH. Measurements are kept in its data directory, so the same
    call goes on where an interrupted one stopped.

    model, example_inputs: see Client.submit.
    output: a file to write the module to; None keeps no file.
    server, token_file, tls_dir: see Client.
    data: the data directory of a service that is started; None: the one of this user.
    progress: None shows progress in notebooks and on terminals, True everywhere, False nowhere.
    options: heddle.TuningOptions, such as target=, device=, trials=, time_limit=.

    Raises what Client.submit and Job.wait raise. After Ctrl-C, a job of a running service goes on; one of a service that
    was started here is cancelled.
    """
    client = Client(server, token_file, tls_dir)
    view = Progress(progress)
    service = _service().Service(*client._access, "" if data is None else os.fspath(data))
    if service.is_private():
        client = Client(service.address(), token_file="", tls_dir="")
    try:
        job = client.submit(model, example_inputs=example_inputs, **options)
        try:
            job._wait("done", None, view, service.check_alive)
        except KeyboardInterrupt:
            _tell_interrupted(job, view, kept=not service.is_private())
            raise
        module = job.module() if output is None else Module(job.fetch(output))
        module.job = job
        if service.is_private():
            job._keep_trials()
        return module
    finally:
        service.stop()


def _tell_interrupted(job: Job, view: Progress, kept: bool) -> None:
    if kept:
        view.say(f"detached; the job goes on. heddle.Client().job('{job.id}') comes back to it.")
        return
    view.say("stopped; measurements so far are kept, and the same call reuses them.")
    try:
        job.cancel("interrupted")  # otherwise the next service would resume it
    except Error:
        pass
