"""TopK: the largest or smallest elements along an axis."""

from typing import Final

from tvm import relax, tirx, topi
from tvm.ir import Expr

from autopipe.compiler.arithmetic.float_order import FLOATS, restore_floats, to_ordered_integers
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import as_int64, is_open
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import take_part
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

AS_SORTED: Final = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""Substitute dtypes for those that TVM's runtime cannot sort."""
_COUNT_IS_AN_INPUT: Final = 10
_LEAST: Final = -(2**63)


def convert_top_k(site: NodeSite) -> Expr:
    """Convert TopK, mapping dtypes that TVM cannot sort to others of the same order.

    NaN is the largest. TVM's converter expects an attribute in opset 10, where k is an input.
    """
    if site.opset < _COUNT_IS_AN_INPUT:
        return site.convert_by_tvm()
    data, label = site.inputs[0], f"the number of results of {site.label}"
    count = int(site.require_values(1, label).item())
    sizes = operand_facts.read_extents(data.ty, f"input of {site.label}")
    size = sizes[int(site.attr.get("axis", -1))]
    if count < 0 or 0 <= size < count:
        raise ModelError(f"{site.label} asks for {count} of {size} elements")
    return rank_elements(site.bb, data, site.attr, count)


def rank_elements(bb: BlockBuilder, data: Expr, attr: Attributes, count: int) -> Expr:
    """Compute values and indices of TopK; a `count` of -1 sorts the whole axis."""
    dtype = str(data.ty.dtype)
    if dtype == "uint64":
        data = bb.normalize(_make_signed(bb, data))
    elif dtype in AS_SORTED:
        data = bb.normalize(relax.op.astype(data, AS_SORTED[dtype]))
    elif dtype in FLOATS:
        data = bb.normalize(bb.emit_te(to_ordered_integers, data, primfunc_name_hint="ordered"))
    axis, largest = attr.get("axis", -1), attr.get("largest", 1)
    ranking = relax.op.topk(data, count, axis, ret_type="both", largest=largest, dtype="int64")
    if dtype not in {*AS_SORTED, *FLOATS}:
        return ranking
    ranking = bb.normalize(ranking)
    values, places = (bb.normalize(relax.TupleGetItem(ranking, at)) for at in range(2))
    if dtype in FLOATS:
        original_values: Expr = bb.emit_te(
            restore_floats, values, dtype, primfunc_name_hint="restored"
        )
    else:
        original_values = (
            _make_unsigned(bb, values) if dtype == "uint64" else relax.op.astype(values, dtype)
        )
    return relax.Tuple([bb.normalize(original_values), places])


def _make_signed(bb: BlockBuilder, data: Expr) -> Expr:
    """Map uint64 to int64 in the same order."""
    return relax.op.bitwise_xor(_reinterpret_bits(bb, data, "int64"), relax.const(_LEAST, "int64"))


def _make_unsigned(bb: BlockBuilder, data: Expr) -> Expr:
    """Invert `_make_signed`: map int64 back to uint64."""
    signed_bits = bb.normalize(relax.op.bitwise_xor(data, relax.const(_LEAST, "int64")))
    return _reinterpret_bits(bb, signed_bits, "uint64")


def _reinterpret_bits(bb: BlockBuilder, data: Expr, dtype: str) -> Expr:
    return bb.emit_te(topi.reinterpret, data, dtype, primfunc_name_hint="same_bits")


def convert_dynamic_top_k(site: NodeSite) -> Expr | None:
    """Convert TopK with a computed k, or of a dynamic axis; None if both are static."""
    extents, bb = site.extents, site.bb
    sizes = site.read_sizes()
    axis = int(site.attr.get("axis", -1)) % len(sizes)
    if "k" in site.attr:
        count: Size = int(site.attr["k"])
    elif site.numbers[1] is not None:
        count = site.numbers[1].reshape(-1)[0]
    else:
        most = extents.bounds(sizes[axis])[1]
        count = extents.read(bb, site.inputs[1], site.name, most)[0]
    if not is_open([sizes[axis], count]):
        return None
    if extents.truth(count <= sizes[axis]) is not True:
        count = extents.simple(tirx.min(as_int64(count), as_int64(sizes[axis])))
    ranking = bb.normalize(rank_elements(bb, site.inputs[0], site.attr, -1))
    results = (bb.emit(relax.TupleGetItem(ranking, at)) for at in range(2))
    return relax.Tuple([take_part(site, one, axis, 0, count) for one in results])


OPERATORS: Final = (
    Operator(
        name="TopK",
        since=24,
        converter=convert_top_k,
        convert_dynamic=convert_dynamic_top_k,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
