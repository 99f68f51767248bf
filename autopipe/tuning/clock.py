"""Bytes that a model touches between two calls of a kernel, from the table of its tasks."""

import math
from collections.abc import Iterable
from typing import Final

from autopipe.measure.caches import LARGEST
from autopipe.measure.measurement import Surroundings
from autopipe.tasks.task import Task
from autopipe.tasks.weights import count_call_weight_bytes, count_weight_bytes

_FAR: Final = 64 << 20
"""Bytes of models of which a cache may still have something; larger ones touch `LARGEST`. A third-
level cache may nominally hold them, and be shared with other machines: U-Net touches 128
MiB, and its kernels took 1.23 times their trials behind so much where that has 480 MiB, and 1.03
times those behind 512 MiB."""

_SMALLEST: Final = 1 << 20


def estimate_touched_bytes(tasks: Iterable[Task]) -> int:
    """Return how many bytes a model touches in one run, in the nearest power of two.

    It is 1 MiB at least, and 512 MiB for all from 91 MiB on: so models share what they have
    measured.

    These are its weights, each once, and the storage of its activations, which is used again and
    again: what the largest kernel reads and writes. So ResNet-50 with 98 MiB of weights touches 512
    MiB, and an encoder of 1.3 MiB touches 1: of 2 its weights would not find room in a second-level
    cache that has room for them.
    """
    task_list = list(tasks)
    largest = max((task.bytes - count_call_weight_bytes(task) for task in task_list), default=0)
    total = count_weight_bytes(task_list) + largest
    size = _SMALLEST
    while size * math.sqrt(2) < total:
        size *= 2
    return size if size <= _FAR else LARGEST


def describe_surroundings(task: Task, size: int) -> Surroundings:
    """Describe the caches and operands at a task's kernel in a model that touches `size` bytes."""
    inputs = range(len(task.inputs))
    weights = tuple(at for at in inputs if at in task.weights)
    return Surroundings(size, tuple(at for at in inputs if at not in weights), weights)


def name_clock(size: int) -> str | None:
    """Return the name of the clock in a model that touches `size` bytes; null for a loop."""
    return f"model, {size >> 20} MiB" if size else None
