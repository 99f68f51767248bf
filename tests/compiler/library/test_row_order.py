"""The reference's loops along rows: the bits of TVM's own loops, in another order."""

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op, transform

from autopipe.compiler.codegen.compile_kernels import compile_model
from autopipe.compiler.library.row_order import reorder_reductions

TARGET = tvm.target.Target({"kind": "llvm"})
"""The reference's own: every processor of this architecture."""

MOVED: dict[str, tuple[Callable[..., relax.Expr], list[tuple[int, ...]]]] = {
    "matmul": (op.matmul, [(5, 37), (37, 21)]),
    "batched": (op.matmul, [(2, 3, 5, 7), (2, 3, 7, 9)]),
    "convolution": (lambda x, w: op.nn.conv2d(x, w, padding=(1, 1)), [(1, 6, 9, 7), (4, 6, 3, 3)]),
    "grouped": (lambda x, w: op.nn.conv2d(x, w, groups=2), [(2, 6, 9, 7), (4, 3, 3, 3)]),
    "depthwise": (lambda x, w: op.nn.conv2d(x, w, groups=6), [(1, 6, 9, 7), (6, 1, 3, 3)]),
    "transposed": (
        lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2)),
        [(1, 6, 5, 4), (6, 3, 3, 3)],
    ),
    "maximum": (lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2)), [(1, 3, 9, 9)]),
    "sum along columns": (lambda x: op.sum(x, [1]), [(3, 40, 11)]),
    "softmax": (op.nn.softmax, [(6, 50)]),
    "argmax": (lambda x: op.argmax(x, 1), [(3, 40)]),
}
LEFT: dict[str, tuple[Callable[..., relax.Expr], list[tuple[int, ...]]]] = {
    "sum of all": (op.sum, [(6, 50)]),
    "no sum": (op.add, [(6, 50), (6, 50)]),
}


def legal(make, shapes):
    """Return a module of TVM's loops for an operator."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{index}", relax.TensorType(shape, "float32"))
        for index, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            made = builder.emit_output(builder.emit(make(*inputs)))
        builder.emit_func_output(made)
    return transform.LegalizeOps()(builder.get())


def run(module, inputs):
    """Return the result of a module on arrays."""
    with TARGET, tvm.transform.PassContext(opt_level=3):
        machine = relax.VirtualMachine(compile_model(module, TARGET), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


@pytest.mark.parametrize("name", [*MOVED, *LEFT])
def test_results_have_the_bits_of_the_loops_as_they_were(name):
    make, shapes = (MOVED | LEFT)[name]
    module = legal(make, shapes)
    moved = reorder_reductions(module)
    assert tvm_ffi.structural_equal(module, moved) == (name in LEFT)
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal(shape) * 1e3).astype("float32") for shape in shapes]
    assert run(moved, inputs).tobytes() == run(module, inputs).tobytes()
