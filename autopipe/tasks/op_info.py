"""Op information: what a PrimFunc computes, said in operators.

Lowering turns ops into loops, and loops do not say `strides`. The question is the one of the Relax
discussion "Extract Op Info from Primfunc": name, kind and attributes of the operator, with the
function. A fused function has the list of its ops and how they feed each other.
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
"""Attributes in which ops keep the layout of their data."""


class Parameter(Frozen, frozen=True):
    """An argument that is an argument of the function."""

    parameter: int
    """Its index among the tensors that the function reads."""


class Result(Frozen, frozen=True):
    """An argument that another op of the function computes."""

    op: int
    """Index of that op, which stands before the one that reads it."""
    output: int = 0
    """Which of its outputs."""


class Literal(Frozen, frozen=True):
    """An argument that is part of the code: a number, a shape, a constant tensor."""

    value: JsonValue
    """Infinities and what is no number as the texts `inf`, `-inf` and `nan`; null for the values
    of a large constant, and of a tensor whose shape is all that counts."""
    dtype: str | None = None
    """Element type, of a number and of a tensor."""
    shape: tuple[int, ...] | None = None
    """Of a tensor."""


class Fields(Frozen, frozen=True):
    """An argument that is a tuple, such as what `concat` joins or the axes of `strided_slice`."""

    fields: tuple[Parameter | Result | Literal, ...]


Argument = Parameter | Result | Literal | Fields


class Op(Frozen, frozen=True):
    """One operator in a function."""

    name: str
    """Relax's name without `relax.`, such as `nn.conv2d`."""
    attributes: dict[str, JsonValue] = {}
    """Such as `{"strides": [1, 1], "groups": 1, "data_layout": "NHWC"}`."""
    arguments: tuple[Argument, ...] = ()
    """What it is applied to, in the operator's own order."""
    outputs: tuple[Tensor, ...] = ()
    """What it computes."""
    whole: bool = True
    """Whether the function computes all of the op; some become several PrimFuncs."""

    def results(self, index: int) -> tuple[Result, ...]:
        """Return its outputs as results of the op with that index in its function."""
        return tuple(Result(op=index, output=i) for i in range(len(self.outputs)))

    @property
    def layout(self) -> str | None:
        """The layout of its data, such as `NHWC`; None for an op that has none."""
        found = (self.attributes.get(name) for name in LAYOUTS)
        return next((str(layout) for layout in found if layout), None)


class OpInfo(Frozen, frozen=True):
    """What a PrimFunc computes."""

    kind: str
    """TVM's op pattern of the function, one of `KINDS`."""
    ops: tuple[Op, ...] = ()
    """Its ops, each after those that it reads; empty for a PrimFunc that no op was lowered to."""
    results: tuple[Argument, ...] = ()
    """Which of what its ops compute the function returns, in order."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its ops."""
        return tuple(op.name for op in self.ops)
