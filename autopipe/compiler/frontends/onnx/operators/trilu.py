"""Trilu: a triangle of a matrix."""

from typing import Any, Final

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.operator import Operator, Trait

# ruff: noqa: ANN401  TVM's converters have no types, and one signature


class Trilu(onnx_frontend.Trilu):
    """Trilu of a diagonal that may be far outside of the matrix, further than 32 bits count."""

    @classmethod
    def _impl_v14(cls, bb: Any, inputs: Any, attr: Any, params: Any) -> Any:
        data, diagonal = (*inputs, None)[:2]
        found = operand_facts.read_values(diagonal, params)
        sizes = operand_facts.read_extents(
            data.ty, f"input of Trilu {operand_facts.quote_node_name(attr)}"
        )[-2:]
        if found is not None and min(sizes) >= 0:
            rows, columns = sizes
            nearest = min(max(int(found.item()), -rows), columns)
            diagonal = relax.const(nearest, "int64")
        return super()._impl_v14(bb, [data, diagonal], attr, params)


OPERATORS: Final = (
    Operator(
        name="Trilu",
        since=14,
        converter=Trilu,
        traits=Trait.FOLDABLE,
    ),
)
