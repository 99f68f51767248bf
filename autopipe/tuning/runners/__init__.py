"""Runners: measurement of candidates, one file per runner, with its opener in `RUNNERS`.

A runner is imported when it is opened: a run on this machine loads nothing of the others.
"""

from collections.abc import Callable, Mapping
from typing import Final

from autopipe.errors import SetupError
from autopipe.tuning.runners.runner import Runner, Wanted


def _open_local(request: Wanted) -> Runner:
    from autopipe.tuning.runners import local

    return local.open_runner(request)


def _open_farm(request: Wanted) -> Runner:
    from autopipe.tuning.runners import farm

    return farm.open_runner(request)


def _open_rpc(request: Wanted) -> Runner:
    from autopipe.tuning.runners import rpc

    return rpc.open_runner(request)


RUNNERS: Final[Mapping[str, Callable[[Wanted], Runner]]] = {
    "local": _open_local,
    "farm": _open_farm,
    "rpc": _open_rpc,
}
"""The opener of each runner, by its name in `tuning.measure.runner`."""


def open_runner(request: Wanted) -> Runner:
    """Return a runner that is ready to measure. Raises SetupError and TargetError."""
    name = request.measure.runner
    if name not in RUNNERS:
        raise SetupError(f"tuning.measure.runner: {name} is not part of this autopipe")
    return RUNNERS[name](request)
