"""The record of an ONNX operator: everything that autopipe knows of it by its name.

Each file of `operators/` defines one operator or a close family, and ends in their records;
`OPERATORS` there lists them all. What reads a graph asks the record of a node, and no other table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from onnx import FunctionProto, NodeProto, TensorProto
from tvm.ir import Expr

from autopipe.compiler.frontends.moments import Kind, Moments
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Converter,
    Inputs,
    Numbers,
)
from autopipe.compiler.frontends.onnx.conversion.place_limits import PlaceRule
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import Extents
from autopipe.compiler.frontends.onnx.reading.operand import Operand
from autopipe.compiler.frontends.onnx.reading.tensors import Array

ONNX: Final = ""
"""The domain of ONNX's own operators."""
MICROSOFT: Final = "com.microsoft"
"""The domain of onnxruntime's operators."""

Shape = tuple[int, ...]

DynamicRule = Callable[[Extents, BlockBuilder, Inputs, Numbers, Attributes], Expr | None]
"""Makes Relax of a node of dynamic shapes: (extents, block builder, inputs, their numbers,
attributes). None leaves the node to the static converter."""

SizeRule = Callable[[Extents, Numbers, Attributes], Array | None]
"""Computes numbers of open sizes: (extents, numbers of the inputs, attributes). None where the
result is not known."""

SizeDtype = Callable[[Sequence[str], Attributes], str]
"""The dtype of such numbers, from those of the inputs and the attributes."""

ControlConverter = Callable[..., Expr]
"""Makes Relax of a node with inner graphs: (`BodyFunctions`, `ControlSite`)."""

Body = Callable[[NodeProto, list[Operand], int], FunctionProto]
"""Writes a node as simpler operators: (node, operands, opset)."""

MomentRule = Callable[[list[Moments]], Moments]
"""Expected moments of a result, from those of the inputs that are no weights."""

RowMomentRule = Callable[[list[Moments], int], Moments]
"""The same of an operator on rows, which are so long."""

SizeCheck = Callable[[NodeProto, Mapping[str, Shape], Mapping[str, TensorProto]], None]
"""Raises ModelError for a node that has no place on its input: (node, static shapes by name,
stored tensors by name)."""

SizeFactor = Callable[[NodeProto, Mapping[str, TensorProto], int], Fraction | None]
"""By how much a node makes a side of an image smaller: (node, stored tensors, side). None where it
is not known."""

TableLimit = Callable[[NodeProto, set[str], Shape], int | None]
"""Rows of a constant table of which a node takes a part: (node, names of values made of sizes,
shape of the table). None where it takes another part."""


ProductCount = Callable[[NodeProto, int, Shape], int]
"""How many products an element of the result sums over: (node, input of the kernel, its shape)."""


def count_matrix_products(node: NodeProto, slot: int, shape: Shape) -> int:
    """Return how many products a matrix product sums over, from the shape of one of its factors."""
    flag = "transA" if slot == 0 else "transB"
    flipped = any(field.i for field in node.attribute if field.name == flag)
    is_last = (slot == 0) != flipped
    return shape[-1] if is_last or len(shape) == 1 else shape[-2]


def choose_first_dtype(dtypes: Sequence[str], attr: Attributes) -> str:  # noqa: ARG001
    """Return the dtype of the first input."""
    return dtypes[0]


class Trait(Flag):
    """What holds for an operator, for those who read a graph."""

    NONE = 0
    KEEPS_ELEMENTS = auto()
    """Its result has each element of the first input once: Reshape, Transpose."""
    MOVES_ELEMENTS = auto()
    """Its result has elements of the first input, some of them or some more than once: Slice."""
    KEEPS_WEIGHTS = auto()
    """Its result plays the part of the weight that it is made of."""
    COMPUTES_SIZES = auto()
    """Models use it to compute sizes from sizes."""
    READS_SIZES = auto()
    """Its result is the size of its input: Shape."""
    ENDS_IMAGE = auto()
    """Behind it, sizes of an image are no longer sizes of an image."""
    NORMALIZES = auto()
    """Its result has a mean near 0 and a deviation near 1."""
    KEEPS_VALUES = auto()
    """Its result has the values of its inputs: Cast, Concat. So has one that keeps or moves
    elements."""
    LOOKS_UP = auto()
    """Its second input has indices into the first."""
    KEEPS_ERROR = auto()
    """It amplifies no error of its first input. So does one that keeps or moves elements."""
    SELECTS = auto()
    """Elements of its result are elements of one input or another, with their errors."""
    ADDS = auto()
    """Its result is a sum of its inputs, or a difference."""
    ROUNDS_TO_STEPS = auto()
    """It rounds to integer steps, at which two correct programs may part."""
    CHOOSES_ROWS = auto()
    """It selects elements by their values, or sorts them."""
    EXACT_SPECIALS = auto()
    """It is promised to treat infinities and NaN as the reference does, whatever `numerics`."""
    SINGULAR_AT_ZERO = auto()
    """It amplifies errors near zero, or is undefined for negative numbers."""
    LOSES_NAN = auto()
    """Builds and NumPy propagate NaN; onnxruntime drops it in some of these, `onnx` in MaxPool."""
    COMPARES = auto()
    """It propagates NaN on processors alone: GPUs return the other operand."""
    FOLDABLE = auto()
    """The reference of the onnx library computes it as ONNX defines it, so that a node of constants
    is one."""
    REFUSES_NO_ROWS = auto()
    """It adds up rows, and is refused where there may be none."""
    NEEDS_DEFAULTS = auto()
    """The onnx library infers a wrong type, or none, unless its attributes are written out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One operator. It is importable if it has a converter, a body or a pass that replaces it."""

    name: str
    domain: str = ONNX
    since: int = 1
    """The opset that brought the newest definition which is followed; older ones are too, from
    opset 7 on. A newer one is refused until somebody has read what changed."""
    refusal: str = ""
    """Why it is not imported, as the end of "operators ...": "whose results are random"."""

    converter: Converter | None = None
    """A class like TVM's `OnnxOpConverter`: makes Relax of a static node, whose operands have fixed
    shapes and whose deciding inputs are constant."""
    convert_dynamic: DynamicRule | None = None
    """Makes Relax of any other node."""
    compute_sizes: SizeRule | None = None
    size_dtype: SizeDtype = choose_first_dtype
    convert_control: ControlConverter | None = None
    body: Body | None = None
    """None is left of it once the graph is cleaned up."""
    replaced_by: str = ""
    """Name of the clean-up pass that replaces all of it."""

    inputs: Sequence[str] = ()
    """Names of its inputs where the onnx library has no definition of it, empty for one that may be
    left out."""
    steering: Sequence[int] = ()
    """Inputs that steer it: they stay in the graph as constants, and are no weights."""
    deciding: Sequence[int] = ()
    """Inputs whose values decide the shape of a result: the node is static if they are constant."""
    read_sizes: Sequence[int] = ()
    """Inputs that are read as sizes where only the running model knows them."""

    check_sizes: SizeCheck | None = None
    size_factor: SizeFactor | None = None
    table_limit: TableLimit | None = None
    places: PlaceRule | None = None
    empty_result: float | None = None
    """Its result where it reduces rows of which there are none."""

    weights: Mapping[int, Kind] = field(default_factory=lambda: MappingProxyType({}))
    """Roles of weights, by the input at which they are."""
    count_products: ProductCount = count_matrix_products
    moments: MomentRule | None = None
    row_moments: RowMomentRule | None = None

    saturation_slope: float = 0.0
    """The steepest slope of a function that saturates at 0, 1 or -1: it bounds how much of an error
    of the operand is in the result. 0 where it saturates nowhere."""

    traits: Trait = Trait.NONE

    def has(self, traits: Trait) -> bool:
        """Tell whether one of these traits holds."""
        return bool(self.traits & traits)

    @property
    def is_importable(self) -> bool:
        """Whether a model may have it."""
        ways = (self.converter, self.convert_control, self.body, self.replaced_by)
        return not self.refusal and any(ways)
