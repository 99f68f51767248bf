"""TopK: the largest or smallest elements along an axis."""

from typing import Final

from tvm import relax, tirx, topi
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.arithmetic.float_order import FLOATS, restore_floats, to_ordered_integers
from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Numbers,
    Parameters,
    Size,
)
from autopipe.compiler.frontends.onnx.conversion.operand_facts import read_node_name
from autopipe.compiler.frontends.onnx.dynamic_sizes.extents import (
    Extents,
    as_int64,
    is_open,
)
from autopipe.compiler.frontends.onnx.dynamic_sizes.shape_converters import describe_node, take_part
from autopipe.compiler.frontends.onnx.operator import Operator, Trait
from autopipe.errors import ModelError

AS_SORTED: Final = {"int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""What is sorted in the place of numbers that TVM's runtime does not sort."""
_LEAST: Final = -(2**63)


class TopK(onnx_frontend.TopK):
    """TopK of numbers that TVM does not sort, as others in the same order; NaN is the largest.

    TVM's converter looks for an attribute in opset 10, which has the number as an input.
    """

    @classmethod
    def _impl_v10(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        data, what = inputs[0], f"TopK {operand_facts.quote_node_name(attr)}"
        count = int(
            operand_facts.require_values(
                inputs[1], params, f"the number of results of {what}"
            ).item()
        )
        size = operand_facts.read_extents(data.ty, f"input of {what}")[int(attr.get("axis", -1))]
        if count < 0 or 0 <= size < count:
            raise ModelError(f"{what} asks for {count} of {size} elements")
        return rank_elements(bb, data, attr, count)

    _impl_v11 = _impl_v10


def rank_elements(bb: BlockBuilder, data: Expr, attr: Attributes, count: int) -> Expr:
    """Return the values and places of TopK; with -1 for `count`, of the whole axis."""
    dtype = str(data.ty.dtype)
    if dtype == "uint64":
        data = bb.normalize(_make_signed(bb, data))
    elif dtype in AS_SORTED:
        data = bb.normalize(relax.op.astype(data, AS_SORTED[dtype]))
    elif dtype in FLOATS:
        data = bb.normalize(bb.emit_te(to_ordered_integers, data, primfunc_name_hint="ordered"))
    axis, largest = attr.get("axis", -1), attr.get("largest", 1)
    found = relax.op.topk(data, count, axis, ret_type="both", largest=largest, dtype="int64")
    if dtype not in {*AS_SORTED, *FLOATS}:
        return found
    found = bb.normalize(found)
    values, places = (bb.normalize(relax.TupleGetItem(found, at)) for at in range(2))
    if dtype in FLOATS:
        same: Expr = bb.emit_te(restore_floats, values, dtype, primfunc_name_hint="restored")
    else:
        same = _make_unsigned(bb, values) if dtype == "uint64" else relax.op.astype(values, dtype)
    return relax.Tuple([bb.normalize(same), places])


def _make_signed(bb: BlockBuilder, data: Expr) -> Expr:
    """Return numbers of 64 bits without a sign as signed ones in the same order."""
    return relax.op.bitwise_xor(_reinterpret_bits(bb, data, "int64"), relax.const(_LEAST, "int64"))


def _make_unsigned(bb: BlockBuilder, data: Expr) -> Expr:
    """Return what `_signed` was made of."""
    signed = bb.normalize(relax.op.bitwise_xor(data, relax.const(_LEAST, "int64")))
    return _reinterpret_bits(bb, signed, "uint64")


def _reinterpret_bits(bb: BlockBuilder, data: Expr, dtype: str) -> Expr:
    return bb.emit_te(topi.reinterpret, data, dtype, primfunc_name_hint="same_bits")


def convert_dynamic_top_k(
    extents: Extents, bb: BlockBuilder, inputs: Inputs, numbers: Numbers, attr: Attributes
) -> Expr | None:
    """TopK with a number of results that is computed, or of an axis that may be shorter."""
    what = describe_node("TopK", attr)
    sizes = extents.shape(inputs[0], what)
    axis = int(attr.get("axis", -1)) % len(sizes)
    if "k" in attr:
        count: Size = int(attr["k"])
    elif numbers[1] is not None:
        count = numbers[1].reshape(-1)[0]
    else:
        most = extents.bounds(sizes[axis])[1]
        count = extents.read(bb, inputs[1], read_node_name(attr), most)[0]
    if not is_open([sizes[axis], count]):
        return None
    if extents.truth(count <= sizes[axis]) is not True:
        count = extents.simple(tirx.min(as_int64(count), as_int64(sizes[axis])))
    made = bb.normalize(rank_elements(bb, inputs[0], attr, -1))
    results = (bb.emit(relax.TupleGetItem(made, at)) for at in range(2))
    return relax.Tuple([take_part(extents, bb, one, axis, 0, 1, count) for one in results])


OPERATORS: Final = (
    Operator(
        name="TopK",
        since=24,
        converter=TopK,
        convert_dynamic=convert_dynamic_top_k,
        deciding=(1,),
        traits=Trait.FOLDABLE | Trait.CHOOSES_ROWS,
    ),
)
