"""Parts of a concatenation are written where they belong, and computed as before."""

from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

from autopipe.compiler.graph.in_place import concatenations, only_indexed, written_in_place
from autopipe.compiler.passes import lower
from tests.compiler import graphs
from tests.compiler.graph.test_attention import called
from tests.support.table import each_row

IMAGE = (1, 6, 6, 8)


def model(change: dict[str, Any]) -> tvm.IRModule:
    """Branches over one image, side by side, and a pooling. `change` says what is different."""
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    weights = [
        relax.Var(f"w{at}", relax.TensorType((1, 1, 8, wide), "float32"))
        for at, wide in enumerate(change.get("wide", (16, 24, 5)))
    ]
    builder = relax.BlockBuilder()
    emit = builder.emit
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            parts = []
            for weight in weights:
                layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
                parts.append(emit(op.nn.relu(emit(op.nn.conv2d(x, weight, **layout)))))
            parts = change.get("parts", lambda parts, _: parts)(parts, x)
            whole = emit(op.concat(parts, change.get("axis", -1)))
            last = whole if change.get("alone") else op.nn.max_pool2d(whole, (2, 2), layout="NHWC")
            results = [builder.emit_output(last)]
            results += [builder.emit_output(parts[0])] if change.get("also") else []
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


PLACED: dict[str, dict[str, Any]] = {
    "channels": {},
    "two of a kind": {"wide": (16, 16)},
    "rows": {"wide": (8, 8), "axis": 1},
    "a negative axis": {"wide": (8, 8), "axis": -2},
}

COPIED: dict[str, dict[str, Any]] = {
    "a part is the image": {"parts": lambda parts, x: [*parts, x]},
    "a part is there twice": {"wide": (8,), "parts": lambda parts, _: parts * 2},
    "a part is a result": {"also": True},
    "the whole is a result": {"alone": True},
}


@each_row("case", PLACED)
def test_what_is_placed_is_computed_as_before(case):
    module = model(PLACED[case])
    lowered = lower(module, graphs.TARGET)
    placed = written_in_place(lowered, concatenations(lowered))
    assert not [name for name in called(placed) if name.startswith("concatenate")]
    arrays = graphs.arguments(module)
    np.testing.assert_array_equal(graphs.run(placed, arrays), graphs.run(lowered, arrays))


@each_row("case", COPIED)
def test_what_others_need_is_copied(case):
    lowered = lower(model(COPIED[case]), graphs.TARGET)
    known = concatenations(lowered)
    assert len(known) == 1
    assert written_in_place(lowered, known).same_as(lowered)


def test_a_concatenation_that_computes_more_stays():
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            whole = builder.emit(op.nn.relu(builder.emit(op.concat([op.exp(x), op.sin(x)], -1))))
            out = builder.emit_output(whole)
        builder.emit_func_output(out)
    assert not concatenations(lower(builder.get(), graphs.TARGET))


@each_row("write, placed", [
    (lambda out: tirx.BufferStore(out, tirx.const(1.0, "float32"), [0]), True),
    (lambda out: tirx.Evaluate(tirx.call_extern("int32", "f", out.access_ptr("w"))), False),
    (lambda out: tirx.Evaluate(tirx.call_extern("int32", "f", out.data)), False),
    (lambda out: tirx.Evaluate(tirx.call_extern("int32", "f", tirx.address_of(out[0]))), False),
])  # fmt: skip
def test_a_result_that_a_library_is_given_is_not_moved(write, placed):
    out = tirx.decl_buffer((4,), "float32", "out")
    assert only_indexed(write(out), out) == placed
