"""A model with open sizes becomes one for certain sizes, its kernels too."""

import tvm
from tvm import relax, tirx, topi
from tvm.relax import transform

from autopipe.compiler.dynamic_sizes import kernel_sizes
from autopipe.compiler.dynamic_sizes.fix_sizes import bind_sizes
from autopipe.compiler.module_io import list_prim_funcs
from autopipe.compiler.target.target import make_host_target


def module(multiple=1):
    """Rows with two more behind them, by a kernel for every number of rows, then their halves."""
    rows = tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType([multiple * rows, 6], "float32"))
    given = relax.Var(kernel_sizes.SIZES, relax.ShapeType([rows]))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, given]):
        with builder.dataflow():
            longer = builder.emit_te(lambda x: topi.nn.pad(x, (0, 0), (2, 0)), x)
            half = builder.emit(relax.op.multiply(longer, relax.const(0.5)))
            made = builder.emit_output(relax.op.nn.relu(half))
        builder.emit_func_output(made)
    return builder.get()


def test_kernels_have_numbers_where_the_sizes_are_known():
    for multiple, rows in ((1, 7), (4, 22)):  # of 4 rows each, a kernel takes the 5 as a number
        known = bind_sizes(module(multiple), {"rows": 5})
        (function,) = [function for _, function in list_prim_funcs(known)]
        assert tuple(map(int, function.params[-1].ty.shape)) == (rows, 6)
        assert not kernel_sizes.open_variables(function)
        assert known["main"].ret_ty.shape.values[0].value == rows


def test_fusion_takes_extents_that_were_computed_for_the_same():
    for multiple in (1, 4):
        with make_host_target(1):
            steps = [transform.LegalizeOps(), transform.AnnotateTIROpPattern(),
                     transform.FuseOps(), transform.FuseTIR()]  # fmt: skip
            fused = tvm.transform.Sequential(steps)(bind_sizes(module(multiple), {"rows": 5}))
        assert len(list_prim_funcs(fused)) == 1


def test_a_kernel_whose_size_stays_open_stays_as_it_is():
    open_ = bind_sizes(module(), {"other": 3})
    (function,) = [function for _, function in list_prim_funcs(open_)]
    assert [str(size.name) for size in kernel_sizes.open_variables(function)] == ["rows"]
