"""Who measures: one file a runner, and a line in `RUNNERS`.

A runner is imported where it is asked for: a run on this machine loads nothing of the others.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from autopipe.errors import SetupError
from autopipe.tuning.runners.runner import Runner, Wanted

RUNNERS: Final[Mapping[str, str]] = {
    "local": "autopipe.tuning.runners.local",
    "dask": "autopipe.tuning.runners.dask",
    "rpc": "autopipe.tuning.runners.rpc",
}
"""The module of each runner, by its name in `tuning.measure.runner`.

It has a function `open_runner` that takes a `Wanted` and returns a `Runner`."""


def open_runner(wanted: Wanted) -> Runner:
    """Return who measures, ready to do it. Raises SetupError and TargetError where it can not."""
    name = wanted.measure.runner
    if name not in RUNNERS:
        raise SetupError(f"tuning.measure.runner: {name} is not part of this autopipe")
    runner: Runner = import_module(RUNNERS[name]).open_runner(wanted)
    return runner
