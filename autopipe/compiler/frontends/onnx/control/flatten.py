"""Makes control flow plain as far as the model says what it does."""

from collections.abc import Callable

import onnx
from onnx import ModelProto

from autopipe.compiler.frontends.onnx.control import counted_rounds, move_invariants, scans
from autopipe.compiler.frontends.onnx.control.lift_tensors import lift_tensors
from autopipe.compiler.frontends.onnx.control.scopes import has_control
from autopipe.compiler.frontends.onnx.control.unroll import Unrolling
from autopipe.compiler.frontends.onnx.reading import check_operators, memory
from autopipe.compiler.frontends.onnx.reading.inference import infer_types
from autopipe.errors import ModelError


def flatten_control_flow(model: ModelProto, simplify: Callable[[ModelProto], None]) -> ModelProto:
    """Return the model with known conditions taken, and short loops unrolled.

    `simplify` folds constants, so that inner loops may become known once an outer one is unrolled;
    it puts tensors into bodies, from where they are taken out again. Raises ModelError for a loop
    that never ends, for one that contradicts itself, and where rounds take too much memory.
    """
    if not has_control(model.graph):
        return model
    opset = check_operators.read_opset(model.opset_import)
    scans.check_scans(model.graph, opset)
    unrolling = Unrolling(opset)
    while True:
        model = _infer_model(model)
        lift_tensors(model.graph)
        changed = (
            move_invariants.fold_inner_constants(model.graph),
            counted_rounds.settle_counted_loops(model.graph, opset),
            unrolling.step(model.graph),
        )
        if not any(changed):
            return model
        graph = _infer_model(model).graph
        stored = {tensor.name for tensor in graph.initializer}
        memory.check_memory(graph, {value.name for value in graph.input} - stored, stored)
        simplify(model)


def _infer_model(model: ModelProto) -> ModelProto:
    try:
        return infer_types(model)
    except onnx.shape_inference.InferenceError as error:
        raise ModelError(f"shapes can not be inferred: {error}") from error
