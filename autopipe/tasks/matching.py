"""Whether a pattern of the pipeline file matches a task."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from autopipe.config.match import Match
from autopipe.tasks.op_info import Op
from autopipe.tasks.task import Task


def is_match(match: Match, task: Task, share: float) -> bool:
    """Tell whether all that is given holds for a task with that share of the model's time."""
    tensors = (*task.inputs, *task.outputs)
    return (
        _is_op_match(match, task)
        and match.kind in (None, task.info.kind)
        and (match.dtype is None or any(tensor.dtype == match.dtype for tensor in tensors))
        and (match.shape is None or any(_is_shape_match(match.shape, t.shape) for t in tensors))
        and share >= (match.share or 0.0)
    )


def _is_op_match(match: Match, task: Task) -> bool:
    """Tell whether one op has the name, the attributes and the layout, all three."""
    return any(
        fnmatchcase(op.name, match.op)
        and all(
            _is_same_attribute(op.attributes.get(name), value)
            for name, value in match.attributes.items()
        )
        and match.layout in (None, op.layout)
        for op in task.info.ops or (Op(name=""),)
    )


def _is_same_attribute(found: object, wanted: object) -> bool:
    """Compare an attribute, JSON's list, with what YAML said, a tuple."""
    return found == (list(wanted) if isinstance(wanted, tuple) else wanted)


def _is_shape_match(wanted: Sequence[int | str], shape: Sequence[int]) -> bool:
    return len(wanted) == len(shape) and all(map(_is_size_match, wanted, shape))


def _is_size_match(wanted: int | str, size: int) -> bool:
    """Tell whether a size fits; one that is symbolic, -1, fits what is left open."""
    if isinstance(wanted, int) or wanted == "*":
        return wanted in (size, "*")
    least, _, most = wanted.partition("..")
    return int(least or 0) <= size and (not most or size <= int(most))
