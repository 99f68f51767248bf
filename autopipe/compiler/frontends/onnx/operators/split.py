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
    """Split of an open axis, or into open parts."""
    what = describe_node("Split", attr)
    sizes = extents.shape(inputs[0], what)
    axis = int(attr.get("axis", 0)) % len(sizes)
    given = numbers[1] if len(numbers) > 1 else None
    parts = list(given) if given is not None else list(attr.get("split", ()))
    if find_optional_input(inputs, 1) is not None and given is None:
        return None
    if not is_open([sizes[axis], *parts]):
        return None
    if not parts:
        many = attr["tvm_custom"]["num_outputs"]
        part = extents.simple(tirx.floordiv(as_int64(sizes[axis] + (many - 1)), as_integer(many)))
        parts = [part] * (many - 1)
        parts.append(extents.simple(sizes[axis] - part * (many - 1)))
    made, sum_of_parts = [], sum(parts)
    first: Size = 0
    extents.require(
        bb, [(sum_of_parts, sizes[axis]), (sizes[axis], sum_of_parts)],
        f"{what} has parts that are not the whole",
    )  # fmt: skip
    for place, part in enumerate(parts, 1):  # at sizes that are likely, too, all within the axis
        left = extents.simple(sizes[axis] - first)
        within = (
            extents.simple(tirx.min(as_int64(part), as_int64(left))) if place < len(parts) else left
        )
        made.append(take_part(extents, bb, inputs[0], axis, first, 1, within))
        first = extents.simple(first + within)
    return relax.Tuple(made)


def convert_dynamic_split(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """Split into parts that are computed; together they have to be the whole."""
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
