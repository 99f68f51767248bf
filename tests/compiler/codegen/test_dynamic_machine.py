"""What is done to models with open sizes before code is generated: views, and shapes made once."""

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps
from tvm_ffi import Shape

from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.graph.calls import list_bindings, list_callees
from autopipe.compiler.lowering import lower
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.named_pass import run_passes
from autopipe.compiler.pass_lists import MACHINE_DYNAMIC
from autopipe.compiler.passes.replace_copies_by_views import (
    replace_copies_by_views,
    replace_dynamic_copies,
)
from autopipe.compiler.target.target import make_host_target

TARGET = make_host_target(1)


def reshaping(rows=None):
    """Return a model that reshapes its input, works on it, and reshapes its result."""
    sizes = [] if rows else [relax.Var("sizes", relax.ShapeType([tirx.Var("rows", "int64")]))]
    rows = rows or sizes[0].ty.values[0]
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *sizes]):
        with builder.dataflow():
            halves = builder.emit(relax.op.reshape(x, (rows, 2, 4)))
            positive = builder.emit(relax.op.nn.relu(halves))
            flat = builder.emit(relax.op.reshape(positive, (rows, 8)))
            least = builder.emit(relax.op.minimum(flat, x))
            out = builder.emit_output(relax.op.reshape(least, (rows, 4, 2)))
        builder.emit_func_output(out)
    return builder.get()


def legalized():
    """Return the kernels of that model with an unknown number of rows."""
    return LegalizeOps()(reshaping())


def test_copies_inside_a_model_become_views_and_results_stay_copies():
    module = legalized()
    assert sum("reshape" in name for name in list_callees(module["main"])) == 3
    changed = replace_copies_by_views(module)
    assert [name for name in list_callees(changed["main"]) if "reshape" in name] == ["reshape2"]
    kernels = {str(var.name_hint) for var, _ in changed.functions_items()}
    assert kernels == {"main", "relu", "minimum", "reshape2"}


def test_a_view_of_dynamic_shapes_is_no_kernel_of_a_lowered_module():
    """Of a static graph it stays one until *build*: its tasks are those of earlier records."""
    names = {name.rstrip("1") for name, _ in list_prim_funcs(lower(reshaping(), TARGET))}
    assert names == {"relu", "minimum", "reshape2"}
    static = LegalizeOps()(reshaping(rows=6))
    assert replace_dynamic_copies(static).same_as(static)


def test_no_shape_is_made_twice_and_the_results_are_right():
    with TARGET:
        module = replace_copies_by_views(legalized())
        lowered = run_passes(module, MACHINE_DYNAMIC, None)
    made = [
        str(one.value) for one in list_bindings(lowered["main"]) if "make_shape" in str(one.value)
    ]
    assert len(made) == len(set(made)) > 1
    machine = relax.VirtualMachine(compile_model(module, TARGET), tvm.cpu())
    for rows in (1, 5):
        x = np.arange(rows * 8, dtype="float32").reshape(rows, 8) - 9
        found = machine["main"](tvm.runtime.tensor(x), Shape((rows,))).numpy()
        np.testing.assert_array_equal(found, np.minimum(np.maximum(x, 0), x).reshape(rows, 4, 2))
