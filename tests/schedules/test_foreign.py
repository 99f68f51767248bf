"""Schedules for another kind of processor, run under an emulator of it.

Wanted: Debian's `gcc-aarch64-linux-gnu` (or another compiler of that name) and `qemu-user`.
"""

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te, topi

from autopipe.compiler.target.target import host
from autopipe.environment.toolchain import Linker
from autopipe.measure.check import PlainLoops, compiled_for
from autopipe.measure.linked import write
from autopipe.schedules.conditions import Conditions
from autopipe.schedules.engines import static
from tests.schedules.engines.test_static import SERVED, module_of
from tests.schedules.templates import test_dot_product, test_row_reduction, test_window

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
ROOT = Path(f"/usr/{COMPILER.removesuffix('-gcc')}")
SOURCE = Path(__file__).parents[1] / "measure" / "run_kernel.c"
FACTS = {
    "kind": "llvm", "mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu", "num_cores": 2,
    "hardware": {},
}  # fmt: skip
needs_tools = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR) and ROOT.is_dir()),
    reason=f"{COMPILER} or {EMULATOR} is not installed",
)


@pytest.fixture(scope="module")
def conditions():
    return Conditions.of(FACTS, fast_algorithms=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A program that calls one kernel, for the other kind of processor."""
    path = tmp_path_factory.mktemp("driver") / "run_kernel"
    subprocess.run(
        [COMPILER, "-O1", "-o", path, SOURCE, "-ldl", "-Wl,--no-as-needed", "-lm"], check=True
    )
    return path


def emulating(driver, library):
    """Return what returns the arguments of a kernel after one call."""

    def ours(_, arrays):
        return emulated(driver, library, arrays)

    return ours


def emulated(driver, library, arrays):
    """Return the arguments of a kernel after one call."""
    words = []
    for number, array in enumerate(arrays):
        file = library.with_name(f"{number}.bin")
        array.tofile(file)
        kind = f"{array.dtype.kind}{array.itemsize}"
        words.append(f"{file}:{kind}:{','.join(map(str, array.shape))}")
    subprocess.run([EMULATOR, "-L", ROOT, driver, library, *words], check=True, timeout=60)
    return [
        np.fromfile(library.with_name(f"{number}.bin"), array.dtype).reshape(array.shape)
        for number, array in enumerate(arrays)
    ]


def made(name):
    return module_of(*SERVED[name]())


CASES: dict[str, Callable[[], tvm.IRModule]] = {
    **{name: partial(made, name) for name in ("conv", "odd_channels", "depthwise", "dense")},
    "pool": lambda: test_window.module_of(test_window.pool("max")),
    "softmax": lambda: test_row_reduction.module_of(test_row_reduction.softmax()),
    "bytes": lambda: test_dot_product.module_of(*test_dot_product.matmul(("int8", "int8"))),
}


def test_a_neon_processor_has_thirty_two_registers_of_four_floats(conditions):
    assert (conditions.hardware.vector_bits, conditions.hardware.registers) == (128, 32)
    assert conditions.hardware.lanes(32) == 4


@needs_tools
@pytest.mark.parametrize("case", CASES)
def test_templates_compute_the_same_on_another_processor(case, conditions, driver, tmp_path):
    module = CASES[case]()
    loops = PlainLoops(module, host(2))
    loops.instances = loops.instances[:2]  # an emulator takes its time
    plans = list(static.plans(module, conditions))
    assert plans
    for number, planned in enumerate(plans):
        library = tmp_path / str(number) / "lib.so"
        library.parent.mkdir()
        write(compiled_for(planned.module, conditions.target), library, Linker.of(COMPILER, None))
        loops.compare(emulating(driver, library))


@needs_tools
def test_a_wrong_number_would_be_seen(conditions, driver, tmp_path):
    a = te.placeholder((64,), name="a")
    right, wrong = (
        tvm.IRModule({"main": te.create_prim_func([a, topi.add(a, number)])})
        for number in (1.0, 1.5)
    )
    write(compiled_for(wrong, conditions.target), tmp_path / "lib.so", Linker.of(COMPILER, None))
    with pytest.raises(Exception, match=r"off by up to 0\.5 from the plain loops on random inputs"):
        PlainLoops(right, host(2)).compare(emulating(driver, tmp_path / "lib.so"))
