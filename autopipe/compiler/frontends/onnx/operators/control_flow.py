"""If, Loop and Scan."""

from typing import Final

from autopipe.compiler.frontends.onnx.control import branches, loops
from autopipe.compiler.frontends.onnx.operator import Operator

OPERATORS: Final = (
    Operator(
        name="If",
        since=25,
        convert_control=branches.convert,
    ),
    Operator(
        name="Loop",
        since=25,
        convert_control=loops.convert,
    ),
    Operator(
        name="Scan",
        since=25,
        replaced_by="flatten_control_flow",
    ),
)
