import numpy as np
import pytest
import tvm_ffi
from tvm import relax

from autopipe.compiler.passes.round_weights import round_weights
from tests.compiler.passes.test_widen_to_float32 import module_of, run

X, W, TABLE = ((2, 6), "float32"), ((6, 4), "float32"), ((9, 6), "float32")


def multiplied(builder, x, w):
    return relax.op.matmul(x, w)


def turned(builder, x, w):
    return relax.op.matmul(*(builder.emit(relax.op.permute_dims(each)) for each in (w, x)))


def looked_up_too(builder, rows, table):
    found = builder.emit(relax.op.take(table, rows, axis=0))
    return relax.op.matmul(found, builder.emit(relax.op.permute_dims(table)))


def added_too(builder, x, w):
    product = builder.emit(relax.op.matmul(x, w))
    return relax.op.add(product, builder.emit(relax.op.sum(w, axis=[0])))


def squared(builder, x, w):
    return relax.op.matmul(builder.emit(relax.op.matmul(x, w)), builder.emit(relax.op.matmul(w, w)))


@pytest.mark.parametrize(
    ("build", "kinds", "positions"),
    [
        (multiplied, (X, W), (0,)),
        (turned, (X, W), (0,)),
        (multiplied, (X, ((6,), "float32")), ()),
        (multiplied, (((2, 6), "float16"), ((6, 4), "float16")), ()),
        (looked_up_too, (((3,), "int64"), TABLE), (0,)),
        (added_too, (X, W), ()),
        (squared, (X, ((6, 6), "float32")), ()),
    ],
)
def test_only_what_products_alone_read_is_rounded(build, kinds, positions):
    assert round_weights(module_of(build, *kinds), 1)[1] == positions


def test_a_weight_that_is_an_output_stays():
    params = [relax.Var(name, relax.TensorType(*kind)) for name, kind in (("x", X), ("w", W))]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            product = builder.emit_output(relax.op.matmul(*params))
        builder.emit_func_output(relax.Tuple([product, params[1]]))
    assert round_weights(builder.get(), 1)[1] == ()


def nearest(array):
    """Round to the upper half of the bits, to an even one between two."""
    bits = array.view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000).view("f")


def test_a_table_that_is_looked_up_and_multiplied_is_rounded_once_for_both():
    rows = np.array([0, 8, 3])
    table = np.random.default_rng(0).standard_normal(TABLE[0]).astype("f")
    found = run(round_weights(module_of(looked_up_too, ((3,), "int64"), TABLE), 1)[0], rows, table)
    short = nearest(table).astype("f8")
    assert np.allclose(found, short[rows] @ short.T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("build", [multiplied, turned])
def test_a_product_takes_what_is_nearest_in_bfloat16_and_sums_as_before(build):
    x, w = (np.random.default_rng(0).standard_normal(kind[0]).astype("f") for kind in (X, W))
    found = run(round_weights(module_of(build, X, W), 1)[0], x, w)
    exact = x.astype("f8") @ nearest(w).astype("f8")
    assert np.allclose(found if build is multiplied else found.T, exact, rtol=1e-6, atol=1e-6)
    assert not np.allclose(exact, x @ w, rtol=1e-5)


def test_inputs_are_never_rounded():
    before = module_of(multiplied, X, W)
    after, positions = round_weights(before, 2)
    assert positions == ()
    assert tvm_ffi.structural_equal(after["main"], before["main"])
