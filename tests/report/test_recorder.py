import json

import pytest

from autopipe.artifacts.library import Rejected
from autopipe.config.pipeline import Pipeline
from autopipe.errors import ConfigError, GateError
from autopipe.pipeline.events import (
    Measured,
    RunFinished,
    StageCached,
    StageFailed,
    StageFinished,
    StageSkipped,
    StageStarted,
    Tuned,
    Warn,
)
from autopipe.processes.interrupt import Interrupted
from autopipe.report.document import RunReport, read_report
from autopipe.report.recorder import Recorder, RunInfo, replace_places
from tests.artifacts.examples import (
    library,
    library_task,
    tuned_task,
    tuning_report,
    verification,
)
from tests.lock.test_records import task
from tests.report.reports import full, measurement

TASKS = [
    task(index, f"{index}f")
    .model_copy(update={"name": name, "share": share})
    .model_dump(mode="json")
    for index, (name, share) in enumerate((("conv", 0.6), ("add", 0.4)))
]
WRONG = Rejected(engine="e", implementation="i", reason="off by 1", folder="/home/me/store")
BUILT = (
    library_task("conv", seconds=1e-3, rejected=(WRONG,)),
    library_task("add", "1f", seconds=None),
)
DOCUMENTS = {
    "tune": tuning_report(tuned_task(name="conv", share=0.9)),
    "build": library(*BUILT, versions={"tvm": "1"}),
    "verify": verification(),
}
TUNED = Tuned(stage="build", searched=0.25, measured=0.75, steady=0.5, claimed=1)
STAGES = ("tasks", *DOCUMENTS, "benchmark", "package")


def about(**gates):
    document = {"version": 1, "name": "demo", "model": {"path": "m.onnx"}, "gates": gates}
    return RunInfo(
        pipeline=Pipeline.model_validate(document), configuration={"version": 1}, stages=STAGES,
        machine={"cpu": "x"}, versions={"autopipe": "0"}, places={"/home/me": "~"},
    )  # fmt: skip


@pytest.fixture
def recorder(tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tasks.json").write_text(json.dumps(TASKS))
    for stage, document in DOCUMENTS.items():
        (tmp_path / stage).mkdir()
        document.write(tmp_path / stage)
    heard: list[object] = []
    made = Recorder(heard.append, lambda digest: tmp_path / digest)
    yield made
    assert heard, "events are passed on"


def cached(*stages):
    return [StageCached(stage=stage, digest=stage) for stage in stages]


def told(recorder, *events, exit_code=0, error=None, package=None, **gates):
    end = RunFinished(exit_code=exit_code, seconds=1.5, package=package)
    for event in (*events, end):
        recorder(event)
    return recorder.report(about(**gates), exit_code, error)


def test_a_finished_run_is_told_in_full(recorder, tmp_path):
    package = tmp_path / "demo.tar"
    package.write_bytes(b"abc")
    done = StageFinished(stage="benchmark", digest="none", seconds=1.0, summary="fast")
    document = measurement().model_dump(mode="json")
    measured = Measured(stage="benchmark", document=document)
    report = told(
        recorder, *cached("tasks", *DOCUMENTS), StageStarted(stage="benchmark"), measured, done,
        Warn(stage="build", message="no rule"), TUNED, *cached("package"), package=str(package),
    )  # fmt: skip
    assert (report.outcome, report.exit_code, report.seconds) == ("finished", 0, 1.5)
    assert [stage.state for stage in report.stages] == [*["cached"] * 4, "finished", "cached"]
    assert [(task.name, task.share, task.seconds) for task in report.tasks] == [
        ("conv", 0.9, 1e-3),
        ("add", 0.4, None),
    ]
    assert (report.searched_share, report.measured_share) == (0.25, 0.75)
    assert (report.steady_share, report.claimed) == (0.5, 1)
    assert report.benchmark == measurement()
    assert [gate.gate for gate in report.gates] == ["gates.regression"]
    assert [(each.stage, each.message) for each in report.warnings] == [("build", "no rule")]
    assert report.package is not None
    assert (report.package.size, report.package.sha256[:8]) == (3, "ba7816bf")
    assert report.versions == {"autopipe": "0", "tvm": "1"}
    assert report.verification == DOCUMENTS["verify"]
    assert "/home/me" not in report.text()


def test_times_of_an_earlier_run_are_not_taken(recorder, tmp_path):
    (tmp_path / "benchmark").mkdir()
    old = measurement().model_dump_json()
    (tmp_path / "benchmark" / "benchmark.json").write_text(old)
    skipped = StageSkipped(stage="benchmark", reason="nothing changed")
    report = told(recorder, *cached("build"), skipped)
    assert report.benchmark is None
    assert report.stages[4].model_dump(exclude_none=True) == {
        "stage": "benchmark", "state": "skipped", "summary": "nothing changed",
    }  # fmt: skip


def test_what_a_failing_gate_measured_is_told(recorder):
    document = measurement().model_dump(mode="json")
    report = told(
        recorder, StageStarted(stage="benchmark"), Measured(stage="benchmark", document=document),
        StageFailed(stage="benchmark", error="too slow", exit_code=1),
        exit_code=1, error=GateError("too slow"),
    )  # fmt: skip
    assert (report.outcome, report.error) == ("failed", "too slow")
    assert [stage.state for stage in report.stages] == [*["not_run"] * 4, "failed", "not_run"]
    assert report.benchmark == measurement()
    assert report.times().rounds.keys() == {"autopipe", "onnxruntime"}


def test_errors_of_a_build_that_fails_are_told(recorder):
    wrong = DOCUMENTS["verify"].model_copy(update={"failure": "output 'y' is wrong"})
    measured = Measured(stage="verify", document=wrong.model_dump(mode="json"))
    failed = StageFailed(stage="verify", error="wrong", exit_code=1)
    report = told(
        recorder, *cached("build"), StageStarted(stage="verify"), measured, failed, exit_code=1
    )
    assert report.verification == wrong
    assert report.benchmark is None


@pytest.mark.fault("D2", "D3")
@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_a_stage_that_was_interrupted_has_not_failed(recorder, number, code):
    events = (*cached("tasks"), StageStarted(stage="tune"))
    report = told(recorder, *events, exit_code=code, error=Interrupted(number))
    assert report.outcome == "interrupted"
    assert [stage.state for stage in report.stages][:3] == ["cached", "interrupted", "not_run"]


def test_a_run_without_a_readable_pipeline_is_told(recorder):
    recorder(RunFinished(exit_code=2, seconds=0.1))
    nothing = RunInfo(None, None, (), None, {}, {})
    report = recorder.report(nothing, 2, ConfigError("p.yaml:1:1: no"))
    assert (report.pipeline, report.stages, report.error) == (None, (), "p.yaml:1:1: no")


@pytest.mark.parametrize(
    ("build", "outcome"),
    [
        ([*cached("build"), TUNED], ["failed", "passed"]),
        ([StageFailed(stage="build", error="no linker", exit_code=5)], []),
        ([StageStarted(stage="build")], []),
        ([], []),
    ],
)
def test_the_gate_of_the_build_is_told(recorder, build, outcome):
    found = told(recorder, *build, searched_share=0.5, measured_share=0.5).gates
    names = ("gates.measured_share", "gates.searched_share")
    assert {gate.gate: str(gate.outcome) for gate in found} == dict(
        zip(names, reversed(outcome), strict=bool(outcome))
    )


def test_a_bug_is_told_without_its_traceback(recorder):
    error = RuntimeError("Traceback (most recent call last):\n  File /secret/x.py\nKeyError: 'x'\n")
    assert told(recorder, exit_code=70, error=error).error == "KeyError: 'x'"


def test_folders_of_this_machine_get_other_names():
    places = {"/home/me/work": ".", "/home/me": "~", "/home/me/work/.autopipe": "$STORE"}
    found = replace_places(
        {
            "a": ["/home/me/work/.autopipe/logs/x", "in /home/me/work: no", 7, None],
            "b": "/home/me/other, /home/mel/x, /mnt/home/me, half \ud800",
        },
        places,
    )
    assert found == {
        "a": ["$STORE/logs/x", "in .: no", 7, None],
        "b": "~/other, /home/mel/x, /mnt/home/me, half \\ud800",
    }


def test_a_report_is_read_again(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(full().text())
    assert read_report(path) == full()
    assert json.loads(path.read_text())["version"] == 1
    assert full().text() == RunReport.model_validate_json(full().text()).text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory; `autopipe run FILE --report PATH.json` writes it"),
        ("{", "not the report of a run: Invalid JSON"),
        ("[]", "not the report of a run: Input should be an object"),
        (full().text().replace('"version": 1', '"version": 2'), "version: Input should be 1"),
        (full().text()[:500], "not the report of a run: Invalid JSON"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path, text, said):
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_report(path)
    assert said in str(caught.value)


def test_a_report_without_times_is_no_baseline():
    with pytest.raises(ConfigError, match="--force benchmark"):
        full(benchmark=None).times()
