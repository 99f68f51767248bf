"""Template for recurrent layers: all steps of an LSTM, a GRU or a simple network.

An attribute of the function names its layer, and is trusted only if the reference loops of that
layer equal the loops of the function.
"""

from collections.abc import Iterator
from typing import Final

import tvm
from tvm import tirx
from tvm.s_tir import Schedule

from autopipe.compiler.dynamic_sizes.kernel_sizes import bind_kernel_sizes
from autopipe.compiler.find_nodes import is_among
from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.loops.code_equality import is_same_code
from autopipe.compiler.passes.drop_buffer_layouts import drop_buffer_layouts
from autopipe.compiler.recurrence import plain
from autopipe.compiler.recurrence.form import ATTRIBUTE, Recurrence, parse_any
from autopipe.environment.template_versions import schedule_version
from autopipe.schedules.analysis.blocks import extent_of
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.primitives import rewrite_function
from autopipe.schedules.recurrence import blocking, loops
from autopipe.schedules.recurrence.blocking import RecurrentLayer, UnitBlocking
from autopipe.schedules.recurrence.packing import PackedGates, pack_gates
from autopipe.schedules.templates.template import Template


class RecurrenceTemplate(Template[RecurrentLayer, UnitBlocking]):
    """All steps of a recurrent layer: LSTM, GRU or a simple network."""

    name = "recurrence"
    version = schedule_version("recurrence")
    serves_dynamic = True

    def match(self, sch: Schedule) -> RecurrentLayer | None:
        """Match a recurrent layer; None if the function computes something else."""
        function = sch.mod["main"]
        form = parse_any(str((function.attrs or {}).get(ATTRIBUTE, "")))
        layer = None if form is None else _bind_sizes(form, function)
        if form is None or layer is None:
            return None
        kernel_module = tvm.IRModule({"main": plain.build_loops(form)})
        if form.is_open:
            counts = {"steps": layer.steps, "batch": layer.batch}
            kernel_module = bind_kernel_sizes(drop_buffer_layouts(kernel_module), counts)
        if not is_same_code(kernel_module["main"], function):
            return None
        recurrent = function.params[list(form.inputs).index("r")]
        free = is_among(recurrent, weights.list_weights(function))
        return RecurrentLayer(layer, free, elementary.is_marked(function))

    def settings(self, layer: RecurrentLayer, hardware: HardwareParams) -> Iterator[UnitBlocking]:
        """Yield every setting of the knobs."""
        return blocking.list_blockings(layer, hardware)

    def estimate(
        self, layer: RecurrentLayer, knobs: UnitBlocking, hardware: HardwareParams
    ) -> float:
        """Estimate the time of a setting, in nanoseconds."""
        return blocking.estimate_ns(layer, knobs, hardware)

    def apply(self, sch: Schedule, layer: RecurrentLayer, knobs: UnitBlocking) -> None:
        """Schedule the function."""
        function = sch.mod["main"]
        form = (
            parse_any(str(function.attrs[ATTRIBUTE])) or layer.form
        )  # dynamic, where the layer has static sizes
        names = [*form.inputs, *form.outputs]
        tensors = plain.Tensors(form, dict(zip(names, function.params, strict=True)))
        packed_gates = PackedGates.of(tensors, knobs)
        statements = [] if form.idle else [pack_gates(tensors, packed_gates, free=layer.free)]
        body = tirx.stmt_seq(
            *statements, loops.build_layer_loops(tensors, packed_gates, knobs, fast=layer.fast)
        )
        rewrite_function(sch, body, [packed_gates[0].buffer] if statements else [])


RECURRENCE: Final = RecurrenceTemplate()


def _bind_sizes(form: Recurrence, function: tirx.PrimFunc) -> Recurrence | None:
    """Bind the dynamic sizes of a form to those of its function; None if these are dynamic, too."""
    if not form.is_open:
        return form
    shape = list(getattr(function.params[0].ty, "shape", ()))
    if len(shape) != len(form.inputs["x"][0]):
        return None
    steps, batch, _ = map(extent_of, shape)
    if not (isinstance(steps, int) and isinstance(batch, int)):
        return None
    return form.model_copy(update={"steps": steps, "batch": batch})
