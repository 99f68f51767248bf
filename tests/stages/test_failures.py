"""Whatever fails on a task while it is tuned and built: the run ends well, and says what it was."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, redirect_stderr, suppress
from io import StringIO
from unittest.mock import Mock

import pytest

from autopipe.api import flow
from autopipe.building import compiling
from autopipe.compiler.library import build as compiler
from autopipe.compiler.target import machine
from autopipe.config.load import load
from autopipe.environment.facet import Facet
from autopipe.errors import SetupError, StageError, TargetError
from autopipe.measure import build as measure
from autopipe.pipeline.events import Event, Warn
from autopipe.pipeline.stage import Context
from autopipe.processes import contained
from autopipe.processes.contained import Child
from autopipe.safety.reproduce import reproduce_failure
from autopipe.stages import build
from autopipe.stages.build import BuildStage
from autopipe.stages.tune import TuneStage
from autopipe.stages.verify import VerifyStage
from tests.schedules import saboteur
from tests.schedules.bad_schedules import ENDS, FAR
from tests.schedules.made import FACTS
from tests.stages import two_layers

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SETTINGS = (
    "tuning.budget.trials=6", "tuning.measure.repeat=1", "tuning.measure.min_repeat=1ms",
    "tuning.measure.clock=loop",  # stages run in this process: a fork lacks threads that it has
)  # fmt: skip
ALL_FACTS: dict[Facet, Mapping[str, object]] = {
    Facet.TARGET: FACTS,
    **{facet: {"is": facet.value} for facet in Facet if facet is not Facet.TARGET},
}

INJECTIONS: dict[str, tuple[str, str]] = {
    f"{what}, {way}": (what, way)
    for what in ("template", "implementation", "engine")
    for way in saboteur.WAYS
}
"""What ends badly, and how."""

SHOWN = ("template, exception", "implementation, native crash", "engine, exception")
"""Those that are shown each time; the others are slow."""

DOING = {
    "template": {("planning", "static", "direct"), ("searching", "autotvm", "direct")},
    "implementation": {("rewriting", "", "bad")},
    "engine": {("searching", "ansor", "direct")},
}
NEXT_SERVES = {("searching", "autotvm", "direct")}
"""What goes on with the next template if one raises something."""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return two_layers.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def artifacts(file, tmp_path_factory):
    return flow.run(file, store=tmp_path_factory.mktemp("store"), until="tasks")


@pytest.fixture
def stages(file, artifacts, tmp_path, monkeypatch):
    """Run stages one after the other, as the executor would; return documents and warnings."""
    monkeypatch.setattr(contained, "MEMORY", 200 << 20)
    inputs = {name: artifact.path for name, artifact in artifacts.items()}
    (tmp_path / "records").mkdir()
    heard: list[Event] = []

    def run(*stages, settings=SETTINGS):
        pipeline = load(file, settings)
        for stage in stages:
            out, work = tmp_path / stage.name, tmp_path / f"{stage.name}-work"
            for folder in (out, work):
                folder.mkdir()
            ctx = Context(
                inputs, ALL_FACTS, out, work, tmp_path / "records" / "sqlite", heard.append
            )
            done = stage.of(pipeline, file.parent)
            done.run(ctx)
            inputs[stage.name] = out
        warnings = [event.message for event in heard if isinstance(event, Warn)]
        # Another process of these tests may be timing: that a stage waits for it is no failure.
        return [text for text in warnings if "timing on this machine" not in text]

    return run


KILLED = "killed by SIGABRT"


def document(folder, name):
    path = {"tune": "tune/tuning.json", "build": "build/library.json"}[name]
    return json.loads((folder / path).read_text())["tasks"]


def measured(folder):
    """Count the trials that are on the disk."""
    with closing(sqlite3.connect(folder / "records" / "sqlite")) as records:
        query = "SELECT count(*) FROM records WHERE session NOT LIKE '%/run-off'"
        return records.execute(query).fetchone()[0]


def verify(stages):
    """Raise Failed if the build computes something else than the model."""
    with Child(lambda: lambda _: stages(VerifyStage), bounded=False) as child:
        child.ask()


@pytest.mark.fault("D10", "G12")
@pytest.mark.parametrize(
    "case",
    [pytest.param(i, marks=() if i in SHOWN else pytest.mark.slow) for i in INJECTIONS],
)
def test_the_run_goes_on_without_what_failed(stages, tmp_path, monkeypatch, case):
    what, way = INJECTIONS[case]
    expected = DOING[what] - (NEXT_SERVES if case == "template, exception" else set())
    monkeypatch.setattr(contained, "SECONDS", 2.0 if way == "hang" else 60.0)
    getattr(saboteur, what)(monkeypatch, way)
    engines = "[autotvm, ansor]" if what == "engine" else "[autotvm]"
    warnings = stages(TuneStage, settings=(*SETTINGS, f"schedules.rules=[{{engines: {engines}}}]"))
    tasks = document(tmp_path, "tune")
    assert sum(task["trials"] for task in tasks) == measured(tmp_path) > 0
    found = [row for task in tasks for row in task["failures"]]
    assert {(row["doing"], row["engine"], row["implementation"]) for row in found} == expected
    assert all(saboteur.ENDS[way] in row["how"] and row["retried"] for row in found)
    assert len(warnings) == len(found)
    shown = {shown_again(tmp_path, row) for row in found}
    assert all(saboteur.ENDS[way] in line for line in shown)
    stages(BuildStage)
    assert all(task["engine"] != "none" for task in document(tmp_path, "build"))
    verify(stages)


def shown_again(folder, row):
    """Do in this process, which still has the saboteur, what the script does."""
    with redirect_stderr(StringIO()) as told:
        assert reproduce_failure(folder / "records" / row["folder"]) == 1
    return told.getvalue()


@pytest.mark.fault("E1", "I1")
@pytest.mark.parametrize(
    ("way", "doing"), [("crash", "checking"), ("compiler", "compiling"), ("brought", "compiling")]
)
def test_a_schedule_that_fails_its_check_is_not_built_in(stages, tmp_path, monkeypatch, way, doing):
    saboteur.template(monkeypatch, way, schedules=True)
    warnings = stages(BuildStage)
    tasks = document(tmp_path, "build")
    assert {task["engine"] for task in tasks} == {"default"}
    assert all(task["checked"] for task in tasks)
    assert len(warnings) == len(tasks)
    for task in tasks:
        (row,) = task["failures"]
        assert (row["doing"], row["engine"], row["how"]) == (doing, "static", ENDS[way])
    verify(stages)


@pytest.fixture
def elsewhere(monkeypatch):
    """Build for another machine, as far as anybody knows: nothing can be checked."""

    def refuse(target):
        raise TargetError("built for another one")

    monkeypatch.setattr(machine, "check", refuse)


@pytest.mark.fault("D10")
def test_a_schedule_that_crashes_the_compiler_is_found_and_the_next_one_built(
    stages, tmp_path, monkeypatch, elsewhere
):
    saboteur.template(monkeypatch, "compiler", schedules=True)
    warnings = stages(BuildStage)
    tasks = document(tmp_path, "build")
    assert {task["engine"] for task in tasks} == {"default"}
    for task in tasks:
        (row,) = task["failures"]
        assert (row["doing"], row["engine"], row["how"]) == ("compiling", "static", KILLED)
        assert task["reason"] == "static on direct failed"
        assert task["rejected"] == []
        assert (tmp_path / "records" / row["folder"] / "scheduled.json").exists()
    folder = tmp_path / "records" / row["folder"]
    assert "LLVM ERROR: Cannot select" in (folder / "record.json").read_text()
    shown = subprocess.run(
        [sys.executable, folder / "reproduce.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 1
    assert f"{tasks[-1]['name']}, compiling static on direct: {KILLED}\n" in shown.stderr
    first = (
        f"task {tasks[0]['name']}: compiling static on direct failed twice: {KILLED}; it was put"
    )
    assert warnings[0].startswith(first)
    monkeypatch.undo()
    verify(stages)


@pytest.mark.fault("I1")
def test_a_schedule_that_brings_code_along_is_not_compiled_where_nothing_is_checked(
    stages, tmp_path, monkeypatch, elsewhere
):
    saboteur.template(monkeypatch, "brought", schedules=True)
    stages(BuildStage)
    for task in document(tmp_path, "build"):
        (row,) = task["failures"]
        assert (row["doing"], row["how"]) == ("compiling", ENDS["brought"])
        assert task["engine"] == "default"


@pytest.mark.parametrize("way", [pytest.param("hang", marks=pytest.mark.slow), "memory"])
def test_a_schedule_that_is_too_much_for_the_compiler_is_found(
    stages, tmp_path, monkeypatch, elsewhere, way
):
    """What is too much is any schedule that is marked by the call it makes."""
    monkeypatch.setattr(contained, "SECONDS", 4.0 if way == "hang" else 60.0)
    saboteur.template(monkeypatch, "crash", schedules=True)
    alone, whole = measure.compile_module, compiler.link_graph

    def choke(modules):
        if any(str(FAR) in module.script() for module in modules):
            saboteur.WAYS[way]()

    def compiled(module, target):
        choke([module])
        return alone(module, target)

    def link_graph(lowered, scheduled, target, **options):
        choke(scheduled.values())
        return whole(lowered, scheduled, target, **options)

    monkeypatch.setattr(measure, "compile_module", compiled)
    monkeypatch.setattr(compiler, "link_graph", link_graph)
    stages(BuildStage)
    tasks = document(tmp_path, "build")
    assert {task["engine"] for task in tasks} == {"default"}
    hows = {row["how"] for task in tasks for row in task["failures"]}
    assert hows == {"no answer within 4 s" if way == "hang" else "out of memory"}


@pytest.mark.fault("D10")
@pytest.mark.parametrize("times", [1, 2])
def test_packing_that_crashes_is_tried_twice(stages, tmp_path, monkeypatch, times):
    """Each attempt is a process of its own, which leaves a file."""
    packed = build._pack

    def crash(*given):
        for place in range(times):
            if not (tmp_path / f"crash{place}").exists():
                (tmp_path / f"crash{place}").touch()
                saboteur.WAYS["crash"]()
        return packed(*given)

    monkeypatch.setattr(build, "_pack", crash)
    if times == 1:
        stages(BuildStage)
        verify(stages)
        return
    with pytest.raises(
        StageError, match=f"^packing the weights failed twice: {saboteur.ENDS['crash']}"
    ):
        stages(BuildStage)
    assert not (tmp_path / "records" / "failed").exists()  # no task is to blame


@pytest.mark.fault("D11")
def test_records_that_no_longer_apply_are_told_one_by_one(stages, tmp_path):
    stages(TuneStage, settings=("tuning.budget.trials=3", *SETTINGS[1:]))
    records = tmp_path / "tune" / "records.jsonl"
    names = [json.loads(line)["workload"] for line in records.read_text().splitlines()]
    records.write_text(re.sub(r'"schedule": ".*?", "seconds"', '"schedule": "{}", "seconds"',
                              records.read_text()))  # fmt: skip
    warnings = stages(BuildStage)
    assert len(names) == len(warnings) > 0
    assert all("its record does not apply: " in text for text in warnings)
    built = json.loads((tmp_path / "build/library.json").read_text())
    assert built["claimed"]["measured"] == 0
    assert all(task["engine"] == "static" for task in built["tasks"])


OFTEN = ("failed twice: ", "failed in 2 runs: ", "failed in 2 earlier runs: ")


def run_thrice(stages, folder, stage, settings):
    """Run a stage three times, each time told the same of the same tasks; return the reports."""
    reports, heard = [], 0
    for often in OFTEN:
        warnings = stages(stage, settings=settings)
        assert {often in text for text in warnings[heard:]} == {True}
        heard = len(warnings)
        reports.append(document(folder, stage.name))
        for name in (stage.name, f"{stage.name}-work"):
            shutil.rmtree(folder / name)
    return reports


@pytest.mark.fault("D9", "D10", "G12")
def test_a_search_that_fails_in_every_run_is_left_out(stages, tmp_path, monkeypatch):
    """Every run asks the same searches, whatever it has measured: all tasks get a turn."""
    saboteur.engine(monkeypatch, "exception")
    alike = ("tasks.scheduler=round_robin", "tasks.judge=null")
    settings = (*SETTINGS, *alike, "schedules.rules=[{engines: [autotvm, ansor]}]")
    *_, last = run_thrice(stages, tmp_path, TuneStage, settings)
    known = "RuntimeError: no such loop (known from 2 earlier runs)"
    for task in last:
        assert [row["how"] for row in task["failures"]] == [known]
        ansor = next(each for each in task["contenders"] if each["engine"] == "ansor")
        assert (ansor["trials"], ansor["stopped"]) == (0, known)
        assert task["seconds"] is not None


def test_what_crashes_the_compiler_in_every_run_is_not_compiled(
    stages, tmp_path, monkeypatch, elsewhere
):
    saboteur.template(monkeypatch, "compiler", schedules=True)
    wholes = Mock(side_effect=compiling._whole)
    monkeypatch.setattr(compiling, "_whole", wholes)
    reports = run_thrice(stages, tmp_path, BuildStage, SETTINGS)
    assert wholes.call_count == 2 + 2 + 1, "the third run knows before it compiles anything"
    assert all({task["engine"] for task in tasks} == {"default"} for tasks in reports)


def test_a_task_that_nothing_compiles_for_is_named_with_its_ops(stages, monkeypatch, elsewhere):
    """As where a fault of the compiler has nothing to do with the schedule."""
    monkeypatch.setattr(measure, "compile_module", lambda *_: os.abort())
    monkeypatch.setattr(compiler, "compile_graph", lambda *_: os.abort())
    with pytest.raises(StageError) as error:
        stages(BuildStage)
    assert re.fullmatch(
        r"task \w+ \(matmul, add, \S+\): nothing is left to build it with; at the end its plain"
        rf" loops failed: {KILLED}; python \S+/failed/\w+/reproduce\.py shows it",
        str(error.value),
    )


def test_what_no_task_is_to_blame_for_ends_the_run(stages, tmp_path, monkeypatch, elsewhere):
    monkeypatch.setattr(compiler, "export", lambda *_: os.abort())
    with pytest.raises(StageError, match=rf"though each task alone compiles: {KILLED}"):
        stages(BuildStage)
    assert not (tmp_path / "records" / "failed").exists()


def test_what_crashes_once_is_compiled_again(stages, tmp_path, monkeypatch, elsewhere):
    export = compiler.export

    def crash_once(*args):
        with suppress(FileExistsError):
            (tmp_path / "crashed").mkdir()
            os.abort()
        export(*args)

    monkeypatch.setattr(compiler, "export", crash_once)
    assert stages(BuildStage) == []
    assert {task["engine"] for task in document(tmp_path, "build")} == {"static"}


def test_a_refusal_is_no_failure(stages, monkeypatch):
    def refuse(*_, **__):
        raise SetupError("compiling for CUDA takes nvcc")

    monkeypatch.setattr(compiler, "compile_graph", refuse)
    with pytest.raises(SetupError, match="compiling for CUDA takes nvcc"):
        stages(BuildStage)


@pytest.mark.fault("D9")
@pytest.mark.parametrize("stage", [TuneStage, BuildStage])
def test_a_failure_ends_the_run_where_that_is_asked_for(stages, monkeypatch, stage):
    saboteur.template(monkeypatch, "crash")
    with pytest.raises(StageError) as error:
        stages(stage, settings=(*SETTINGS, "tasks.on_task_failure=fail"))
    assert re.fullmatch(
        r"task \w+: planning static on direct failed twice: killed by SIGSEGV;"
        r" python \S+/failed/\w+/reproduce\.py shows it;"
        r" tasks\.on_task_failure: fallback goes on without it",
        str(error.value),
    )
    assert error.value.exit_code == 4
