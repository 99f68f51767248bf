from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, topi

from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.library import build
from autopipe.compiler.library.evaluate_weights import evaluate_weights
from autopipe.measure.build import without_weights
from autopipe.measure.check import checked
from autopipe.schedules.analysis.filtering_cost import Blocking
from autopipe.schedules.engines import default, static
from autopipe.schedules.engines.ansor import Ansor
from autopipe.schedules.engines.autotvm import AutoTVM
from autopipe.schedules.engines.engine import Problem
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.implementations.implementation import DIRECT, build_implementations
from autopipe.schedules.implementations.winograd import (
    Winograd,
    winograd2,
    winograd4,
    winograd6,
)
from autopipe.schedules.primitives import make_schedule
from autopipe.schedules.replay import replay_schedule
from autopipe.schedules.templates.winograd import WINOGRAD
from tests.compiler import graphs
from tests.schedules.computed import called, compiled
from tests.schedules.tasks import CONDITIONS, TARGET, task
from tests.support.table import each_row

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)
NARROW = HardwareParams(vector_bits=128, registers=16, cores=4)
SIZES: dict[str, Winograd] = {size.NAME: size for size in (winograd2, winograd4, winograd6)}


def convolution(
    height=7, width=7, pad=1, inputs=5, outputs=8, *,
    batch=1, kernel=3, stride=1, dilation=1, groups=1, layout="NHWC", after="relu", free=True,
    dtype="float32",
):  # fmt: skip
    shape = (batch, height, width, inputs) if layout == "NHWC" else (batch, inputs, height, width)
    weight = (kernel, kernel, inputs // groups, outputs)
    if layout == "NCHW":
        weight = (outputs, inputs // groups, kernel, kernel)
    x, w = te.placeholder(shape, dtype), te.placeholder(weight, dtype)
    order = "HWIO" if layout == "NHWC" else "OIHW"
    y = topi.nn.conv(x, w, stride, pad, dilation, groups, layout, order)
    arguments = [x, w]
    if after != "nothing":
        bias = te.placeholder((1, 1, 1, outputs), dtype)
        arguments.append(bias)
        y = topi.add(y, bias)
    if after == "residual":
        other = te.placeholder(y.shape, dtype)
        arguments.append(other)
        y = topi.add(y, other)
    if after in {"relu", "residual"}:
        y = topi.nn.relu(y)
    if after == "sums":
        y = topi.sum(y, axis=(1, 2))
    function = te.create_prim_func([*arguments, y])
    free_buffers = [1] if free else []
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", free_buffers)})


def volume(inputs=4, outputs=8, *, taps=3, pad=(1, 1, 1, 1, 1, 1), dilation=1):
    x, w = te.placeholder((2, 4, 7, 6, inputs)), te.placeholder((taps, 3, 3, inputs, outputs))
    y = topi.nn.relu(topi.nn.conv(x, w, 1, pad, dilation, 1, "NDHWC", "DHWIO"))
    function = te.create_prim_func([x, w, y])
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", [1])})


def arrays(module):
    rng = np.random.default_rng(3)
    shapes = [[int(extent) for extent in param.ty.shape] for param in module["main"].params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def run(values, *modules):
    """Return what each module computes."""
    return [
        called(function, list(map(tvm.runtime.tensor, values))) for function in compiled(modules)
    ]


def exact(values, pad, dilation=1):
    """Convolve with numpy in float64, and add what else there is, before a ReLU."""
    x, w, *others = (value.astype("float64") for value in values[:-1])
    top, left, bottom, right = pad
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    down, across = np.broadcast_to(dilation, 2)
    windows = sliding_window_view(padded, (2 * down + 1, 2 * across + 1), (1, 2))
    windows = windows[..., ::down, ::across]
    y = np.einsum("nyxcij,ijcf->nyxf", windows, w)
    for other in others:
        y = y + other
    return np.maximum(y, 0) if others else y


CASES: dict[str, dict[str, Any]] = {
    "7x7": {},
    "13x10": {"height": 13, "width": 10},
    "5x27": {"height": 5, "width": 27},
    "unpadded": {"height": 9, "width": 8, "pad": (0, 0, 0, 0)},
    "asymmetric": {"height": 8, "width": 11, "pad": (0, 1, 2, 1)},
    "batch": {"height": 6, "width": 6, "batch": 3},
    "residual": {"after": "residual", "height": 10, "width": 10},
    "nothing_after": {"after": "nothing", "outputs": 12},
    "odd_channels": {"inputs": 3, "outputs": 7},
    "one_tile": {"height": 2, "width": 2},
    "dilated": {"height": 13, "width": 10, "dilation": 2, "pad": (2, 2, 2, 2)},
    "dilated_unlike": {"height": 9, "width": 16, "dilation": (1, 3), "pad": (1, 3, 1, 3)},
    "dilated_by_more_than_it_is_high": {"height": 4, "dilation": 6, "pad": (6, 6, 6, 6)},
}

OTHERS: dict[str, dict[str, Any]] = {
    "strided": {"stride": 2},
    "grouped": {"inputs": 4, "groups": 2},
    "5x5": {"kernel": 5},
    "1x1": {"kernel": 1, "pad": 0},
    "NCHW": {"layout": "NCHW", "after": "nothing"},
    "kernel_is_no_weight": {"free": False},
    "summed_up_after": {"after": "sums"},
}


def scheduled(module, choose=WINOGRAD.fill):
    sch = make_schedule(module)
    found = WINOGRAD.match(sch)
    assert found is not None
    WINOGRAD.apply(sch, found, choose(found, CONDITIONS.hardware))
    return sch.mod


@each_row("case", CASES)
def test_tiles_compute_what_numpy_computes(case):
    arguments = {"pad": (1, 1, 1, 1), **CASES[case]}
    module = convolution(**arguments)
    values = arrays(module)
    expected = exact(values, arguments["pad"], arguments.get("dilation", 1))
    found = run(values, *(scheduled(size.rewrite(module)) for size in SIZES.values()))
    for size, one in zip(SIZES.values(), found, strict=True):
        bound = 2e-5 if size is winograd6 else 1e-5
        assert np.abs(one - expected).max() <= bound * np.abs(expected).max()


VOLUMES: dict[str, dict[str, Any]] = {
    "plain": {},
    "unlike": {"pad": (0, 1, 2, 1, 0, 1), "inputs": 3, "dilation": (2, 1, 1)},
    "one_slice": {"taps": 1, "pad": (0, 1, 1, 0, 1, 1), "inputs": 8},
    "apart": {"pad": (1, 2, 2, 1, 2, 2), "dilation": (1, 2, 2)},
}


@each_row("case", VOLUMES)
def test_volumes_are_convolved_slice_by_slice(case):
    given = VOLUMES[case]
    module = volume(**given)
    x, w, y = (value.astype("float64") for value in arrays(module))
    top, bottom = np.split(np.array(given.get("pad", (1,) * 6)), 2)
    steps = np.broadcast_to(given.get("dilation", 1), 3)
    padded = np.pad(x, ((0, 0), *zip(top, bottom, strict=True), (0, 0)))
    spans = [step * (n - 1) + 1 for step, n in zip(steps, w.shape, strict=False)]
    windows = sliding_window_view(padded, spans, (1, 2, 3))
    windows = windows[..., :: steps[0], :: steps[1], :: steps[2]]
    expected = np.maximum(np.einsum("nzyxckij,kijcf->nzyxf", windows, w), 0)
    assert expected.shape == y.shape
    for found in run(arrays(module), *(scheduled(s.rewrite(module)) for s in SIZES.values())):
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


def test_a_kernel_of_an_even_number_of_slices_is_left_alone():
    assert winograd4.rewrite(volume(taps=2)) is None


def test_loops_that_nobody_scheduled_compute_the_same():
    module = convolution(9, 10)
    values = arrays(module)
    (found,) = run(values, winograd4.rewrite(module))
    np.testing.assert_allclose(found, exact(values, (1, 1, 1, 1)), rtol=1e-4, atol=1e-4)


def test_tiles_that_only_fill_up_a_block_write_nothing():
    module = convolution(10, 10, outputs=16)  # 25 tiles of 2x2, summed 13 at a time
    made = scheduled(winograd2.rewrite(module))
    values = [tvm.runtime.tensor(value) for value in arrays(module)[:-1]]
    images = tvm.runtime.tensor(np.full((2, 10, 10, 16), 7, "float32"))
    tvm.tirx.build(made, TARGET)["main"](*values, images._create_view((1, 10, 10, 16)))
    assert (images.numpy()[0] != 7).all()
    assert (images.numpy()[1] == 7).all()


@each_row("size, case", product(SIZES, OTHERS))
def test_other_convolutions_are_left_alone(case, size):
    module = convolution(**OTHERS[case])
    assert SIZES[size].rewrite(module) is None
    assert SIZES[size].gain(module, WIDE) == 0
    assert list(build_implementations(module, CONDITIONS)) == [DIRECT]


def test_sizes_that_are_not_known_are_left_alone():
    module = convolution(batch=te.var("n"))
    assert winograd4.rewrite(module) is None
    assert winograd4.gain(module, WIDE) == 0


def test_halves_are_left_alone():
    assert winograd4.rewrite(convolution(dtype="float16")) is None


def test_a_function_that_is_no_convolution_is_left_alone():
    module = tvm.IRModule({"main": tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))})
    assert winograd4.rewrite(module) is None


def test_padding_that_is_not_of_zeros_is_no_convolution():
    x, w = te.placeholder((1, 6, 6, 4), "float32"), te.placeholder((3, 3, 4, 8), "float32")
    padded = topi.nn.pad(x, (0, 1, 1, 0), (0, 1, 1, 0), pad_value=1.0)
    i, j, k = (te.reduce_axis((0, n)) for n in (3, 3, 4))
    y = te.compute(
        (1, 6, 6, 8),
        lambda n, r, c, f: te.sum(padded[n, r + i, c + j, k] * w[i, j, k, f], axis=[i, j, k]),
    )
    function = te.create_prim_func([x, w, y]).with_attr("layout_free_buffers", [1])
    assert winograd4.rewrite(tvm.IRModule({"main": function})) is None


def test_fast_algorithms_can_be_forbidden():
    module = convolution(height=16, width=16, inputs=32, outputs=64)
    assert list(build_implementations(module, CONDITIONS)) == [DIRECT, *SIZES]
    exactly = replace(CONDITIONS, fast_algorithms=False)
    assert list(build_implementations(module, exactly)) == [DIRECT]
    assert [plan.implementation for plan in static.list_plans(module, exactly)] == [DIRECT]


def test_a_record_gives_the_schedule_again():
    module = convolution(inputs=16, outputs=32)
    plan = next(
        plan for plan in static.list_plans(module, CONDITIONS) if plan.implementation in SIZES
    )
    again = replay_schedule(module, plan.implementation, plan.schedule, CONDITIONS)
    assert tvm_ffi.structural_equal(again, plan.module)
    checked(module, again, TARGET)


def test_templates_are_searched_and_sketches_are_not():
    module = convolution(inputs=16, outputs=32)
    problem = Problem(task(), winograd4.rewrite(module), CONDITIONS, (), 4, 0, "random")  # type: ignore[arg-type]
    assert Ansor(CONDITIONS).search(problem) is None
    search = AutoTVM(CONDITIONS).search(problem)
    assert search is not None
    for schedule in search.propose(2):
        checked(module, replay_schedule(module, "winograd4", schedule, CONDITIONS), TARGET)


def test_a_kernel_is_transformed_before_it_is_measured():
    made = without_weights(scheduled(winograd4.rewrite(convolution(inputs=16, outputs=32))))
    shapes = [[int(extent) for extent in param.ty.shape] for param in made["main"].params]
    assert np.prod(shapes[1]) == 6 * 6 * 16 * 32
    sch = make_schedule(made)
    names = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
    assert "winograd_kernel" not in names
    assert "winograd_input" in names


def test_one_vector_of_channels_leaves_registers_for_two_steps():
    """Tiles of 14 windows and 8 channels took 1.6 times as long as those of 2 and 32."""
    made = winograd4.rewrite(convolution(55, 55, inputs=16, outputs=64))
    found = WINOGRAD.match(make_schedule(made))  # type: ignore[arg-type]
    assert found is not None
    chosen = WINOGRAD.fill(found, HardwareParams(vector_bits=256, registers=16, cores=2))
    assert chosen.rows <= 12 or chosen.columns > chosen.width


@pytest.mark.parametrize("hardware", [WIDE, NARROW])
def test_every_setting_divides_and_fits_the_registers(hardware):
    made = winograd4.rewrite(convolution(28, 28, inputs=24, outputs=72))
    found = WINOGRAD.match(make_schedule(made))  # type: ignore[arg-type]
    assert found is not None
    every = list(WINOGRAD.settings(found, hardware))
    assert WINOGRAD.fill(found, hardware) in every
    for knobs in every:
        vectors = knobs.columns // knobs.width
        assert knobs.rows * vectors + vectors + 1 <= hardware.registers
        assert knobs.width == (8 if hardware is WIDE else 4)
        assert found.tiles % knobs.tiles == knobs.tiles % knobs.rows == 0
        assert found.outputs % (knobs.parts * knobs.chunk) == knobs.chunk % knobs.columns == 0


KNOBS = [Blocking(16, 1, 32, 8, 16, 16), Blocking(4, 2, 8, 1, 8, 4), Blocking(8, 4, 8, 4, 4, 4)]


def test_every_setting_of_the_knobs_is_right():
    module = convolution(16, 14, inputs=12, outputs=32, after="residual")
    values = arrays(module)
    expected = exact(values, (1, 1, 1, 1))
    made = winograd4.rewrite(module)
    tiled = [scheduled(made, choose=lambda *_, knobs=knobs: knobs) for knobs in KNOBS]
    for found in run(values, *tiled):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_model_is_built_with_the_kernel_transformed():
    module = graphs.convolution(channels=16, size=18)
    values = graphs.arguments(module)
    optimized = lowering.optimize(module, 1, graphs.NHWC, TARGET, print)
    lowered = lowering.lower(optimized.module, TARGET)
    choices = {}
    for name, function in module_io.list_prim_funcs(lowered):
        workload = tasks.make_workload(function).module
        made = winograd4.rewrite(workload)
        choices[name] = default.schedule(workload, TARGET) if made is None else scheduled(made)
    built = build.build_library(lowered, choices, TARGET)
    kept = values[1:]
    for work in (optimized.transform, built.packing):
        kept = evaluate_weights(work, kept, TARGET, lambda module: module)
    assert max(array.size for array in kept) == 36 * 16 * 16
    machine = tvm.relax.VirtualMachine(built.executable, tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, [values[0], *kept])).numpy()
    expected = graphs.expected(module, values)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
