"""A model with open sizes becomes one for certain sizes, its kernels too."""

import tvm
from tvm import relax, tirx, topi
from tvm.relax import transform

from autopipe.compiler import open_sizes
from autopipe.compiler.closed import at
from autopipe.compiler.module_io import prim_funcs
from autopipe.compiler.target.target import host


def module():
    """Rows with two more behind them, by a kernel for every number of rows, then their halves."""
    rows = tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([rows, 6], "float32"))
    given = relax.Var(open_sizes.SIZES, relax.ShapeType([rows]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, given]):
        with builder.dataflow():
            longer = builder.emit_te(lambda x: topi.nn.pad(x, (0, 0), (2, 0)), x)
            half = builder.emit(relax.op.multiply(longer, relax.const(0.5)))
            made = builder.emit_output(relax.op.nn.relu(half))
        builder.emit_func_output(made)
    return builder.get()


def test_kernels_have_numbers_where_the_sizes_are_known():
    known = at(module(), {"rows": 5})
    (shape,) = {tuple(map(int, function.params[-1].ty.shape)) for _, function in prim_funcs(known)}
    assert shape == (7, 6)
    assert not any(open_sizes.open_variables(function) for _, function in prim_funcs(known))
    assert known["main"].ret_ty.shape.values[0].value == 7


def test_fusion_takes_extents_that_were_computed_for_the_same():
    with host(1):
        steps = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps(),
                 transform.FuseTIR()]  # fmt: skip
        fused = tvm.transform.Sequential(steps)(at(module(), {"rows": 5}))
    assert len(prim_funcs(fused)) == 1


def test_a_kernel_whose_size_stays_open_stays_as_it_is():
    open_ = at(module(), {"other": 3})
    (function,) = [function for _, function in prim_funcs(open_)]
    assert [str(size.name) for size in open_sizes.open_variables(function)] == ["rows"]
