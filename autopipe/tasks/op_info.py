"""Op information: the operators that a PrimFunc computes.

Lowering turns ops into loops, which lose attributes such as `strides`. This is the subject of the
Relax discussion "Extract Op Info from Primfunc": attach name, kind and attributes of the operator
to the function. A fused function has the list of its ops and their data flow.
"""

from pydantic import JsonValue

from autopipe.config.frozen import Frozen
from autopipe.tasks.tensor import Tensor

ATTRIBUTE = "op_info"
"""Attribute of a lowered PrimFunc that holds its `OpInfo` as JSON."""

KINDS = (
    "elementwise", "broadcast", "injective", "reduction", "out_elementwise_fusable",
    "unused", "unused", "tuple", "opaque",
)  # fmt: skip
"""TVM's op pattern kinds, by number; a fused function has the largest of its parts."""

LAYOUTS = ("data_layout", "layout")
"""Attributes of ops with the layout of their data."""


class Parameter(Frozen, frozen=True):
    """An argument that is an argument of the function."""

    parameter: int
    """Its index among the tensors that the function reads."""


class Result(Frozen, frozen=True):
    """An argument that another op of the function computes."""

    op: int
    """Index of that op, which precedes its reader."""
    output: int = 0
    """Index of its output."""


class Literal(Frozen, frozen=True):
    """An argument that is part of the code: a number, a shape, a constant tensor."""

    value: JsonValue
    """Infinities and NaN as the texts `inf`, `-inf` and `nan`; null for the values of a large
    constant, and of a tensor of which only the shape matters."""
    dtype: str | None = None
    """Element type of a number or a tensor."""
    shape: tuple[int, ...] | None = None
    """Of a tensor."""


class Fields(Frozen, frozen=True):
    """A tuple argument, such as the inputs of `concat` or the axes of `strided_slice`."""

    fields: tuple[Parameter | Result | Literal, ...]


Argument = Parameter | Result | Literal | Fields


class Op(Frozen, frozen=True):
    """One operator in a function."""

    name: str
    """Relax's name without `relax.`, such as `nn.conv2d`."""
    attributes: dict[str, JsonValue] = {}
    """Such as `{"strides": [1, 1], "groups": 1, "data_layout": "NHWC"}`."""
    arguments: tuple[Argument, ...] = ()
    """Its arguments, in the operator's order."""
    outputs: tuple[Tensor, ...] = ()
    """Its outputs."""
    whole: bool = True
    """Whether the function computes all of the op; some become several PrimFuncs."""

    def results(self, index: int) -> tuple[Result, ...]:
        """Return references to its outputs, for the index of the op in its function."""
        return tuple(Result(op=index, output=i) for i in range(len(self.outputs)))

    @property
    def layout(self) -> str | None:
        """The layout of its data, such as `NHWC`; None for an op without a layout."""
        layouts = (self.attributes.get(name) for name in LAYOUTS)
        return next((str(layout) for layout in layouts if layout), None)


class OpInfo(Frozen, frozen=True):
    """The operators of a PrimFunc."""

    kind: str
    """TVM's op pattern of the function, one of `KINDS`."""
    ops: tuple[Op, ...] = ()
    """Its ops in topological order; empty for a PrimFunc that was not lowered from an op."""
    results: tuple[Argument, ...] = ()
    """The results of its ops that the function returns, in order."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its ops."""
        return tuple(op.name for op in self.ops)
