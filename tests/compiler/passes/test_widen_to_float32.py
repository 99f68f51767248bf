import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from autopipe.compiler.lowering import optimize
from autopipe.compiler.passes.widen_to_float32 import widen_to_float32

NARROW = tvm.target.Target({"kind": "llvm", "mcpu": "haswell"})
HALF = tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids"})


def module_of(build, *kinds):
    """A module whose `main` returns what `build` makes of parameters of these shapes and dtypes."""
    params = [relax.Var(f"p{i}", relax.TensorType(*kind)) for i, kind in enumerate(kinds)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(builder, *params)))
        builder.emit_func_output(result)
    return builder.get()


def dense(dtype):
    def build(builder, x, w):
        product = builder.emit(relax.op.matmul(x, w, out_dtype=dtype))
        scaled = relax.op.multiply(product, relax.const(np.ones(1, "float32").astype(dtype), dtype))
        return relax.op.add(scaled, x)

    return module_of(build, ((8, 8), dtype), ((8, 8), dtype))


def halves(build):
    return module_of(build, ((8, 8), "float16"))


def computed_in(module):
    """Return the dtypes of results of ops in `main`, but for conversions."""
    values = [each.value for each in module["main"].body.blocks[0].bindings]
    calls = [value for value in values if isinstance(value, relax.Call)]
    return {str(call.ty.dtype) for call in calls if call.op.name != "relax.astype"}


def run(module, *arrays):
    executable = tvm.compile(relax.transform.LegalizeOps()(module), NARROW)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, arrays))
    return [each.numpy() for each in found] if isinstance(found, tvm_ffi.Array) else found.numpy()


def test_halves_come_in_and_go_out_and_all_between_is_float32():
    before = dense("float16")
    after = widen_to_float32(before, NARROW)
    assert computed_in(after) == {"float32"}
    assert tvm_ffi.structural_equal(after["main"].ret_ty, before["main"].ret_ty)
    x, w = (np.random.default_rng(i).standard_normal((8, 8)).astype("float16") for i in (0, 1))
    exact = (x.astype("float64") @ w.astype("float64") + x).astype("float16")
    found = run(after, x, w)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, exact, rtol=1e-3)


def test_bfloat16_is_widened_too():
    after = widen_to_float32(dense("bfloat16"), HALF)
    assert computed_in(after) == {"float32"}
    assert str(after["main"].ret_ty.dtype) == "bfloat16"


@pytest.mark.parametrize(
    ("module", "target"),
    [
        (dense("float32"), NARROW),
        (dense("float16"), HALF),
        (dense("float16"), tvm.target.Target({"kind": "cuda", "arch": "sm_80"})),
    ],
)
def test_nothing_is_done_where_there_is_nothing_to_gain(module, target):
    assert widen_to_float32(module, target) is module


def several(builder, x):
    first = builder.emit(relax.op.exp(x))
    whole = builder.emit(relax.op.astype(x, "int32"))
    return relax.Tuple([first, whole, builder.emit(relax.op.negative(first))])


def test_results_keep_their_dtypes():
    before = halves(several)
    after = widen_to_float32(before, NARROW)
    assert tvm_ffi.structural_equal(after["main"].ret_ty, before["main"].ret_ty)
    x = np.linspace(-2, 2, 64, dtype="float16").reshape(8, 8)
    exponential, whole, negative = run(after, x)
    np.testing.assert_allclose(exponential, np.exp(x.astype("float32")), rtol=1e-3)
    np.testing.assert_array_equal(whole, x.astype("int32"))
    np.testing.assert_array_equal(negative, -exponential)


def finished(builder, x):
    """A call of a PrimFunc, which takes and gives halves."""
    doubled = builder.emit_te(lambda t: tvm.te.compute(t.shape, lambda i, j: t[i, j] + t[i, j]), x)
    return relax.op.exp(doubled)


def test_finished_functions_are_called_with_halves():
    after = widen_to_float32(halves(finished), NARROW)
    x = np.linspace(-2, 2, 64, dtype="float16").reshape(8, 8)
    np.testing.assert_allclose(run(after, x), np.exp(2 * x.astype("float32")), rtol=1e-3)


def test_weights_are_widened_once():
    optimized = optimize(dense("float16"), 1, {}, NARROW, print)
    assert [str(each.ty.dtype) for each in optimized.module["main"].params] == [
        "float16",
        "float32",
    ]


def test_constants_keep_their_values():
    tenth = np.full((8, 8), 0.1, "float16")
    after = widen_to_float32(
        halves(lambda _, x: relax.op.add(x, relax.const(tenth, "float16"))), NARROW
    )
    assert computed_in(after) == {"float32"}
    np.testing.assert_array_equal(run(after, np.zeros((8, 8), "float16")), tenth)


@pytest.mark.parametrize("target", [NARROW, HALF])
@pytest.mark.parametrize(
    ("dtype", "chain"),
    [
        ("float32", ["float16", "float32"]),
        ("float32", ["bfloat16", "float32"]),
        ("float32", ["float16", "bfloat16", "float32"]),
        ("float32", ["bfloat16", "float16", "float32"]),
        ("float64", ["float16", "float64"]),
        ("float64", ["bfloat16", "float32"]),
        ("int32", ["float16", "float32"]),
        ("int32", ["bfloat16", "float32"]),
        ("float16", ["bfloat16", "float16"]),
        ("float16", ["float32", "float16"]),
    ],
)
def test_a_cast_of_the_model_rounds(dtype, chain, target):
    def build(builder, x):
        for kind in chain:
            x = builder.emit(relax.op.astype(x, kind))
        return x

    with np.errstate(over="ignore"):
        given = np.array([70000, -70000, 65504, 2049, 1.0005, -0.3, 1e-6, 0]).astype(dtype)
        expected = given
        for kind in chain:
            expected = expected.astype(getattr(ml_dtypes, kind, kind))
    module = widen_to_float32(module_of(build, ((8,), dtype)), target)
    np.testing.assert_array_equal(run(module, given), expected)
