import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import verify_well_formed

import autopipe
from autopipe.compiler.graph import elementary
from tests.compiler.graphs import TARGET

COUNT = 1 << 16
HUGE = 2.0**22
FUNCTIONS_OF = {"sin": tirx.sin, "cos": tirx.cos, "tan": tirx.tan}
FUNCTIONS = {"sin": np.sin, "cos": np.cos, "tan": np.tan}


def elementwise(function, dtype="float32"):
    x = te.placeholder((COUNT,), dtype, name="x")
    y = te.compute((COUNT,), lambda i: function(x[i]), name="y")
    return elementary.mark_inexact(tvm.IRModule({"main": te.create_prim_func([x, y])}))


def of_indices(function, step):
    """Return functions of angles that are evenly apart, the middle one 0 but for a quarter."""
    start = tirx.const(COUNT / 4 * step, "float32")
    y = te.compute(
        (COUNT,), lambda i: function(i.astype("float32") * tirx.const(step, "float32") - start),
        name="y",
    )  # fmt: skip
    return tvm.IRModule({"main": te.create_prim_func([y])})


def in_vectors(module, lanes=32):
    sch = Schedule(module)
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    _, vector = sch.split(loop, [None, lanes])
    sch.vectorize(vector)
    return sch.mod


def library_of(module):
    return tvm.tirx.build(elementary.expand_functions(module), TARGET)


def run(library, values):
    out = tvm.runtime.empty(values.shape, str(values.dtype))
    library["main"](tvm.runtime.tensor(values), out)
    return out.numpy()


def samples():
    """Any bits; small angles; multiples of a quarter turn, where sines are tiny; at the limit."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32).view("float32")
    values[: COUNT // 2] = rng.uniform(-30, 30, COUNT // 2)
    values[: COUNT // 4] = np.arange(COUNT // 4) * 163 * (np.pi / 2)
    values[: COUNT // 8] = rng.uniform(-2 * HUGE, 2 * HUGE, COUNT // 8)
    values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, HUGE, -HUGE, 1e-45]
    return values


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_any_angle_is_right_to_an_ulp_and_keeps_its_sign(name):
    values = samples()
    wide = FUNCTIONS[name](values.astype("longdouble"))
    expected = wide.astype("float32")
    module = in_vectors(elementwise(getattr(tirx, name)))
    assert verify_well_formed(elementary.expand_functions(module)["main"], assert_mode=False)
    found = run(library_of(module), values)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    known = np.isfinite(expected)
    ulp = np.abs(found[known] - wide[known]) / np.spacing(np.abs(expected[known]))
    assert ulp.max() <= 1.0
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_libm_is_asked_for_huge_angles_alone(name):
    module = in_vectors(elementwise(getattr(tirx, name)))
    text = library_of(module).inspect_source("ll")
    assert f"llvm.{name}." not in text, "which LLVM calls for all before it asks"
    assert "double>" in text, "vectors"
    assert f'"{name}f"' in elementary.expand_functions(module).script()


def test_what_is_around_a_sine_is_computed_in_both_loops():
    """Such as the cosine of a scaled angle, and the rest of the expression."""
    module = in_vectors(elementwise(lambda x: tirx.cos(x * 0.5) * x + tirx.sin(x)))
    values = samples()[: COUNT // 2]
    found = run(library_of(module), np.pad(values, (0, COUNT // 2)))[: COUNT // 2]
    finite = np.isfinite(values)
    wide = values[finite].astype("longdouble")
    expected = (np.cos(wide * 0.5) * wide + np.sin(wide)).astype("float32")
    np.testing.assert_allclose(found[finite], expected, rtol=1e-5, atol=1e-30)


def test_a_sine_behind_a_product_is_in_vectors_and_huge_angles_are_right():
    """As in a network of sines: the tile writes its sums from registers, without a block."""
    x, w = te.placeholder((40, 24), name="x"), te.placeholder((24, 64), name="w")
    k = te.reduce_axis((0, 24), name="k")
    p = te.compute((40, 64), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="p")
    y = te.compute((40, 64), lambda i, j: tirx.sin(p[i, j] * 2.0), name="y")
    found = autopipe.auto_schedule([x, w, y])
    assert '"template": "contraction"' in found.schedule
    text = found.module.script()
    assert "T.sin(" not in text
    assert '"sinf"' in text
    random = np.random.default_rng(0)
    # sums of whole numbers are exact in whatever order
    given = random.integers(-30, 30, (40, 24)).astype("float32")
    weights = random.integers(-30, 30, (24, 64)).astype("float32")
    given[7] *= 1024
    right = np.sin((given.astype("float64") @ weights) * 2)
    assert np.abs(given @ weights).max() * 2 > HUGE
    (made,) = found(given, weights)
    np.testing.assert_allclose(made, right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "function",
    [lambda x: tirx.sin(tirx.exp(x)), lambda x: tirx.sin(tirx.cos(x))],
    ids=["of another function", "of a cosine"],
)
def test_arguments_that_cost_something_are_computed_once(function):
    expanded = elementary.expand_functions(in_vectors(elementwise(function)))
    assert "T.sin(" in expanded.script()


def test_single_numbers_and_double_precision_are_left_to_libm():
    single = elementwise(tirx.sin)
    assert tvm_ffi.structural_equal(elementary.expand_functions(single), single)
    double = elementwise(tirx.sin, "float64")
    assert not elementary.is_marked(double["main"])
    assert tvm_ffi.structural_equal(elementary.expand_functions(double), double)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("lanes", [0, 32])
def test_angles_of_indices_that_are_never_huge_ask_nobody(name, lanes):
    """As those of a window."""
    module = elementary.mark_inexact(of_indices(FUNCTIONS_OF[name], 1e-3))
    module = in_vectors(module, lanes) if lanes else module
    text = elementary.expand_functions(module).script()
    assert f"T.{name}(" not in text
    assert f'"{name}f"' not in text
    out = tvm.runtime.empty((COUNT,), "float32")
    library_of(module)["main"](out)
    angles = (np.arange(COUNT) * np.float32(1e-3)).astype("float32")
    angles = angles - np.float32(COUNT / 4e3)
    right = FUNCTIONS[name](angles.astype("float64"))
    np.testing.assert_allclose(out.numpy(), right, rtol=2e-7, atol=1e-30)


@pytest.mark.parametrize("step", [1e3, -1e3])
def test_angles_of_indices_that_may_be_huge_are_left_to_libm(step):
    module = elementary.mark_inexact(of_indices(tirx.sin, step))
    assert "T.sin(" in elementary.expand_functions(module).script()


def test_a_sum_in_place_is_left_to_libm():
    """The loop behind the vectors would add a second time."""
    x = te.placeholder((COUNT,), name="x")
    y = te.compute((COUNT,), lambda i: x[i] * 2.0, name="y")
    function = te.create_prim_func([x, y])

    def added(store):
        before = tvm.tirx.BufferLoad(store.buffer, store.indices)
        return tirx.BufferStore(store.buffer, before + tirx.sin(store.value), store.indices)

    function = tvm_ffi.structural_map(function, (tirx.BufferStore, added))
    module = in_vectors(elementary.mark_inexact(tvm.IRModule({"main": function})))
    assert "T.sin(" in elementary.expand_functions(module).script()
