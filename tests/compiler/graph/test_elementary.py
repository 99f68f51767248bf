import math
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.analysis import verify_well_formed

from autopipe.compiler import lowering, module_io
from autopipe.compiler.graph import elementary
from tests.compiler.graphs import TARGET
from tests.support.table import each_row

COUNT = 1 << 18
LEAST = 2.0**-125.5
"""Results that are smaller may be 0."""
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 88.72, 88.73,
     -87.4, -103.9, -104.1, 9.1, -9.1, 3.95, -3.95], "float32",
)  # fmt: skip


def error_function(x):
    return np.vectorize(math.erf)(x)


def logistic(x):
    return 1 / (1 + np.exp(-x))


FUNCTIONS: dict[str, tuple[Any, Any, float]] = {
    "exp": (tirx.exp, np.exp, 1.5),
    "log": (tirx.log, np.log, 1.0),
    "tanh": (tirx.tanh, np.tanh, 7.0),
    "erf": (tirx.erf, error_function, 7.0),
    "sigmoid": (tirx.sigmoid, logistic, 3.0),
    "sinh": (tirx.sinh, np.sinh, 6.0),
    "cosh": (tirx.cosh, np.cosh, 6.0),
    "asinh": (tirx.asinh, np.arcsinh, 4.0),
    "acosh": (tirx.acosh, np.arccosh, 3.0),
    "atanh": (tirx.atanh, np.arctanh, 3.0),
    "asin": (tirx.asin, np.arcsin, 3.0),
    "acos": (tirx.acos, np.arccos, 3.0),
    "atan": (tirx.atan, np.arctan, 3.0),
}


def elementwise(function, count=COUNT, dtype="float32"):
    x = te.placeholder((count,), dtype, name="x")
    y = te.compute((count,), lambda i: function(x[i]), name="y")
    return tvm.IRModule({"main": te.create_prim_func([x, y])})


def run(module, values):
    library = tvm.tirx.build(module, TARGET)
    out = tvm.runtime.empty(values.shape, str(values.dtype))
    library["main"](tvm.runtime.tensor(values), out)
    return out.numpy()


def expanded(module):
    return elementary.expand_functions(elementary.mark_inexact(module))


def samples():
    """Every kind of float32: any bits, the range where most functions change, special values."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, COUNT, dtype=np.uint32).view("float32")
    bits[: COUNT // 2] = rng.uniform(-110, 110, COUNT // 2)
    bits[: COUNT // 4] = rng.uniform(-10, 10, COUNT // 4)
    bits[: COUNT // 8] = rng.uniform(-1.1, 1.1, COUNT // 8)
    bits[: SPECIAL.size] = SPECIAL
    return bits


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_it_is_right_to_a_few_ulp_everywhere(name):
    intrinsic, exact, most = FUNCTIONS[name]
    values, module = samples(), expanded(elementwise(intrinsic))
    assert verify_well_formed(module["main"], assert_mode=False), "each variable is bound once"
    found = run(module, values)
    wide = exact(values.astype("float64"))
    expected = wide.astype("float32")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])
    normal = np.isfinite(expected) & (np.abs(expected) >= LEAST)
    ulp = np.abs(found[normal] - wide[normal]) / np.spacing(np.abs(expected[normal]))
    assert ulp.max() <= most
    small = np.isfinite(expected) & ~normal
    np.testing.assert_allclose(found[small], expected[small], rtol=0, atol=LEAST)
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_plain_loops_are_right_to_a_few_ulp_everywhere(name, dtype):
    intrinsic, exact, _ = FUNCTIONS[name]
    few = np.logspace(-300 if dtype == "float64" else -37, 2, 500)
    values = np.concatenate([few, -few, 1 + few[:250], 1 - few[250:], SPECIAL]).astype(dtype)
    loops = elementwise(intrinsic, values.size, dtype)
    schedule = Schedule(loops)
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.vectorize(schedule.split(loop, [None, 4])[1])
    found, again = (run(elementary.expand_functions(one), values) for one in (loops, schedule.mod))
    np.testing.assert_array_equal(found, again)
    wide = exact(values if name == "erf" else values.astype(np.longdouble))
    expected = wide.astype(dtype)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    tiny = np.finfo(dtype).tiny
    sound = np.isfinite(expected) & (np.abs(wide) > tiny)
    ulp = np.abs(found[sound] - wide[sound]) / np.spacing(np.abs(expected[sound]))
    assert ulp.max() < 3


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_it_stays_between_its_limits(name):
    found = run(expanded(elementwise(FUNCTIONS[name][0])), samples())
    assert np.nanmax(np.abs(found)) == 1.0


def test_tiny_results_of_exp_are_denormal_numbers():
    values = np.linspace(-103, -88, COUNT, dtype="float32")
    found = run(expanded(elementwise(tirx.exp)), values)
    np.testing.assert_allclose(found, np.exp(values.astype("float64")), rtol=0, atol=2.0**-149)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_exponential_ends_where_single_precision_does():
    values = np.array([-np.inf, -3e38, -104, 88.5, 88.722, 88.73, 3e38, np.inf], "float32")
    found = run(expanded(elementwise(tirx.exp, values.size)), values)
    np.testing.assert_allclose(found, np.exp(values), rtol=1.2e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_precision_is_computed_in_single(name):
    intrinsic, exact, _ = FUNCTIONS[name]
    values = np.linspace(0.25, 8, 4096, dtype="float16")
    found = run(expanded(elementwise(intrinsic, values.size, "float16")), values)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = exact(values.astype("float64")).astype("float16")
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def power(exponent, count, dtype="float32"):
    return elementwise(lambda x: tirx.power(x, tirx.const(exponent, dtype)), count, dtype)


@each_row("exponent", [2.0, 3.0, -1.0, 0.5, 0.75, -0.5, 1.25, 4.0])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_by_quarters_are_products_and_roots(exponent):
    rng = np.random.default_rng(0)
    values = np.exp(rng.uniform(-20, 20, 1 << 14)).astype("float32")
    values[: SPECIAL.size] = SPECIAL
    module = expanded(power(exponent, values.size))
    assert "pow" not in module.script()
    expected = np.power(values.astype("float64"), np.full(values.shape, exponent))
    np.testing.assert_allclose(run(module, values), expected.astype("float32"), 4e-7, 1e-38)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_are_rounded_to_even_integers():
    values = samples()
    values[-4096:] = np.random.default_rng(1).uniform(-(2**24), 2**24, 4096)
    values[-8192:-4096] = np.arange(-2048, 2048) / 2
    module = expanded(elementwise(tirx.nearbyint))
    assert "T.nearbyint(" not in module.script(), "of which TVM makes no vectors"
    assert "llvm.nearbyint" in module.script()
    np.testing.assert_array_equal(run(module, values), np.rint(values))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_inverse_of_a_root_is_a_quotient():
    values = samples()
    module = expanded(elementwise(tirx.rsqrt))
    assert "rsqrt" not in module.script()
    np.testing.assert_array_equal(run(module, values), np.float32(1) / np.sqrt(values))


def test_a_square_is_a_product_in_any_precision():
    values = np.array([-3.0, 0.5, np.inf, np.nan], "float64")
    module = expanded(power(2.0, 4, "float64"))
    assert "pow" not in module.script()
    np.testing.assert_array_equal(run(module, values), values * values)


@pytest.mark.parametrize("exponent", [1 / 3, 0.0, 100.0])
def test_other_powers_are_left_alone(exponent):
    module = power(exponent, 8)
    assert tvm_ffi.structural_equal(elementary.mark_inexact(module), module)
    double = power(0.5, 8, "float64")
    assert tvm_ffi.structural_equal(elementary.mark_inexact(double), double)


def test_double_precision_and_other_functions_are_left_alone():
    double = elementwise(tirx.exp, 8, "float64")
    other = elementwise(lambda x: tirx.atan2(x, x) + tirx.power(x, x), 8)
    for module in (double, other):
        assert tvm_ffi.structural_equal(elementary.mark_inexact(module), module)


def test_only_marked_functions_are_changed():
    module = elementwise(tirx.exp)
    assert tvm_ffi.structural_equal(elementary.expand_functions(module), module)
    assert not tvm_ffi.structural_equal(
        elementary.expand_functions(elementary.mark_inexact(module)), module
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vectors_call_nothing_and_agree_with_scalars(name):
    module = elementary.mark_inexact(elementwise(FUNCTIONS[name][0]))
    sch = Schedule(module)
    (loop,) = sch.get_loops(sch.get_sblock("y"))
    _, row, vector = sch.split(loop, [None, 2, 8])
    sch.vectorize(vector)
    sch.unroll(row)
    scheduled = elementary.expand_functions(sch.mod)
    text = tvm.tirx.build(scheduled, TARGET).inspect_source("ll")
    assert f"{name}f" not in text
    assert f"llvm.{name}." not in text
    assert "nearbyint" not in text
    values = samples()
    np.testing.assert_allclose(
        run(scheduled, values),
        run(elementary.expand_functions(module), values),
        rtol=1e-6,
        atol=1e-38,
    )


@pytest.mark.parametrize("allowed", [True, False])
def test_lowering_marks_functions_where_it_may(allowed):
    module = relax_gelu()
    lowered = lowering.lower(module, TARGET, fast_algorithms=allowed)
    ((_, function),) = module_io.list_prim_funcs(lowered)
    assert "erf" in function.script()
    changed = elementary.expand_functions(lowered)
    assert ("erf" not in changed.script()) == allowed


def relax_gelu():
    x = relax.Var("x", relax.TensorType((2, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.gelu(x))
        builder.emit_func_output(out)
    module = builder.get()
    return tvm.IRModule({"main": module["main"].with_attr("num_input", 1)})


def test_inlined_functions_call_nothing_and_pass_on_what_is_no_number():
    """Also in vectors; of `isnan` TVM would make a loop over single numbers."""
    x = tirx.Var("x", "float32")
    for function in (tirx.exp, tirx.log, tirx.tanh, tirx.sigmoid, tirx.erf):
        text = str(elementary.expand_expression(function(x)))
        assert "isnan" not in text
        assert f"T.{function.__name__}(" not in text
    assert "isnan" in str(elementary.expand_expression(tirx.isnan(tirx.Var("x", "float64"))))


def test_a_function_of_functions_is_expanded_as_far_as_it_is_compiled_soon():
    """TVM's code generator writes each variable out, which took it a minute for these three."""
    module = expanded(elementwise(lambda x: tirx.asinh(tirx.atan(tirx.tanh(x)))))
    text = module.script()
    assert "T.asinh(" in text
    assert "T.atan(" not in text
    assert "T.tanh(" not in text
    values = np.random.default_rng(0).normal(size=COUNT).astype("float32")
    expected = np.arcsinh(np.arctan(np.tanh(values)))
    np.testing.assert_allclose(run(module, values), expected, rtol=3e-6)
    mish = expanded(elementwise(lambda x: x * tirx.tanh(tirx.log(1.0 + tirx.exp(x)))))
    assert not {"exp", "log", "tanh"} & {str(call) for call in calls_of(mish)}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", [1.0, 0.25, 1e-20])
def test_the_logarithm_of_a_number_and_an_exponential_asks_for_nothing_below_zero(number):
    values = samples()
    one = tirx.const(number, "float32")
    module = expanded(elementwise(lambda x: tirx.log(tirx.exp(x) + one)))
    selects: list[Any] = []
    tvm_ffi.structural_walk(module["main"].body, (tirx.Select, selects.append))
    assert len(selects) == 1  # for infinity, and what is no number
    sums = np.exp(values.astype("float64")).astype("float32") + np.float32(number)
    expected = np.log(sums.astype("float64"))
    np.testing.assert_allclose(run(module, values), expected, rtol=3e-7, atol=2e-7)


@pytest.mark.parametrize(
    "function",
    [lambda x: tirx.log(tirx.exp(x) - 1.0), lambda x: tirx.log(1e-38 + tirx.exp(x)),
     lambda x: tirx.log(1.0 + tirx.exp(tirx.tanh(x)))],
)  # fmt: skip
def test_other_logarithms_of_sums_ask_for_all(function):
    selects: list[Any] = []
    module = expanded(elementwise(function))
    tvm_ffi.structural_walk(module["main"].body, (tirx.Select, selects.append))
    assert len(selects) > 4


def calls_of(module):
    calls: list[Any] = []
    tvm_ffi.structural_walk(module["main"].body, (tvm.ir.Call, calls.append))
    return [call.op.name.removeprefix("tirx.") for call in calls]


def test_what_divides_by_a_number_is_marked_but_not_by_a_power_of_two():
    for number, marked in ((6.0, True), (4.0, False), (0.125, False)):
        module = elementwise(lambda x, by=number: x / tirx.const(by, "float32"))
        assert elementary.is_marked(elementary.mark_inexact(module)["main"]) == marked
    wide = elementwise(lambda x: x / tirx.const(6.0, "float64"), dtype="float64")
    assert not elementary.is_marked(elementary.mark_inexact(wide)["main"])


def test_what_is_no_number_is_found_in_vectors_in_any_function():
    x = te.placeholder((COUNT,), name="x")
    y = te.compute((COUNT,), lambda i: tirx.isnan(x[i]), name="y")
    module = tvm.IRModule({"main": te.create_prim_func([x, y])})
    assert not elementary.is_marked(elementary.mark_inexact(module)["main"])
    sch = Schedule(module)
    sch.vectorize(sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 32])[1])
    expanded = elementary.expand_functions(sch.mod)
    assert "isnan" not in expanded.script()
    values = samples()
    out = tvm.runtime.empty(values.shape, "bool")
    tvm.tirx.build(expanded, TARGET)["main"](tvm.runtime.tensor(values), out)
    np.testing.assert_array_equal(out.numpy(), np.isnan(values))
