"""Template for recurrent layers: all steps of an LSTM, a GRU or a simple network.

A function says in an attribute which layer it computes. It is believed only where the plain loops
of that layer are the very loops of the function.
"""

from typing import Final

from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from autopipe.compiler.graph import elementary, weights
from autopipe.compiler.rebuild import same_code
from autopipe.compiler.recurrence import plain
from autopipe.compiler.recurrence.form import ATTRIBUTE, parse
from autopipe.schedules.recurrence import loops
from autopipe.schedules.recurrence.blocking import (
    RecurrentLayer,
    UnitBlocking,
    estimate,
    fill,
    settings,
)
from autopipe.schedules.recurrence.packing import PackedGates, pack

__all__ = ["NAME", "VERSION", "apply", "estimate", "fill", "match", "settings"]

NAME: Final = "recurrence"
VERSION: Final = 4


def match(sch: Schedule) -> RecurrentLayer | None:
    """Return the layer that a function computes, or None if it computes something else."""
    function = sch.mod["main"]
    form = parse(str((function.attrs or {}).get(ATTRIBUTE, "")))
    if form is None or not same_code(plain.write(form), function):
        return None
    recurrent = function.params[list(form.inputs).index("r")]
    free = any(recurrent.same_as(param) for param in weights.free(function))
    return RecurrentLayer(form, free, elementary.marked(function))


def apply(sch: Schedule, layer: RecurrentLayer, knobs: UnitBlocking) -> None:
    """Schedule the function."""
    form = layer.form
    names = [*form.inputs, *form.outputs]
    tensors = plain.Tensors(form, dict(zip(names, sch.mod["main"].params, strict=True)))
    packed = PackedGates.of(tensors, knobs)
    written = [] if form.idle else [pack(tensors, packed, free=layer.free)]
    here = sch.get_sblock("root")
    root = sch.get(here)
    body = tirx.stmt_seq(*written, loops.write(tensors, packed, knobs, fast=layer.fast))
    new = SBlock(
        [], [], [], root.name_hint, body, alloc_buffers=[packed[0].buffer] if written else [],
        annotations=root.annotations,
    )  # fmt: skip
    sch.state.replace(sch.get_sref(here), new, {root: new})
