"""If, Loop and Scan."""

from typing import Final

from autopipe.compiler.frontends.onnx.control import branches, loops
from autopipe.compiler.frontends.onnx.operator import Operator

OPERATORS: Final = (
    Operator(name="If", since=25, converter=branches.convert_if),
    Operator(name="Loop", since=25, converter=loops.convert_loop),
    Operator(name="Scan", since=25, replaced_by="flatten_control_flow"),
)
