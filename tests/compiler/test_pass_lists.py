"""The lists of passes, and what shows them."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from autopipe.compiler import lowering, pass_lists
from autopipe.compiler.codegen.compile_kernels import SKIPPED, SKIPPED_DYNAMIC, compile_kernel
from autopipe.compiler.library.build import build_library
from autopipe.compiler.named_pass import NamedPass, PassPhase, module_pass, run_passes
from autopipe.compiler.pass_observer import observe_passes, pass_context, write_below
from autopipe.errors import ModelError, StoreError
from docs.passes_page import OVERVIEW, PAGE, describe_passes, fill_overview
from tests.compiler import graphs

PASSES: list[NamedPass[Any]] = [
    *(one for phase in pass_lists.OPTIMIZE for one in phase.passes),
    *(one for phase in pass_lists.LOWER for one in phase.passes),
    *(one for phase in pass_lists.LINK for one in phase.passes),
]
KERNELS = (
    pass_lists.KERNELS_DYNAMIC,
    pass_lists.KERNELS,
    pass_lists.HOST_KERNELS_DYNAMIC,
    pass_lists.HOST_KERNELS,
)


def doubled():
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(total)
    return builder.get()


def build_model(folder=None):
    """Return the observer of a whole build."""
    with observe_passes(folder) as observer:
        optimized = lowering.optimize(doubled(), 1, {}, graphs.TARGET, print)
        build_library(lowering.lower(optimized.module, graphs.TARGET), {}, graphs.TARGET)
    return observer


def test_each_pass_has_a_name_and_a_reason():
    machine: list[NamedPass[Any]] = [
        one for phase in pass_lists.MACHINE_DYNAMIC for one in phase.passes
    ]
    named = {one.name: one.reason for one in PASSES} | {one.name: one.reason for one in machine}
    named |= {one.name: one.reason for each in KERNELS for one in each}
    assert len(named) > 50
    assert all(name.isidentifier() and reason for name, reason in named.items())


def test_a_build_runs_every_pass_of_its_lists_under_its_name():
    seen = build_model().times
    conditional = {one.name for one in PASSES if one.describe_condition()}
    wanted = {one.name for one in PASSES} - conditional
    wanted |= {one.name for one in (*pass_lists.KERNELS, *pass_lists.HOST_KERNELS)}
    assert wanted <= seen.keys()
    assert not {"round_products", "convert_layout", "assume_nonnegative_sizes"} & seen.keys()
    assert not {"fuse_attention", "drop_dead_taps", "pad_in_place"} & seen.keys()


def test_a_pass_runs_where_the_graph_has_what_it_rewrites_by_then():
    ran: list[str] = []

    def note(name: str, rewrites: tuple[str, ...]) -> NamedPass[object]:
        def apply(module: tvm.IRModule, _: object) -> tvm.IRModule:
            ran.append(name)
            return relax.transform.LegalizeOps()(module) if name == "legalize" else module

        return NamedPass(name, "notes its name", apply, rewrites=frozenset(rewrites))

    passes = (
        note("exp", ("relax.exp",)), note("add", ("relax.add", "relax.exp")), note("all", ()),
        note("legalize", ()), note("add behind", ("relax.add",)),
        note("kernels", ("relax.call_tir",)),
    )  # fmt: skip
    run_passes(doubled(), [PassPhase("all", passes)], None)
    assert ran == ["add", "all", "legalize", "kernels"]
    assert passes[1].describe_condition() == "the graph has `add`, `exp`"


def test_what_a_pass_runs_itself_is_not_listed():
    normalize = relax.transform.Normalize()
    named: NamedPass[object] = NamedPass(
        "outer", "calls another", lambda module, _: normalize(module)
    )
    with observe_passes() as observer, pass_context():
        run_passes(doubled(), [PassPhase("all", (named,))], None)
    assert list(observer.times) == ["outer"]
    assert observer.times["outer"].runs == 1


def test_a_file_is_written_for_each_pass_that_changes_the_module(tmp_path):
    folder = tmp_path / "ir"
    build_model(folder)
    names = sorted(path.name for path in folder.iterdir())
    assert names[0] == "000_input.txt"
    assert [int(name.partition("_")[0]) for name in names] == list(range(len(names)))
    texts = [(folder / name).read_text() for name in names]
    assert all(before != after for before, after in pairwise(texts))
    legalized = next(name for name in names if "legalize" in name)
    assert "R.add" in texts[0]
    assert "R.call_tir" in (folder / legalized).read_text()
    assert any("LowerTVMBuiltin" in name for name in names[-3:])


def test_processes_that_run_at_the_same_time_write_to_folders_of_their_own(tmp_path):
    folder = tmp_path / "ir"
    with observe_passes(folder), pass_context():
        write_below("weights")
        relax.transform.LegalizeOps()(doubled())
    assert [path.name for path in folder.iterdir()] == ["weights"]
    assert (folder / "weights" / "000_input.txt").exists()


def test_the_page_of_passes_is_current():
    page, overview = (Path(__file__).parents[2] / path for path in (PAGE, OVERVIEW))
    assert page.read_text("utf-8") == describe_passes(), "out of date; run: make gen"
    text = overview.read_text("utf-8")
    assert text == fill_overview(text), "out of date; run: make gen"


def test_a_folder_that_cannot_be_written_is_an_error_and_not_a_bug(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/ir: Not a directory$"):
        build_model(tmp_path / "file/ir")


def test_nothing_is_watched_where_nobody_asks():
    with pass_context() as context:
        assert not context.instruments


def test_an_error_of_a_pass_is_raised_as_it_is():
    def fail(_: tvm.IRModule) -> tvm.IRModule:
        raise ModelError("no such model")

    with pytest.raises(ModelError, match=r"^no such model$"):
        run_passes(doubled(), [PassPhase("all", (module_pass(fail, "fails"),))], None)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_passes_that_cost_most_with_dynamic_sizes_run_on_static_kernels_alone(is_dynamic):
    n = tvm.tirx.Var("n", "int64") if is_dynamic else 8
    x = tvm.te.placeholder((n, 4), name="x")
    kernel = tvm.te.create_prim_func([x, tvm.topi.nn.relu(x)], index_dtype_override="int64")
    with observe_passes() as observer, pass_context():
        compile_kernel(tvm.IRModule({"main": kernel}), graphs.TARGET)
    skipped_passes = {name for name in SKIPPED_DYNAMIC if name not in observer.times}
    assert skipped_passes == set(SKIPPED_DYNAMIC if is_dynamic else SKIPPED)
    assert "s_tir.StmtSimplify" in observer.times
