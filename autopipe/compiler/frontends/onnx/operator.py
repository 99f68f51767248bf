"""The record of an ONNX operator: all facts that depend on its name.

Each file of `operators/` defines one operator or a close family, and ends in their records;
`OPERATORS` there lists them all. Code that reads a graph uses the record, and no other table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from onnx import FunctionProto, NodeProto, TensorProto
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.moments import Kind, Moments
from autopipe.compiler.frontends.onnx.conversion.places import PlaceRule
from autopipe.compiler.frontends.onnx.conversion.site import Converter, NodeSite
from autopipe.compiler.frontends.onnx.reading.tensors import Array, read_attributes
from autopipe.compiler.frontends.onnx.reading.value_types import Operand

ONNX: Final = ""
"""The domain of ONNX's own operators."""
MICROSOFT: Final = "com.microsoft"
"""The domain of onnxruntime's operators."""

Shape = tuple[int, ...]

DynamicRule = Callable[[NodeSite], Expr | None]
"""Converts a node of dynamic shapes to Relax. None leaves the node to the static converter."""

SizeRule = Callable[[NodeSite], Array | None]
"""Evaluates a node of known numbers, which may depend on dynamic sizes. None if the result is
unknown."""

SizeDtype = Callable[[NodeSite], str]
"""Returns the dtype of such numbers."""

Body = Callable[[NodeProto, list[Operand], int], FunctionProto]
"""Writes the function body of a node: (node, operands, opset)."""

MomentRule = Callable[[list[Moments]], Moments]
"""Computes expected moments of a result from those of the inputs that are no weights."""

RowMomentRule = Callable[[list[Moments], int], Moments]
"""The same for an operator on rows of the given length."""

SizeCheck = Callable[[NodeProto, Mapping[str, Shape], Mapping[str, TensorProto]], None]
"""Raises ModelError for a node that does not fit on its input: (node, static shapes by name,
initializers by name)."""

SizeFactor = Callable[[NodeProto, Mapping[str, TensorProto], int], Fraction | None]
"""Factor by which a node reduces a side of an image: (node, initializers, side). None if it is
unknown."""

TableLimit = Callable[[NodeProto, set[str], Shape], int | None]
"""Rows of a constant table that a node slices by sizes: (node, names of values computed from sizes,
shape of the table). None if it does not."""


ProductCount = Callable[[NodeProto, int, Shape], int]
"""Number of products per element of the result: (node, input of the kernel, its shape)."""


def count_matrix_products(node: NodeProto, slot: int, shape: Shape) -> int:
    """Return the reduction length of a matrix product from the shape of one of its factors."""
    flag = "transA" if slot == 0 else "transB"
    is_last = (slot == 0) != bool(read_attributes(node).get(flag, 0))
    return shape[-1] if is_last or len(shape) == 1 else shape[-2]


def read_first_dtype(site: NodeSite) -> str:
    """Return the dtype of the first input."""
    return str(site.inputs[0].ty.dtype)


class Trait(Flag):
    """Properties of an operator that analyses of a graph use."""

    NONE = 0
    KEEPS_ELEMENTS = auto()
    """Its result is a permutation of the first input's elements: Reshape, Transpose."""
    MOVES_ELEMENTS = auto()
    """Its result is a selection of the first input's elements, possibly repeated: Slice."""
    KEEPS_WEIGHTS = auto()
    """Its result has the role of the weight that it reads."""
    COMPUTES_SIZES = auto()
    """Models use it to compute sizes from sizes."""
    READS_SIZES = auto()
    """Its result is the size of its input: Shape."""
    ENDS_IMAGE = auto()
    """Its result is no image: sizes are not followed further."""
    NORMALIZES = auto()
    """Its result has a mean near 0 and a standard deviation near 1."""
    KEEPS_VALUES = auto()
    """Its result has the values of its inputs: Cast, Concat. Implied by KEEPS_ELEMENTS and
    MOVES_ELEMENTS."""
    LOOKS_UP = auto()
    """Its second input holds indices into the first."""
    KEEPS_ERROR = auto()
    """It amplifies no error of its first input. Implied by KEEPS_ELEMENTS and MOVES_ELEMENTS."""
    SELECTS = auto()
    """Elements of its result are elements of one of its inputs, with their errors."""
    ADDS = auto()
    """Its result is a sum or difference of its inputs."""
    ROUNDS_TO_STEPS = auto()
    """It rounds to integer steps, at which two correct programs may differ."""
    CHOOSES_ROWS = auto()
    """It selects elements by their values, or sorts them."""
    EXACT_SPECIALS = auto()
    """Its treatment of infinities and NaN equals the reference's for all `numerics`."""
    SINGULAR_AT_ZERO = auto()
    """It amplifies errors near zero, or is undefined for negative numbers."""
    LOSES_NAN = auto()
    """Builds and NumPy propagate NaN; onnxruntime drops it in some of these, `onnx` in MaxPool."""
    COMPARES = auto()
    """It propagates NaN on CPUs only: GPUs return the other operand."""
    FOLDABLE = auto()
    """onnx's reference implementation is exact, so that nodes of constants are folded."""
    REFUSES_NO_ROWS = auto()
    """It reduces rows, and is rejected if there may be none."""
    NEEDS_DEFAULTS = auto()
    """The onnx library infers a wrong type or none if its attributes are absent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One operator. A converter, a body or a pass imports it, or it is refused."""

    name: str
    domain: str = ONNX
    since: int = 1
    """The opset of the newest supported definition; older ones are supported from opset 7 on. Newer
    definitions are rejected until they were reviewed."""
    refusal: str = ""
    """The reason why it is not imported, as the end of "operators ..."."""

    converter: Converter | None = None
    """Converts a static node, with operands of static shapes and constant shape-determining inputs,
    to Relax: a class of TVM's importer, or a function. By default TVM's class of the same name,
    unless the operator is replaced or refused."""
    convert_dynamic: DynamicRule | None = None
    """Converts any other node to Relax."""
    compute_sizes: SizeRule | None = None
    size_dtype: SizeDtype = read_first_dtype
    body: Body | None = None
    """Writes its function body, which clean-up expands."""
    dynamic_body: Body | None = None
    """Writes the body of a node whose `body` depends on what is unknown until the model runs."""
    replaced_by: str = ""
    """Name of the clean-up pass that replaces it."""

    inputs: Sequence[str] = ()
    """Names of its inputs if the onnx library does not define it, empty for an optional one."""
    steering: Sequence[int] = ()
    """Inputs that are parameters: they stay in the graph as constants, and are no weights."""
    deciding: Sequence[int] = ()
    """Inputs that determine the shape of the result: the node is static if they are constant."""
    read_sizes: Sequence[int] = ()
    """Inputs that are read as data-dependent sizes if they are computed."""

    counts: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names, for messages, of inputs that are numbers from 1 on, by input index."""
    check_sizes: SizeCheck | None = None
    size_factor: SizeFactor | None = None
    table_limit: TableLimit | None = None
    places: PlaceRule | None = None
    empty_result: float | None = None
    """Its result for a reduction of size 0."""

    weights: Mapping[int, Kind] = field(default_factory=lambda: MappingProxyType({}))
    """Roles of weights, by input index."""
    count_products: ProductCount = count_matrix_products
    moments: MomentRule | None = None
    row_moments: RowMomentRule | None = None

    saturation_slope: float = 0.0
    """The steepest slope of a function that saturates at 0, 1 or -1, which bounds the propagated
    error. 0 if it does not saturate."""

    traits: Trait = Trait.NONE

    def __post_init__(self) -> None:
        if not (self.converter or self.body or self.replaced_by or self.refusal):
            object.__setattr__(self, "converter", getattr(onnx_frontend, self.name))

    def has(self, traits: Trait) -> bool:
        """Whether the operator has one of these traits."""
        return bool(self.traits.value & traits.value)  # `&` of flags takes twice as long

    @property
    def is_importable(self) -> bool:
        """Whether models with this operator can be imported."""
        return not self.refusal
