"""Says which node it was, where TVM's importer fails."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converted_nodes import ConvertedNodes
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Convert,
    Converter,
    Inputs,
    Parameters,
    Size,
)
from autopipe.config.problem import format_value
from autopipe.errors import ModelError

_MOST: Final = 6
"""Inputs that are told."""
_NODE: Final = "node '"
_LONGEST: Final = 200
"""Characters of what TVM said."""
_TYPED: Final = re.compile(r"T\.u?int\d+\((-?\d+)\)")
"""A number as TVM prints it."""


class NodeError(Exception):
    """TVM can not import a node; says in a line which, of what, and what TVM said."""


class Named:
    """A converter of TVM whose errors name the node that it was called for."""

    def __init__(self, op: str, converter: Converter, converted: ConvertedNodes) -> None:
        self._op = op
        self._converter = converter
        self._converted = converted

    def get_converter(self, opset: int) -> Convert:
        """Return what converts a node, as TVM's importer calls it."""

        def convert(bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters) -> Expr:
            given = list(inputs)  # a converter may put others into their place
            try:
                made = self._converter.get_converter(opset)(bb, inputs, attr, params)
                made = bb.normalize(made) if isinstance(made, relax.Expr) else made
            except NodeError:
                raise  # of a node inside this one
            except ModelError as error:
                if _has_node_name(str(error), attr):
                    raise
                raise ModelError(f"{_NODE}{_read_name(attr)}': {error}") from error
            except Exception as error:  # TVM raises what it likes
                raise NodeError(_describe_failure(self._op, given, attr, error)) from error
            self._converted.record(attr, made)
            return made

        return convert


def name_errors(converters: Mapping[str, Converter], converted: ConvertedNodes) -> dict[str, Named]:
    """Return converters by operator, whose errors say which node it was; record what they make."""
    return {op: Named(op, converter, converted) for op, converter in converters.items()}


def describe_error(error: Exception) -> str:
    """Return the account of an error of TVM as one line, without the trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("File ", "[bt]", "Traceback"))]
    return f"{type(error).__name__}: {format_value(told[-1] if told else 'no message', _LONGEST)}"


def _describe_failure(op: str, inputs: Inputs, attr: Attributes, error: Exception) -> str:
    told = [_describe_input(value) for value in islice(inputs, _MOST)]
    told += [f"{len(inputs) - _MOST} more"] if len(inputs) > _MOST else []
    inputs_told = ", ".join(told) or "nothing"
    return f"{_NODE}{_read_name(attr)}', {op} of {inputs_told}: {describe_error(error)}"


def _read_name(attr: Attributes) -> str:
    return format_value(attr.get("tvm_custom", {}).get("name", ""))


def _has_node_name(message: str, attr: Attributes) -> bool:
    """Whether an error of a converter of ours names this node, or one inside it."""
    return message.startswith(_NODE) or f"'{_read_name(attr)}'" in message


def _describe_input(value: Expr | None) -> str:
    """Say dtype and shape of an input, as far as the importer knows them."""
    if value is None:
        return "none"
    kind = getattr(value, "ty", None)
    if isinstance(kind, relax.TensorType):
        dims = getattr(kind.shape, "values", None)
        return format_value(
            f"{kind.dtype} {'of unknown shape' if dims is None else describe_shape(dims)}"
        )
    if isinstance(kind, relax.ShapeType):
        return format_value(f"a shape {describe_shape(kind.values or ())}")
    return format_value(type(value).__name__)


def describe_shape(dims: Sequence[Size]) -> str:
    """Write a shape, open sizes by their names: `[batch, 3, height // 2 + 1]`."""
    told = (_TYPED.sub(r"\1", str(dim)) for dim in dims)
    return f"[{', '.join(told)}]"
