"""Optional values."""

from typing import Final

import numpy as np
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator


def convert_optional_has_element(site: NodeSite) -> Expr:
    """Convert OptionalHasElement, also of an absent input."""
    if not any(value is not None for value in site.inputs):
        return operand_facts.make_constant(np.zeros((), "bool"))
    return site.convert_by_tvm()


OPERATORS: Final = (
    Operator(name="Optional", since=28, converter=onnx_frontend.Optional_),
    Operator(name="OptionalGetElement", since=28),
    Operator(name="OptionalHasElement", since=28, converter=convert_optional_has_element),
)
