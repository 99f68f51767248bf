"""Match tasks against patterns of the pipeline file."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from autopipe.config.match import Match
from autopipe.tasks.op_info import Op
from autopipe.tasks.task import Task


def is_match(match: Match, task: Task, share: float) -> bool:
    """Return whether all given fields match a task with that share of the model's time."""
    tensors = (*task.inputs, *task.outputs)
    return (
        _is_op_match(match, task)
        and match.kind in (None, task.info.kind)
        and (match.dtype is None or any(tensor.dtype == match.dtype for tensor in tensors))
        and (match.shape is None or any(_is_shape_match(match.shape, t.shape) for t in tensors))
        and share >= (match.share or 0.0)
    )


def _is_op_match(match: Match, task: Task) -> bool:
    """Return whether one op has the name, the attributes and the layout."""
    return any(
        fnmatchcase(op.name, match.op)
        and all(
            _is_same_attribute(op.attributes.get(name), value)
            for name, value in match.attributes.items()
        )
        and match.layout in (None, op.layout)
        for op in task.info.ops or (Op(name=""),)
    )


def _is_same_attribute(attribute: object, pattern: object) -> bool:
    """Compare an attribute from JSON (a list) with a pattern from YAML (a tuple)."""
    return attribute == (list(pattern) if isinstance(pattern, tuple) else pattern)


def _is_shape_match(pattern: Sequence[int | str], shape: Sequence[int]) -> bool:
    return len(pattern) == len(shape) and all(map(_is_size_match, pattern, shape))


def _is_size_match(pattern: int | str, size: int) -> bool:
    """Return whether a size matches; a symbolic one, -1, matches only a range without minimum."""
    if isinstance(pattern, int) or pattern == "*":
        return pattern in (size, "*")
    minimum, _, maximum = pattern.partition("..")
    return int(minimum or 0) <= size and (not maximum or size <= int(maximum))
