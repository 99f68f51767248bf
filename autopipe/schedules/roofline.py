"""Estimates the shortest possible time of a task from its arithmetic and its memory traffic."""

from collections.abc import Sequence

from autopipe.schedules import cost
from autopipe.schedules.analysis.blocks import element_bits
from autopipe.schedules.hardware import HardwareParams
from autopipe.tasks.task import Task


def lower_bound_ns(task: Task, hardware: HardwareParams) -> float:
    """Return a lower bound of the time of a call of a task; 0 if no size is known.

    Operations count as those of its narrowest dtype, so that dot products of int8 fit the bound.
    """
    tensors = (*task.inputs, *task.outputs)
    bits = min((element_bits(tensor.dtype) for tensor in tensors), default=32)
    return cost.lower_bound_ns(task.flops, task.bytes, bits, hardware)


def estimate_shares(tasks: Sequence[Task], hardware: HardwareParams) -> list[Task]:
    """Return the tasks, each with its estimated share of the total time, from 0 to 1.

    Tasks of the library for all sizes have share 0: their sizes are unknown.
    """
    times = [
        task.calls * lower_bound_ns(task, hardware) if task.likely is None else 0.0
        for task in tasks
    ]
    total = sum(times) or 1.0
    return [
        task.model_copy(update={"share": time / total})
        for task, time in zip(tasks, times, strict=True)
    ]
