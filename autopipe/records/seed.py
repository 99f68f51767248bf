"""Seeds: fast schedules from logs of other tools, tried early and never trusted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autopipe.tasks.op_info import Op, Parameter, Result
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Seed:
    """The knobs that were fast for an operator, elsewhere."""

    key: str
    """The operator with its sizes, as `format_convolution_key` and `format_dense_key` write it."""
    document: str
    """JSON of the log's template and knobs."""
    origin: str
    """The log's target, as it is written there."""
    seconds: float
    """Seconds in the log: they order seeds, and hold for another machine."""


def format_convolution_key(
    data: Sequence[int],
    kernel: Sequence[int],
    steps: Sequence[Sequence[int]],
    groups: int,
    dtype: str,
) -> str:
    """Write a convolution down: `data` is [N, C, H, W], `kernel` [O, I, H, W].

    `steps` are strides, padding and dilation.
    """
    strides, padding, dilation = map(list, steps)
    sides = padding * 2 if len(padding) == _PAIR else padding
    return _to_key("conv2d", data, kernel, strides, sides, dilation, groups, dtype)


def format_dense_key(rows: int, columns: int, terms: int, dtype: str) -> str:
    """Format the key of a dense layer: a product of `rows` by `terms` and `terms` by `columns`."""
    return _to_key("dense", rows, columns, terms, dtype)


def list_seed_keys(task: Task) -> list[str]:
    """List the seed keys of the operators of a task."""
    keys = (_WAYS[op.name](task, op) for op in task.info.ops if op.name in _WAYS)
    return [key for key in keys if key is not None]


def _to_key(*parts: object) -> str:
    return json.dumps(parts, separators=(",", ":"))


def _format_convolution(task: Task, op: Op) -> str | None:
    data, kernel = _find_argument(task, op, 0), _find_argument(task, op, 1)
    layouts = op.attributes.get("data_layout"), op.attributes.get("kernel_layout")
    if data is None or kernel is None or None in layouts:
        return None
    pairs = ((data, str(layouts[0]), "NCHW"), (kernel, str(layouts[1]), "OIHW"))
    shape, weight = (_permute_shape(*pair) for pair in pairs)
    steps = [op.attributes.get(name) for name in ("strides", "padding", "dilation")]
    if shape is None or weight is None or not all(isinstance(step, list) for step in steps):
        return None
    groups = op.attributes.get("groups")
    return format_convolution_key(shape, weight, steps, groups, data.dtype)  # type: ignore[arg-type]


def _permute_shape(tensor: Tensor, layout: str, target_layout: str) -> list[int] | None:
    """Return the shape in another order of axes; None where they are split."""
    if sorted(layout) != sorted(target_layout) or len(layout) != len(tensor.shape):
        return None
    return [tensor.shape[layout.index(axis)] for axis in target_layout]


def _format_dense(task: Task, op: Op) -> str | None:
    data, weight = _find_argument(task, op, 0), _find_argument(task, op, 1)
    if data is None or weight is None or not op.outputs:
        return None
    if len(data.shape) != _PAIR or len(weight.shape) != _PAIR:
        return None
    rows, columns = op.outputs[0].shape
    return format_dense_key(rows, columns, data.shape[1], data.dtype)


def _find_argument(task: Task, op: Op, place: int) -> Tensor | None:
    """Return the tensor that an operator reads."""
    if place >= len(op.arguments):
        return None
    argument = op.arguments[place]
    if isinstance(argument, Parameter):
        tensors = task.inputs
        return tensors[argument.parameter] if argument.parameter < len(tensors) else None
    if isinstance(argument, Result):
        return task.info.ops[argument.op].outputs[argument.output]
    return None


_WAYS = {"nn.conv2d": _format_convolution, "matmul": _format_dense, "nn.dense": _format_dense}
