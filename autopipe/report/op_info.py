"""Format op information as a listing: each op with its arguments, attributes and results."""

from collections.abc import Iterator, Mapping
from textwrap import wrap

from pydantic import JsonValue

from autopipe.report.escape import escape_text
from autopipe.tasks.op_info import Argument, Fields, Literal, Op, OpInfo, Parameter, Result
from autopipe.tasks.task import Task
from autopipe.tasks.tensor import Tensor

_LONG = 2000
"""Largest number of characters of one op."""

_UNSET: tuple[JsonValue, ...] = (None, "", "void", [], {})
"""Values of unset attributes, which are omitted."""


def list_op_lines(task: Task, width: int) -> list[str]:
    """List the ops of a task, such as `%0 = nn.conv2d(p0, p1; strides=[1, 1]) -> ...`.

    `p` are its inputs, `%` the results of its ops; `?` is unknown. False or empty attributes are
    omitted.
    """
    ops = task.info.ops
    several = [len(op.outputs) > 1 for op in ops]
    lines = [f"p{at}: {format_tensor(given)}" for at, given in enumerate(task.inputs)]
    lines += [f"%{at} = {_format_op(op, several)}" for at, op in enumerate(ops)]
    if task.info.results:
        lines.append(
            f"return {', '.join(_format_argument(result, several) for result in task.info.results)}"
        )
    elif not ops:
        lines.append("no op was lowered to it")
    return [part for line in lines for part in _wrap_line(escape_text(line, _LONG), width)]


def count_result_bytes(info: OpInfo) -> int:
    """Count the bytes of all results; 0 if one is unknown."""
    sizes = [
        info.ops[one.op].outputs[one.output].bytes
        for one in info.results
        if isinstance(one, Result) and one.output < len(info.ops[one.op].outputs)
    ]
    return sum(sizes) if len(sizes) == len(info.results) else 0


def format_tensor(argument: Tensor) -> str:
    """Format a shape and an element type."""
    return f"{format_shape(argument)} {argument.dtype}"


def format_shape(argument: Tensor) -> str:
    """Format a shape, such as `1x56x56x64`; `?` is a symbolic dimension."""
    return "x".join("?" if size < 0 else str(size) for size in argument.shape) or "scalar"


def _wrap_line(line: str, width: int) -> list[str]:
    return wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)


def _format_op(op: Op, several: list[bool]) -> str:
    arguments = ", ".join(_format_argument(argument, several) for argument in op.arguments)
    attributes = ", ".join(_list_attributes(op.attributes))
    argument_text = "; ".join(filter(None, (arguments, attributes)))
    part = "" if op.whole else " (a part of it)"
    return f"{op.name}({argument_text}) -> {', '.join(map(format_tensor, op.outputs)) or '?'}{part}"


def _list_attributes(attributes: Mapping[str, JsonValue]) -> Iterator[str]:
    for name, value in attributes.items():
        if value is not False and value not in _UNSET:
            yield f"{name}={_format_value(value)}"


def _format_argument(argument: Argument, several: list[bool]) -> str:
    if isinstance(argument, Parameter):
        return f"p{argument.parameter}"
    if isinstance(argument, Fields):
        return f"({', '.join(_format_argument(field, several) for field in argument.fields)})"
    if isinstance(argument, Literal):
        dtype = f" {argument.dtype}" if argument.dtype else ""
        return f"{'?' if argument.value is None else _format_value(argument.value)}{dtype}"
    which = f".{argument.output}" if several[argument.op] else ""
    return f"%{argument.op}{which}"


def _format_value(value: JsonValue) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
