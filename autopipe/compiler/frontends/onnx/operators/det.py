"""Det: determinants of small matrices."""

import itertools
from typing import Final

from tvm import te
from tvm.ir import Expr

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.converter_types import Size
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator
from autopipe.errors import ModelError

_LARGEST: Final = 4
"""Maximum number of rows; the number of products is its factorial."""


def convert_det(site: NodeSite) -> Expr:
    """Convert Det of small matrices, as sums of products."""
    size = operand_facts.require_shape(site.inputs[0], f"input of {site.label}")[-1]
    if not 1 <= size <= _LARGEST:
        raise ModelError(f"{site.label} is of {size} rows; up to {_LARGEST} are supported")

    def determinant(data: te.Tensor) -> te.Tensor:
        def at(*index: Expr) -> Size:
            total: Size = 0
            for columns in itertools.permutations(range(size)):
                product = data[*index, 0, columns[0]]
                for row, column in list(enumerate(columns))[1:]:
                    product = product * data[*index, row, column]
                total = total + product if _is_even(columns) else total - product
            return total

        return te.compute(data.shape[:-2], at, name="det")

    return site.bb.emit_te(determinant, site.inputs[0], primfunc_name_hint="det")


def _is_even(order: tuple[int, ...]) -> bool:
    return sum(a > b for a, b in itertools.combinations(order, 2)) % 2 == 0


OPERATORS: Final = (Operator(name="Det", since=22, converter=convert_det),)
