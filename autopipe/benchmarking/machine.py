"""What a latency depends on besides the build: the machine, and what else it was doing."""

import os

from autopipe.benchmarking.conditions import load_average
from autopipe.compiler.target import cpu
from autopipe.config.frozen import Frozen


class Machine(Frozen, frozen=True):
    """Where and under which load the contenders were timed."""

    cpu: str
    """Name of the processor."""
    cores: int
    """Cores this process may use."""
    gpu: str | None = None
    """Name of the GPU, if the build runs on one."""
    load_before: float
    """Runnable processes, averaged over the minute before the first round."""
    load_after: float
    """The same after the last round; the contenders themselves are in it."""


def machine(load_before: float, gpu: str | None = None) -> Machine:
    """Return the machine as it is after the last round."""
    return Machine(
        cpu=cpu.model(),
        cores=len(os.sched_getaffinity(0)),
        gpu=gpu,
        load_before=load_before,
        load_after=load_average(),
    )
