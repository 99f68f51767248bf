"""Count the bytes of weights that a model reads, from the table of its tasks."""

from collections import Counter
from collections.abc import Iterable, Sequence

from autopipe.tasks.task import Task


def count_call_weight_bytes(task: Task) -> int:
    """Count the bytes of weights that one call of a task reads."""
    inputs: Sequence[int] = [tensor.bytes for tensor in task.inputs]
    return sum(inputs[at] for at in task.weights if at < len(inputs))


def count_weight_bytes(tasks: Iterable[Task]) -> int:
    """Count the bytes of weights that a model reads in a run.

    A package for several sizes has a library for each, and only one of them runs: the maximum
    counts.
    """
    weights: Counter[str] = Counter()
    for task in tasks:
        for name in task.functions:
            library = name.partition("@")[2]
            weights[library] += task.calls * count_call_weight_bytes(task) // len(task.functions)
    return max(weights.values(), default=0)
