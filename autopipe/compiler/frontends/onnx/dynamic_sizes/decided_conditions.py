"""Conditions that hold at every open size, or at none: only the branch that is taken is imported.

A model that was exported for any number of steps asks how many there are, `Shape(x)[1] == 1`, and
takes an axis away if it is one. Within a range of sizes that may be known.
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
    """Return the outputs of the branch that an If takes, None where that is not known.

    Args:
        builder: TVM's builder of the function that the If stands in.
        condition: What is known of the condition: one truth.
        attr: The attributes of the If.
        nodes: All values of the function so far, by their names in the model.
        opset: The version of the operators.
    """
    if condition is None or condition.size != 1 or not isinstance(condition.flat[0], bool):
        return None
    graph = attr["then_branch" if condition.flat[0] else "else_branch"]
    importer = onnx_frontend.ONNXGraphImporter({}, "float32", sanitize=False)
    importer.bb, importer.opset = builder, opset
    importer._nodes.update(nodes)
    importer._construct_nodes(graph)
    made = [importer._nodes[output.name] for output in graph.output]
    return made[0] if len(made) == 1 else relax.Tuple(made)
