"""The wall before code generation: what brings code along is refused, what computes is not."""

import pytest
import tvm
import tvm_ffi
from tvm import te, topi
from tvm.s_tir import Schedule

from autopipe.compiler import lowering
from autopipe.compiler.codegen.compile_kernels import compile_kernel
from autopipe.compiler.walls import module
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.errors import ModelError
from tests.compiler import graphs
from tests.compiler.walls import hostile


@pytest.mark.fault("I1")
@pytest.mark.parametrize("what", hostile.MODULES)
def test_a_module_that_brings_code_along_is_refused(what, monkeypatch):
    made = hostile.MODULES[what]()
    monkeypatch.setattr(tvm.tirx, "build", lambda *_: pytest.fail("code was generated"))
    with pytest.raises(ForeignCode, match=r"^(function|the module) .*"):
        compile_kernel(made, graphs.TARGET)


def test_a_refusal_is_one_line_however_long_the_code_is():
    made = hostile.annotated("pragma_unroll_explicit", "a\nb" * 1000)
    with pytest.raises(ForeignCode) as refused:
        module.look_through(made)
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


@pytest.mark.fault("I1")
def test_there_are_more_than_thirty_of_them():
    assert len(hostile.MODULES) + len(hostile.LLVM) > 70


def _sorted():
    x = te.placeholder((8, 64), "float32", name="x")
    return te.create_prim_func([x, *topi.topk(x, 3)])


def _functions():
    x = te.placeholder((8, 64), "float32", name="x")
    names = ("exp", "erf", "sin", "tan", "log1p", "rsqrt", "sigmoid", "nearbyint")
    kinds = [getattr(tvm.tirx, name) for name in names]
    y = te.compute(x.shape, lambda *i: sum((kind(x(*i)) for kind in kinds), x(*i)), name="y")
    return te.create_prim_func([x, y])


ON_LOOPS = {
    "pragma_auto_unroll_max_step": 16, "pragma_unroll_explicit": 1,
    "pragma_loop_partition_hint": True, "software_pipeline_stage": [0, 0, 1],
}  # fmt: skip
ON_BLOCKS = {
    "meta_schedule.tiling_structure": "SSRSRS", "meta_schedule.vectorize": 64,
    "meta_schedule.cooperative_fetch": 2, "schedule_rule": "meta_schedule.pool_max",
}  # fmt: skip


def _annotated():
    sch, block, loop = hostile.doubled()
    for key, value in ON_LOOPS.items():
        sch.annotate(loop, key, value)
    for key, word in ON_BLOCKS.items():
        sch.annotate(block, key, word)
    return sch.mod["main"]


def _threaded():
    sch, block, _ = hostile.doubled()
    outer, inner = sch.get_loops(block)
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, outer)
    return sch.mod["main"]


@pytest.mark.parametrize("made", [_sorted, _functions, _annotated, _threaded])
def test_what_schedules_and_libraries_of_tvm_use_passes(made):
    module.look_through(made())


def test_constants_are_folded_behind_the_walls(monkeypatch):
    """TVM compiles what it folds, by a function that it finds by name."""
    seen: list[object] = []
    monkeypatch.setattr(module, "look_through", seen.append)
    sch, _, _ = hostile.doubled()
    build = tvm_ffi.get_global_func("tirx.build")
    build(sch.mod["main"], tvm.target.Target({"kind": "llvm"}))
    assert len(seen) == 1


@pytest.mark.fault("I4")
@pytest.mark.parametrize(
    "step",
    [
        lambda model: lowering.optimize(model, 1, {}, graphs.TARGET, print),
        lambda model: lowering.lower(model, graphs.TARGET),
    ],
    ids=["optimize", "lower"],
)
def test_a_model_that_brings_code_along_is_unusable(step, monkeypatch):
    bad = hostile.MODULES["graph that loads"]()
    monkeypatch.setattr(tvm.transform, "module_pass", lambda *_: pytest.fail("a pass has run"))
    with pytest.raises(ModelError, match=r"^the model brings code along: function main has the"):
        step(bad)


def test_what_can_not_be_walked_through_is_refused(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a node without a field")

    monkeypatch.setattr(tvm_ffi, "structural_walk", broken)
    with pytest.raises(ForeignCode, match="function main cannot be looked through: a node"):
        module.look_through(hostile.doubled()[0].mod)


def test_no_other_code_of_ours_generates_code(request):
    """All ways to machine code lead through the code inspection."""
    ours = request.config.rootpath / "autopipe"
    direct = ("tvm.compile(", "tirx.build(", "relax.build(", "tvm.build(", ".export_library(")
    found = {
        file.relative_to(ours).as_posix()
        for file in ours.rglob("*.py")
        if any(way in file.read_text("utf-8") for way in direct)
    }
    assert found == {"compiler/codegen/compile_kernels.py"}


def test_a_schedule_is_looked_through_as_it_is_traced():
    """Splits, fusions and the like leave nothing that is refused."""
    sch, block, _ = hostile.doubled()
    outer, inner = sch.get_loops(block)
    fused = sch.fuse(outer, inner)
    parts = sch.split(fused, [None, 8, 4])
    sch.parallel(parts[0])
    sch.unroll(parts[1])
    sch.vectorize(parts[2])
    again = Schedule(hostile.doubled()[0].mod)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    module.look_through(again.mod)
