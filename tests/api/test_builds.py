"""Which builds a run has, what stands in their way, and what becomes of each."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.api import builds
from autopipe.api.builds import PlannedBuild, check_builds, find_builds
from autopipe.api.run_builds import run_builds
from autopipe.errors import ConfigError, GateError, LockError
from autopipe.pipeline.events import (
    BuildsFinished,
    BuildStarted,
    Emit,
    Event,
    Measured,
    RunFinished,
    StageStarted,
)
from autopipe.processes.interrupt import Interrupted
from autopipe.report.event_table import list_builds
from autopipe.report.wording import describe_event
from tests.report.reports import measurement

TEXT = "version: 1\nname: {name}\nmodel: {{path: model.onnx}}\nverify: null\n"
TWO = "builds: {v2: {target: {mcpu: x86-64-v2}}, v3: {target: {mcpu: x86-64-v3}}}\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    (tmp_path / "model.onnx").touch()

    def write(name: str, more: str = "", called: str | None = None) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT.format(name=called or path.stem) + more)
        return path

    return write


Write = Callable[..., Path]


def labels(found: tuple[PlannedBuild, ...]) -> list[str]:
    return [build.label for build in found]


def test_builds_are_those_of_files_and_folders_in_order_each_file_once(
    write: Write, tmp_path: Path
) -> None:
    a, b, c = write("b", TWO), write("folder/z"), write("folder/d", TWO)
    (tmp_path / "folder" / "notes.txt").touch()
    (tmp_path / "folder" / "sub").mkdir()
    again = tmp_path / "folder" / ".." / "b.yaml"
    assert labels(find_builds([a, tmp_path / "folder", again, b])) == [
        "b-v2", "b-v3", "d-v2", "d-v3", "z",
    ]  # fmt: skip
    assert labels(find_builds([tmp_path / "folder"])) == ["d-v2", "d-v3", "z"]
    first = find_builds([c])[0]
    assert (first.name, first.target, str(first)) == ("v2", "x86-64-v2", f"{c}: builds.v2")


def test_some_builds_are_chosen_by_name(write: Write) -> None:
    a, b = write("a", TWO), write("b")
    assert labels(find_builds([a, b], only=["v3"])) == ["a-v3"]
    assert labels(find_builds([a, b], only=["v3", "v2"])) == ["a-v2", "a-v3"]
    for paths in ([a, b], [a]):
        with pytest.raises(ConfigError, match="--build v4: no such build; there is v2, v3"):
            find_builds(paths, only=["v3", "v4"])
    with pytest.raises(ConfigError, match="--build v3: no such build; there is none"):
        find_builds([b], only=["v3"])


def test_all_mistakes_of_all_files_are_told_before_any_runs(write: Write, tmp_path: Path) -> None:
    a, b = write("a", "tuningg: {}\n"), write("b", TWO.replace("v3}", "v33}"))
    with pytest.raises(ConfigError) as caught:
        find_builds([a, b, tmp_path / "missing.yaml"])
    first, second, third = str(caught.value).splitlines()
    assert first.startswith(f"{a}:5:1: tuningg: unknown key")
    assert second.startswith(f"{b}:5:63: builds.v3.target.mcpu: 'x86-64-v33' is no processor")
    assert third.startswith(f"{tmp_path / 'missing.yaml'}: No such file")
    assert find_builds([a]) == (PlannedBuild(a),), "its run tells what is wrong"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty: a folder without pipeline files \(\*\.yaml\)"):
        find_builds([tmp_path / "empty"])


def test_what_one_build_can_not_do_stops_all_before_they_begin(write: Write) -> None:
    found = find_builds([write("a", TWO), write("b", "tuning: null\n")])
    with pytest.raises(ConfigError) as caught:
        check_builds(found, Path("dist"), force=["tune"])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{found[2].file}: --force tune: no such stage in this pipeline")
    with pytest.raises(ConfigError, match="--force build: --until import ends before that stage"):
        check_builds(found[:1], Path("dist"), until="import", force=["build"])
    gone = find_builds([write("a", "builds: {v2: {model: {path: x.onnx}}, v3: {}}\n")])
    with pytest.raises(ConfigError) as caught:
        check_builds(gone, Path("dist"))
    assert str(caught.value).startswith(f"{gone[0].file}: builds.v2: model.path: 'x.onnx' is not")


def test_two_builds_that_would_write_one_package_are_refused(write: Write) -> None:
    a, b = write("a", TWO, called="net"), write("b", called="net-v3")
    found = find_builds([a, b])
    with pytest.raises(ConfigError) as caught:
        check_builds(found, Path("dist"))
    assert str(caught.value) == (
        f"dist/net-v3.tar would be of {a}: builds.v3 and of {b}: give each another `name`"
    )
    check_builds(find_builds([a, write("b", "package: null\n", called="net-v3")]), Path("dist"))
    check_builds(found[:2], Path("dist"))


def test_two_builds_that_would_write_one_lock_are_refused(write: Write) -> None:
    a, b = write("a", TWO), write("a.v3")
    with pytest.raises(ConfigError) as caught:
        check_builds(find_builds([a, b]), Path("dist"))
    assert str(caught.value).startswith(f"{a.with_suffix('.v3.lock')} would be of {a}: builds.v3")


def test_a_file_is_checked_with_all_its_builds(write: Write) -> None:
    builds.check_file(write("a", TWO))
    foreign = "builds: {arm: {target: {mtriple: s390x-linux-gnu, mcpu: z15}}, here: {}}\n"
    with pytest.raises(ConfigError, match=r"a.yaml: builds.arm: target.linker: null"):
        builds.check_file(write("a", foreign))


def ended(code: int, error: str | None = None) -> RunFinished:
    package = None if code else "dist/x.tar"
    return RunFinished(exit_code=code, seconds=2.0, error=error, package=package)


class Runs:
    """Stands for runs: says what each build tells, and raises."""

    def __init__(self, **ends: BaseException | None) -> None:
        self.ends = ends
        self.events: list[Event] = []
        self.failed: list[tuple[str, Exception]] = []

    def __call__(self, build: PlannedBuild, emit: Emit) -> None:
        emit(StageStarted(stage="import"))
        end = self.ends[str(build.name)]
        if end is None:
            emit(Measured(stage="benchmark", document=measurement().model_dump(mode="json")))
            emit(ended(0))
            return
        emit(ended(getattr(end, "exit_code", 70), str(end)))
        raise end

    def go(self, found: tuple[PlannedBuild, ...]) -> int:
        return run_builds(
            found,
            self,
            self.events.append,
            lambda build, error: self.failed.append((build.label, error)),
        )

    @property
    def end(self) -> BuildsFinished:
        (end,) = [event for event in self.events if isinstance(event, BuildsFinished)]
        assert self.events[-1] is end
        return end


@pytest.fixture
def four(write: Write) -> tuple[PlannedBuild, ...]:
    names = ", ".join(f"{name}: {{}}" for name in "abcd")
    return find_builds([write("net", f"builds: {{{names}}}\n")])


def test_a_build_that_fails_does_not_stop_the_others(four: tuple[PlannedBuild, ...]) -> None:
    runs = Runs(a=None, b=LockError("stale"), c=GateError("slow"), d=None)
    assert runs.go(four) == 6
    results = [(each.build, each.result, each.exit_code, each.error) for each in runs.end.builds]
    assert results == [
        ("net-a", "done", 0, None), ("net-b", "failed", 6, "stale"),
        ("net-c", "failed", 1, "slow"), ("net-d", "done", 0, None),
    ]  # fmt: skip
    assert [(name, str(error)) for name, error in runs.failed] == [
        ("net-b", "stale"), ("net-c", "slow"),
    ]  # fmt: skip
    assert runs.end.exit_code == 6
    assert [event.build for event in runs.events if isinstance(event, StageStarted)] == [
        "net-a", "net-b", "net-c", "net-d",
    ]  # fmt: skip
    (start, *_) = [event for event in runs.events if isinstance(event, BuildStarted)]
    assert (start.build, start.number, start.total, start.target) == ("net-a", 1, 4, "native")


def test_a_bug_in_one_build_is_its_own(four: tuple[PlannedBuild, ...]) -> None:
    runs = Runs(a=RuntimeError("oh"), b=None, c=None, d=None)
    assert runs.go(four) == 70
    assert [each.result for each in runs.end.builds] == ["failed", "done", "done", "done"]


def test_a_signal_ends_all_and_what_is_done_stays_done(four: tuple[PlannedBuild, ...]) -> None:
    runs = Runs(a=None, b=GateError("no"), c=Interrupted(2), d=None)
    with pytest.raises(Interrupted):
        runs.go(four)
    results = [(each.result, each.exit_code) for each in runs.end.builds]
    assert results == [("done", 0), ("failed", 1), ("interrupted", 130), ("not_run", None)]
    assert runs.end.exit_code == 130


def test_what_fails_after_the_end_of_a_run_counts(four: tuple[PlannedBuild, ...]) -> None:
    def run(build: PlannedBuild, emit: Emit) -> None:
        emit(ended(0))
        if build.name == "b":
            raise LockError("a report that can not be written, say")

    events: list[Event] = []
    assert run_builds(four, run, events.append, lambda build, error: None) == 6


def test_the_table_says_what_became_of_each_in_eighty_columns(
    four: tuple[PlannedBuild, ...],
) -> None:
    runs = Runs(a=None, b=LockError("stale"), c=GateError("slow"), d=None)
    runs.go(four)
    end = runs.end.model_copy(update={"seconds": 8.0})
    header, *rows = list_builds(end)
    assert header.split() == ["build", "target", "result", "time", "ratio", "to", "package"]
    ratio = next(iter(measurement().comparisons.values())).ratio
    assert rows[0].split() == [
        "net-a", "native", "done", "2", "s", f"{ratio:.2f}", "onnxruntime", "dist/x.tar",
    ]  # fmt: skip
    assert rows[1].split() == ["net-b", "native", "failed", "(6)", "2", "s"]
    assert max(map(len, [header, *rows])) <= 80
    assert describe_event(end) == "4 builds in 8 s: 2 done, 2 failed (exit code 6)"


def test_a_column_that_has_nothing_to_say_is_left_out(four: tuple[PlannedBuild, ...]) -> None:
    def run(build: PlannedBuild, emit: Emit) -> None:
        emit(ended(0).model_copy(update={"package": None}))

    events: list[Event] = []
    run_builds(four, run, events.append, lambda build, error: None)
    end = events[-1]
    assert isinstance(end, BuildsFinished)
    assert next(list_builds(end)).split() == ["build", "target", "result", "time"]
