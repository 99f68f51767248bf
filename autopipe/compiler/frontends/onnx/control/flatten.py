"""Flatten control flow with constant conditions and trip counts."""

from collections.abc import Callable

from onnx import ModelProto

from autopipe.compiler.frontends.onnx.control import counted_rounds, scans
from autopipe.compiler.frontends.onnx.control.lift_tensors import lift_tensors
from autopipe.compiler.frontends.onnx.control.scopes import has_control
from autopipe.compiler.frontends.onnx.control.unroll import Unrolling
from autopipe.compiler.frontends.onnx.reading import check_operators, memory
from autopipe.compiler.frontends.onnx.reading.inference import require_types


def flatten_control_flow(model: ModelProto, simplify: Callable[[ModelProto], None]) -> ModelProto:
    """Resolve constant conditions and unroll short loops.

    `simplify` folds constants, so that inner loops may become constant once an outer one is
    unrolled; it puts tensors into bodies, which are lifted again. Raises ModelError for a loop that
    never ends, for an inconsistent one, and if rounds take too much memory.
    """
    if not has_control(model.graph):
        return model
    opset = check_operators.read_opset(model.opset_import)
    scans.check_scans(model.graph, opset)
    unrolling = Unrolling(opset)
    while True:
        model = require_types(model)
        lift_tensors(model.graph)
        has_counted = counted_rounds.settle_counted_loops(model.graph, opset)
        if not unrolling.step(model.graph) and not has_counted:
            return model
        graph = require_types(model).graph
        initializer_names = {tensor.name for tensor in graph.initializer}
        memory.check_memory(
            graph, {value.name for value in graph.input} - initializer_names, initializer_names
        )
        simplify(model)
