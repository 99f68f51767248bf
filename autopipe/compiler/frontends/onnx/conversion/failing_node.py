"""Name the node at which TVM's importer fails."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

from tvm import relax
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, Inputs, Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.config.problem import format_value
from autopipe.errors import ModelError

_MOST: Final = 6
"""Maximum number of inputs in a message."""
_NODE: Final = "node '"
_LONGEST: Final = 200
"""Maximum length of TVM's message in characters."""
_TYPED: Final = re.compile(r"T\.u?int\d+\((-?\d+)\)")
"""A typed number as TVM prints it."""


class NodeError(Exception):
    """TVM cannot import a node; one line with its name, its operands and TVM's message."""


@contextmanager
def name_errors(site: NodeSite) -> Iterator[None]:
    """Raise errors of a node's conversion as NodeError or ModelError that name the node."""
    operands = list(site.inputs)  # a converter may replace them
    try:
        yield
    except NodeError:
        raise  # of an inner node
    except ModelError as error:
        if _has_node_name(str(error), site.attr):
            raise
        raise ModelError(f"{_NODE}{_read_name(site.attr)}': {error}") from error
    except Exception as error:  # TVM raises anything
        raise NodeError(_describe_failure(site.kind, operands, site.attr, error)) from error


def describe_error(error: Exception) -> str:
    """Shorten an error of TVM to one line, without the stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    message_lines = [
        line for line in lines if line and not line.startswith(("File ", "[bt]", "Traceback"))
    ]
    message = message_lines[-1] if message_lines else "no message"
    return f"{type(error).__name__}: {format_value(message, _LONGEST)}"


def _describe_failure(op: str, inputs: Inputs, attr: Attributes, error: Exception) -> str:
    operand_texts = [_describe_input(value) for value in islice(inputs, _MOST)]
    operand_texts += [f"{len(inputs) - _MOST} more"] if len(inputs) > _MOST else []
    operands_text = ", ".join(operand_texts) or "nothing"
    return f"{_NODE}{_read_name(attr)}', {op} of {operands_text}: {describe_error(error)}"


def _read_name(attr: Attributes) -> str:
    return format_value(attr.get("tvm_custom", {}).get("name", ""))


def _has_node_name(message: str, attr: Attributes) -> bool:
    """Whether an error of our converters names this node or an inner one."""
    return message.startswith(_NODE) or f"'{_read_name(attr)}'" in message


def _describe_input(value: Expr | None) -> str:
    """Format dtype and shape of an input, as far as the importer knows them."""
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
    """Format a shape with its dynamic dimensions by name: `[batch, 3, height // 2 + 1]`."""
    sizes = (_TYPED.sub(r"\1", str(dim)) for dim in dims)
    return f"[{', '.join(sizes)}]"
