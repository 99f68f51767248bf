"""Concat and Split."""

from dataclasses import replace
from typing import Final

from tvm import relax, tirx
from tvm.ir import Expr

from autopipe.compiler.frontends import moments as rules
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes import arithmetic
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, as_integer, is_open
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import take_part
from autopipe.compiler.frontends.onnx.operator import Operator, Trait


def _split_into_known_parts(site: NodeSite) -> Expr | None:
    """Convert Split of a dynamic axis, or into dynamic parts; None if all are static."""
    extents = site.extents
    label = site.label
    sizes = site.read_sizes()
    axis = int(site.attr.get("axis", 0)) % len(sizes)
    split_sizes = site.numbers[1] if len(site.numbers) > 1 else None
    parts = list(split_sizes) if split_sizes is not None else list(site.attr.get("split", ()))
    if site.find_input(1) is not None and split_sizes is None:
        return None
    if not is_open([sizes[axis], *parts]):
        return None
    if not parts:
        part_count = site.output_count
        part = extents.simple(
            tirx.floordiv(as_int64(sizes[axis] + (part_count - 1)), as_integer(part_count))
        )
        parts = [part] * (part_count - 1)
        parts.append(extents.simple(sizes[axis] - part * (part_count - 1)))
    outputs, sum_of_parts = [], sum(parts)
    first: Size = 0
    extents.require(
        site.bb, [(sum_of_parts, sizes[axis]), (sizes[axis], sum_of_parts)],
        f"{label} has parts that are not the whole",
    )  # fmt: skip
    for place, part in enumerate(parts, 1):  # within the axis at specialized sizes, too
        left = extents.simple(sizes[axis] - first)
        within = (
            extents.simple(tirx.min(as_int64(part), as_int64(left))) if place < len(parts) else left
        )
        outputs.append(take_part(site, site.inputs[0], axis, first, within))
        first = extents.simple(first + within)
    return relax.Tuple(outputs)


def convert_dynamic_split(site: NodeSite) -> Expr | None:
    """Convert Split into computed parts, which have to sum to the axis."""
    extents = site.extents
    if site.find_input(1) is None or site.numbers[1] is not None:
        return _split_into_known_parts(site)
    sizes = site.read_sizes()
    most = extents.bounds(sizes[int(site.attr.get("axis", 0))])[1]
    parts = extents.read(site.bb, site.inputs[1], site.name, most, relax.const([True], "bool"))
    return _split_into_known_parts(replace(site, numbers=[site.numbers[0], parts]))


OPERATORS: Final = (
    Operator(
        name="Concat",
        since=13,
        compute_sizes=arithmetic.move_numbers,
        moments=rules.mixed,
        traits=Trait.FOLDABLE
        | Trait.COMPUTES_SIZES
        | Trait.SELECTS
        | Trait.EXACT_SPECIALS
        | Trait.KEEPS_VALUES,
    ),
    Operator(
        name="Split",
        since=18,
        convert_dynamic=convert_dynamic_split,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.KEEPS_ERROR | Trait.EXACT_SPECIALS,
    ),
)
