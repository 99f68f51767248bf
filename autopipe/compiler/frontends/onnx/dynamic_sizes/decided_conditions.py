"""Resolve If nodes with a condition that is true at every dynamic size or at none.

Only the taken branch is imported. Example: a model exported for any number of steps tests
`Shape(x)[1] == 1` to squeeze an axis, which the range of the dimension may decide.
"""

from collections.abc import Mapping

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import Attributes, BlockBuilder
from autopipe.compiler.frontends.onnx.reading.tensors import Array

# ruff: noqa: SLF001  TVM's importer has no public interface


def convert_taken_branch(
    builder: BlockBuilder,
    condition: Array | None,
    attr: Attributes,
    nodes: Mapping[str, Expr],
    opset: int,
) -> Expr | None:
    """Convert the branch that an If takes at all sizes; None if that is unknown.

    Args:
        builder: TVM's builder of the function that contains the If.
        condition: The known condition, one bool, or None.
        attr: The attributes of the If.
        nodes: All values of the function so far, by their names in the model.
        opset: The opset version.
    """
    if condition is None or condition.size != 1 or not isinstance(condition.flat[0], bool):
        return None
    graph = attr["then_branch" if condition.flat[0] else "else_branch"]
    importer = onnx_frontend.ONNXGraphImporter({}, "float32", sanitize=False)
    importer.bb, importer.opset = builder, opset
    importer._nodes.update(nodes)
    importer._construct_nodes(graph)
    outputs = [importer._nodes[output.name] for output in graph.output]
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
