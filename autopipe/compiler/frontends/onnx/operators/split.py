"""Split."""

from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Size,
    find_optional_input,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import read_node_name
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    as_integer,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node, take_part
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def _split_into_known_parts(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Split of a dynamic axis, or into dynamic parts; None if all are static."""
    label = describe_node("Split", attr)
    sizes = extents.shape(inputs[0], label)
    axis = int(attr.get("axis", 0)) % len(sizes)
    split_sizes = numbers[1] if len(numbers) > 1 else None
    parts = list(split_sizes) if split_sizes is not None else list(attr.get("split", ()))
    if find_optional_input(inputs, 1) is not None and split_sizes is None:
        return None
    if not is_open([sizes[axis], *parts]):
        return None
    if not parts:
        part_count = attr["tvm_custom"]["num_outputs"]
        part = extents.simple(
            tirx.floordiv(as_int64(sizes[axis] + (part_count - 1)), as_integer(part_count))
        )
        parts = [part] * (part_count - 1)
        parts.append(extents.simple(sizes[axis] - part * (part_count - 1)))
    outputs, sum_of_parts = [], sum(parts)
    first: Size = 0
    extents.require(
        bb, [(sum_of_parts, sizes[axis]), (sizes[axis], sum_of_parts)],
        f"{label} has parts that are not the whole",
    )  # fmt: skip
    for place, part in enumerate(parts, 1):  # within the axis at specialized sizes, too
        left = extents.simple(sizes[axis] - first)
        within = (
            extents.simple(tirx.min(as_int64(part), as_int64(left))) if place < len(parts) else left
        )
        outputs.append(take_part(extents, bb, inputs[0], axis, first, 1, within))
        first = extents.simple(first + within)
    return relax.Tuple(outputs)


def convert_dynamic_split(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Convert Split into computed parts, which have to sum to the axis."""
    if find_optional_input(inputs, 1) is None or numbers[1] is not None:
        return _split_into_known_parts(extents, bb, inputs, numbers, attr)
    sizes = extents.shape(inputs[0], describe_node("Split", attr))
    most = extents.bounds(sizes[int(attr.get("axis", 0))])[1]
    parts = extents.read(bb, inputs[1], read_node_name(attr), most, relax.const([True], "bool"))
    return _split_into_known_parts(extents, bb, inputs, [numbers[0], parts], attr)


OPERATORS: Final = (
    Operator(
        name="Split",
        since=18,
        converter=onnx_frontend.Split,
        convert_dynamic=convert_dynamic_split,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
)
