"""A schedule is checked by its kernel in a linked library: what the library has is compared."""

import pytest
import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, FloatImm, SeqStmt

from autopipe.compiler import lowering, module_io, tasks
from autopipe.compiler.graph.weights import MARK
from autopipe.compiler.library import build
from autopipe.measure.build import split_weights
from autopipe.measure.check import WrongAnswer
from autopipe.measure.library_kernel import LibraryKernel, check_kernel
from autopipe.schedules.engines import static
from tests.compiler import graphs
from tests.schedules.tasks import CONDITIONS

TARGET = CONDITIONS.target


@pytest.fixture(scope="module")
def kernels():
    """Return the lowered module, and the workload and the schedule of each kernel by name."""
    module = graphs.convolution()
    lowered = lowering.lower(
        lowering.optimize(module, 1, graphs.NHWC, TARGET, print).module, TARGET
    )
    made = {}
    for name, function in module_io.list_prim_funcs(lowered):
        workload = tasks.make_workload(function).module
        planned = static.plan(workload, CONDITIONS)
        assert planned is not None
        made[name] = (workload, planned.module)
    return lowered, made


def link(folder, kernels, **replaced):
    """Link a library with the right schedule of each kernel, unless it is replaced."""
    lowered, made = kernels
    schedules = {name: scheduled for name, (_, scheduled) in made.items()} | replaced
    path = folder / "lib.so"
    build.export(build.build_library(lowered, schedules, TARGET), path)
    return str(path)


def wrong(module, *, packing=False):
    """Return a schedule that doubles what it stores, or what it packs."""

    def double(store):
        return BufferStore(store.buffer, store.value * 2.0, store.indices)

    def spoil(block):
        if block.name_hint == "root" or (MARK in block.annotations) != packing:
            return block
        return tvm_ffi.structural_map(block, (BufferStore, double))

    function = tvm_ffi.structural_map(module["main"], (SBlock, spoil))
    return tvm.IRModule({"main": function})


def spoiling(module):
    """Return a schedule that stores zeros in its packed weights as well."""
    blocks: list[SBlock] = []
    tvm_ffi.structural_walk(module["main"], (SBlock, blocks.append))
    (packed,) = (block.writes[0] for block in blocks if MARK in block.annotations)

    def spoil(store):
        zeros = [0] * len(packed.region)
        return SeqStmt([store, BufferStore(packed.source, FloatImm("float32", 0.0), zeros)])

    def spoil_block(block):
        if block.name_hint == "root" or MARK in block.annotations:
            return block
        return tvm_ffi.structural_map(block, (BufferStore, spoil))

    function = tvm_ffi.structural_map(module["main"], (SBlock, spoil_block))
    return tvm.IRModule({"main": function})


def test_kernels_are_called_with_packed_weights(kernels, tmp_path):
    _, made = kernels
    path = link(tmp_path, kernels)
    assert any(split_weights(scheduled).packing for _, scheduled in made.values())
    for name, (workload, scheduled) in made.items():
        assert check_kernel(workload, scheduled, LibraryKernel(path, name), TARGET)


def test_what_the_library_has_is_compared(kernels, tmp_path):
    """The schedule that it is said to have been linked with is right."""
    _, made = kernels
    name = next(name for name in made if "conv2d" in name)
    workload, scheduled = made[name]
    path = link(tmp_path, kernels, **{name: wrong(scheduled)})
    with pytest.raises(WrongAnswer, match="from the plain loops on random inputs"):
        check_kernel(workload, scheduled, LibraryKernel(path, name), TARGET)


def test_wrong_packing_is_found(kernels, tmp_path):
    _, made = kernels
    name = next(name for name, (_, one) in made.items() if split_weights(one).packing)
    workload, scheduled = made[name]
    path = link(tmp_path, kernels)
    with pytest.raises(WrongAnswer, match="from the plain loops"):
        check_kernel(workload, wrong(scheduled, packing=True), LibraryKernel(path, name), TARGET)


def test_what_writes_to_its_weights_is_wrong(kernels, tmp_path):
    """Results are right where a weight is spoiled after its last use."""
    _, made = kernels
    name = next(name for name, (_, one) in made.items() if split_weights(one).packing)
    workload, scheduled = made[name]
    path = link(tmp_path, kernels, **{name: spoiling(scheduled)})
    with pytest.raises(WrongAnswer, match="writes to its packed weights on random inputs"):
        check_kernel(workload, scheduled, LibraryKernel(path, name), TARGET)


def test_a_name_that_the_library_lacks_is_left_to_the_schedule_alone(kernels, tmp_path):
    _, made = kernels
    path = link(tmp_path, kernels)
    workload, scheduled = next(iter(made.values()))
    assert not check_kernel(workload, scheduled, LibraryKernel(path, "no_kernel"), TARGET)
