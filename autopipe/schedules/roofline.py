"""Estimates the shortest possible time of a task from its arithmetic and its memory traffic.

The roofline model (Williams, Waterman, Patterson, CACM 2009). Times are in cycles, since only
ratios count.
"""

import re
from collections.abc import Sequence
from typing import Final

from autopipe.schedules.hardware import HardwareParams
from autopipe.tasks.task import Task

_FLOPS: Final = 4
"""Operations of a lane in a cycle: two units, each of which multiplies and adds."""

_NEAR, _FAR = 16.0, 4.0
"""Bytes that a core reads in a cycle from the shared cache, and from memory."""


def cycles(task: Task, hardware: HardwareParams) -> float:
    """Return the fewest cycles that one call can take; 0 if no size of it is known."""
    bits = max((_bits(tensor.dtype) for tensor in task.outputs), default=32)
    compute = task.flops / (_FLOPS * hardware.lanes(bits) * hardware.cores)
    speed = _NEAR if task.bytes <= hardware.l3 else _FAR
    return max(compute, task.bytes / (speed * hardware.cores))


def with_shares(tasks: Sequence[Task], hardware: HardwareParams) -> list[Task]:
    """Return the tasks, each with its estimated share of the time of all, from 0 to 1.

    Those of the library for every size have none: no size of theirs is known.
    """
    times = [task.calls * cycles(task, hardware) if task.likely is None else 0.0 for task in tasks]
    total = sum(times) or 1.0
    return [
        task.model_copy(update={"share": time / total})
        for task, time in zip(tasks, times, strict=True)
    ]


def _bits(dtype: str) -> int:
    digits = re.search(r"\d+", dtype)
    return max(8, int(digits[0])) if digits else 8
