"""Schedules for another kind of processor, run under an emulator of it.

What that takes is in `tests/support/emulation`.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.target.target import make_host_target
from autopipe.environment.toolchain import Linker
from autopipe.measure.check import PlainLoops, compile_schedule
from autopipe.measure.linked import write_library
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import default, static
from tests.schedules.engines.test_static import SERVED
from tests.schedules.templates import test_dot_product, test_rows, test_window
from tests.schedules.tensors import module_of
from tests.support.emulation import COMPILER, EMULATOR, Emulator, has_emulator

FACTS = {
    "kind": "llvm", "mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu", "num_cores": 2,
    "hardware": {},
}  # fmt: skip
needs_tools = pytest.mark.skipif(
    not has_emulator(), reason=f"{COMPILER} or {EMULATOR} is not installed"
)


@pytest.fixture(scope="module")
def conditions():
    return Conditions.of(FACTS, fast_algorithms=True)


@pytest.fixture(scope="module")
def emulator(tmp_path_factory):
    return Emulator(tmp_path_factory.mktemp("emulator"))


def emulating(emulator, library):
    """Return what returns the arguments of a kernel after one call."""
    return lambda _, arrays: emulator.call(library, arrays)


def made(name):
    return module_of(*SERVED[name]())


CASES: dict[str, Callable[[], tvm.IRModule]] = {
    **{name: partial(made, name) for name in ("conv", "odd_channels", "depthwise", "dense")},
    "pool": lambda: test_window.module_of(test_window.pool("max")),
    "softmax": lambda: test_rows.module_of(test_rows.softmax()),
    "bytes": lambda: test_dot_product.module_of(*test_dot_product.matmul(("int8", "int8"))),
}


def depthwise():
    x, w = te.placeholder((1, 14, 14, 48), "float32"), te.placeholder((3, 3, 48, 1), "float32")
    return module_of([x, w, topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1)], [1])


def dense():
    x, w = te.placeholder((16, 64), "float32"), te.placeholder((64, 96), "float32")
    return module_of([x, w, topi.matmul(x, w)], [1])


def test_a_neon_processor_has_thirty_two_registers_of_four_floats(conditions):
    assert (conditions.hardware.vector_bits, conditions.hardware.registers) == (128, 32)
    assert conditions.hardware.lanes(32) == 4


@needs_tools
@pytest.mark.parametrize("case", CASES)
def test_templates_compute_the_same_on_another_processor(case, conditions, emulator, tmp_path):
    module = CASES[case]()
    loops = PlainLoops(module, make_host_target(2))
    loops.instances = loops.instances[:2]  # an emulator takes its time
    plans = list(static.list_plans(module, conditions))
    assert plans
    for number, planned in enumerate(plans):
        library = tmp_path / str(number) / "lib.so"
        library.parent.mkdir()
        write_library(
            compile_schedule(planned.module, conditions.target), library, Linker.of(COMPILER, None)
        )
        loops.compare(emulating(emulator, library))


@needs_tools
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("make", "multiply_adds", "most"),
    [(depthwise, 14 * 14 * 48 * 9, 2.7), (dense, 16 * 64 * 96, 1.9)],
)
def test_sums_stay_in_registers_of_another_processor(
    make, multiply_adds, most, conditions, emulator
):
    """Tiles of 2 x 12 outputs, too large for them, take 2.8 instructions in a multiply-add."""
    alone = replace(conditions, hardware=replace(conditions.hardware, cores=1))
    planned, loops = (
        next(static.list_plans(make(), alone)),
        default.plan_loops(make(), conditions),
    )
    assert loops is not None
    counts, plain = (
        emulator.count_call(schedule.module, conditions.target) for schedule in (planned, loops)
    )
    assert counts.multiply_adds >= multiply_adds * 0.8, "not counted"
    assert counts.total * 4 / multiply_adds < most
    assert counts.spills * 4 / multiply_adds < 0.3
    assert counts.total < plain.total


@needs_tools
def test_a_wrong_number_would_be_seen(conditions, emulator, tmp_path):
    a = te.placeholder((64,), name="a")
    right, wrong = (
        tvm.IRModule({"main": te.create_prim_func([a, topi.add(a, number)])})
        for number in (1.0, 1.5)
    )
    write_library(
        compile_schedule(wrong, conditions.target), tmp_path / "lib.so", Linker.of(COMPILER, None)
    )
    with pytest.raises(Exception, match=r"off by up to 0\.5 from the plain loops on random inputs"):
        PlainLoops(right, make_host_target(2)).compare(emulating(emulator, tmp_path / "lib.so"))
