"""The script of a task says what the task is, and holds exactly its loops."""

import ast
import runpy

import pytest
import tvm
import tvm_ffi
from tvm import te

import autopipe
from autopipe.api.task_script import Loops, format_file_name, write_task_script
from autopipe.compiler.tasks import make_workload
from autopipe.config.pipeline import Pipeline
from autopipe.config.target import Target
from autopipe.environment.environment import resolve_target
from autopipe.errors import ModelError
from autopipe.pipeline.events import TuningProgress, Warn
from autopipe.tasks.op_info import OpInfo
from tests.report.test_tasks_table import CONV, task

PIPELINE = Pipeline.model_validate({
    "version": 1, "name": "demo", "model": {"path": "m.onnx"},
    "target": {"num_cores": 2, "mattr": ["-avx512f"]}, "numerics": {"fast_algorithms": False},
})  # fmt: skip
TARGET = resolve_target(
    PIPELINE.target, {"mcpu": "znver4", "mtriple": "x86_64-linux", "lacks": "amx"}
)


@pytest.fixture(scope="module")
def module():
    x = te.placeholder((16,), "float32", name="x")
    out = te.compute((16,), lambda i: x[i] * tvm.tirx.const(1 / 3, "float32"), name="scaled")
    return make_workload(te.create_prim_func([x, out])).module


def text(module, *, exact=True, **changes):
    loops = Loops(module.script(show_meta=False), exact, tvm.ir.save_json(module))
    return write_task_script(task(3, **changes), loops, PIPELINE, TARGET)


@pytest.mark.parametrize(
    ("rules", "engines"),
    [
        ([{}], ("autotvm", "ansor")),
        ([{"match": {"op": "sort"}, "engines": ["autotvm"]}, {"engines": ["ansor"]}], ("ansor",)),
        ([{"match": {"op": "nn.*"}, "engines": ["autotvm"]}], ("autotvm",)),
        ([], ("autotvm", "ansor")),
    ],
)
def test_those_may_search_whom_the_pipeline_lets(module, tmp_path, rules, engines):
    pipeline = Pipeline.model_validate({
        "version": 1, "name": "demo", "model": {"path": "m.onnx"}, "schedules": {"rules": rules},
    })  # fmt: skip
    loops = Loops(module.script(), exact=True, json="")
    path = tmp_path / "script.py"
    path.write_text(write_task_script(task(), loops, pipeline, TARGET))
    there = runpy.run_path(str(path))
    assert there["ENGINES"] == engines
    assert OpInfo.model_validate(there["INFO"]) == CONV


@pytest.mark.parametrize("exact", [True, False], ids=["TVMScript", "JSON"])
def test_the_module_in_the_script_is_the_workload(module, tmp_path, exact):
    path = tmp_path / "script.py"
    path.write_text(text(module, exact=exact))
    assert ("T.prim_func" in path.read_text()) == exact
    there = runpy.run_path(str(path))
    assert tvm_ffi.structural_equal(there["Module"], module)


def test_a_symbolic_dimension_is_left_as_it_is(tmp_path):
    n = te.var("n")
    x = te.placeholder((n, 8), "float32", name="x")
    out = te.compute((n, 8), lambda i, j: x[i, j] + 1.0, name="out")
    dynamic = make_workload(te.create_prim_func([x, out])).module
    path = tmp_path / "script.py"
    path.write_text(text(dynamic))
    assert tvm_ffi.structural_equal(runpy.run_path(str(path))["Module"], dynamic)


def test_the_script_tunes_as_its_options_and_its_pipeline_say(
    module, tmp_path, monkeypatch, capsys
):
    asked: dict[str, object] = {}

    def auto_schedule(given, emit, **options):
        asked.update(options, module=given)
        emit(Warn(stage="tune", message="a schedule is wrong"))
        emit(TuningProgress(trials=1, failed=0, budget=7, latency=1e-3, rate=1.0, remaining=6.0))
        return "who won"

    monkeypatch.setattr(autopipe, "auto_schedule", auto_schedule, raising=False)
    path = tmp_path / "script.py"
    path.write_text(text(module))
    monkeypatch.setattr("sys.argv", [str(path), "--trials", "7", "--engine", "ansor"])
    runpy.run_path(str(path), run_name="__main__")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("who won\n", "warning: tune: a schedule is wrong\n")
    assert tvm_ffi.structural_equal(asked.pop("module"), module)
    assert asked == {
        "info": CONV.model_dump(mode="json", exclude_defaults=True),
        "target": TARGET, "trials": 7,
        "seconds": None, "engines": ["ansor"], "seed": 0, "fast_algorithms": False, "store": None,
    }  # fmt: skip


@pytest.mark.parametrize("stated", [{}, {"kind": "cuda", "arch": "sm_90", "num_cores": 4}])
def test_the_target_is_what_the_pipeline_compiles_for(module, tmp_path, stated):
    pipeline = PIPELINE.model_copy(update={"target": Target.model_validate(stated)})
    here, elsewhere = (
        {"mcpu": mcpu, "mtriple": f"{mcpu}-linux", "lacks": ""} for mcpu in ("znver4", "other")
    )
    facts = resolve_target(pipeline.target, here)
    loops = Loops(module.script(), exact=True, json="")
    path = tmp_path / "script.py"
    path.write_text(write_task_script(task(), loops, pipeline, facts))
    there = runpy.run_path(str(path))["TARGET"]
    assert (
        resolve_target(Target.model_validate(there), here if "arch" in there else elsewhere)
        == facts
    )


def test_a_task_that_can_not_be_tuned_ends_in_one_line(module, tmp_path, monkeypatch):
    def auto_schedule(*_given, **_options):
        raise ModelError("a dimension is symbolic")

    monkeypatch.setattr(autopipe, "auto_schedule", auto_schedule, raising=False)
    path = tmp_path / "script.py"
    path.write_text(text(module))
    monkeypatch.setattr("sys.argv", [str(path)])
    with pytest.raises(SystemExit, match="error: a dimension is symbolic"):
        runpy.run_path(str(path), run_name="__main__")


def test_the_header_says_what_it_is(module):
    header = text(module, dropped="simple: no reduction").split("\n\n")[0]
    for said in (
        "# Task 3 of demo: fused_conv2d_add_relu, out_elementwise_fusable\n",
        "#   %0 = nn.conv2d()", "# Called 2 times an inference; 231 M FLOPs",
        "# A run does not tune it: simple: no reduction\n", "mcpu znver4",
        "# Run it with: python 003-fused_conv2d_add_relu.py --trials 64",
    ):  # fmt: skip
        assert said in header


def test_names_stay_in_comments_and_file_names_in_their_folder(module):
    wild = "x\nimport os\u2028os.abort()\r../../" + "y" * 300
    named = task(1, name=wild)
    assert format_file_name(named) == f"001-x_import_os_os_abort_{'y' * 59}.py"
    body = ast.parse(text(module, name=wild, dropped=wild)).body
    assert [n.name for node in body if isinstance(node, ast.Import) for n in node.names] == [
        "argparse", "sys", "autopipe",
    ]  # fmt: skip
    assert not any(isinstance(node, ast.Expr) for node in body)
