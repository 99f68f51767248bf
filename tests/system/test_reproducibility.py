import json
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import ClassVar

import pytest

from autopipe.artifacts.tuning import ListedFailure
from autopipe.errors import GateError, StageError
from autopipe.lock.rebuild import Rebuilding
from autopipe.pipeline.events import Event, Progress, StageFailed, StageFinished
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.isolate import Zygote
from autopipe.pipeline.plan import build_plan
from autopipe.pipeline.stage import Context, Need
from autopipe.store.artifact import Kind
from autopipe.store.store import open_store
from tests.artifacts.examples import library, library_task
from tests.pipeline.fakes import Fake, Fixed, Here, Read, Upper
from tests.support import driver, forked
from tests.support.demo import environment

pytestmark = pytest.mark.fault("G8")


class Build(Fake, frozen=True):
    """Links, as a linker might that says when."""

    name: ClassVar[str] = "build"
    produces: ClassVar[Kind] = Kind.LIBRARY
    needs: ClassVar[Mapping[str, Need]] = {"lower": Need(Kind.LOWERED)}
    writes: str = ""

    def run(self, ctx: Context) -> str:
        text = (ctx.inputs["lower"] / "sub" / "text").read_text()
        moving = {
            "": "", "time": f"{time.time_ns()}", "folder": f"{ctx.out}",
            "order": "".join({"one", "two", "three", "four", "five", "six"}),
        }  # fmt: skip
        (ctx.out / "lib.so").write_text(text + moving[self.writes])
        failure = ListedFailure(
            engine="ansor", implementation="direct", doing="building", how="it hung", retried=True,
            folder=str(ctx.out),
        )  # fmt: skip
        library(library_task("f", checked=True, failures=(failure,))).write(ctx.out)
        return "built"


class Package(Fake, frozen=True):
    name: ClassVar[str] = "package"
    produces: ClassVar[Kind] = Kind.PACKAGE
    needs: ClassVar[Mapping[str, Need]] = {
        "build": Need(Kind.LIBRARY),
        "verify": Need(Kind.REPORT, optional=True),
    }
    strict: bool = False

    def run(self, ctx: Context) -> str:
        text = (ctx.inputs["build"] / "lib.so").read_text()
        if self.strict and text != "ABC":
            raise StageError("the library is another one")
        (ctx.out / "demo.tar").write_text(text)
        return "packed"


class Verify(Fake, frozen=True):
    """Tells how long it took."""

    name: ClassVar[str] = "verify"
    produces: ClassVar[Kind] = Kind.REPORT
    needs: ClassVar[Mapping[str, Need]] = {"build": Need(Kind.LIBRARY)}

    def run(self, ctx: Context) -> str:
        (ctx.out / "verify.json").write_text(str(time.time_ns()))
        return "equal"


class Measure(Fake, frozen=True):
    name: ClassVar[str] = "benchmark"
    produces: ClassVar[Kind] = Kind.REPORT
    needs: ClassVar[Mapping[str, Need]] = {"build": Need(Kind.LIBRARY)}
    cached: ClassVar[bool] = False
    times: ClassVar[list[int]] = []

    def run(self, ctx: Context) -> str:
        self.times.append(1)
        (ctx.out / "benchmark.json").write_text("{}")
        return "measured"


class Undeclared(Upper, frozen=True):
    """Reads something that is in no key."""

    world: ClassVar[list[str]] = ["before"]

    def run(self, ctx: Context) -> str:
        super().run(ctx)
        (ctx.out / "world").write_text(self.world[-1])
        return "lowered"


def here(tmp):
    return nullcontext(Here())


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model"
    path.write_text("abc")
    return path


@pytest.fixture
def rebuild(tmp_path, source):
    """Run stages and build them again; return what was told."""

    def go(*stages, lower=None, isolate=here, between=lambda: None, told=None):
        events: list[Event] = [] if told is None else told
        plan = build_plan([Read(path=source), lower or Upper(), *stages])
        with open_store(tmp_path / "store") as store, isolate(tmp=store.tmp) as runner:
            artifacts = Executor(store, Fixed(), runner, lambda _: None).run(plan)
            between()
            Rebuilding(plan, store, Fixed(), isolate, events.append).check(artifacts)
            assert not [path for path in store.tmp.iterdir() if path.is_dir()]
        return events

    return go


def test_a_build_that_is_the_same_is_told_with_numbers(rebuild, tmp_path):
    events = rebuild(Build(), Verify(), Measure(), Package())
    end = events[-1]
    assert isinstance(end, StageFinished)
    assert (end.stage, end.summary) == (
        "rebuild", "4 artifacts, 5 files, all the same when built again",
    )  # fmt: skip
    told = [event.message for event in events if isinstance(event, Progress)]
    assert told[0] == "first build: import"
    assert told[-1] == "second build: package"
    assert len(told) == 2 * 5
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def test_nothing_is_measured_again(rebuild):
    Measure.times.clear()
    rebuild(Build(), Measure())
    assert len(Measure.times) == 1


@pytest.mark.parametrize("writes", ["time", "folder"])
def test_a_stage_that_writes_the_moment_or_the_place_is_named(rebuild, tmp_path, writes):
    with pytest.raises(GateError) as caught:
        rebuild(Build(writes=writes), Package())
    first, *rows = str(caught.value).splitlines()
    assert first == "not reproducible: 'build' is the first stage that differs"
    named = [row.split(": ")[:2] for row in rows]
    assert named == [["  build", "lib.so"], ["  package", "demo.tar"]]
    digests = re.findall("[0-9a-f]{12}", rows[0])
    assert len(set(digests)) == 3
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


def test_builds_are_made_in_processes_of_their_own(rebuild):
    """The order of a set changes with the seed of a process."""
    with pytest.raises(GateError, match=r"'build' is the first stage"):
        rebuild(Build(writes="order"), isolate=lambda tmp: Zygote(preload=(), tmp=tmp))


def test_a_result_that_the_cache_should_not_have_served_is_named(rebuild):
    with pytest.raises(GateError) as caught:
        rebuild(lower=Undeclared(), between=lambda: Undeclared.world.append("after"))
    (row,) = str(caught.value).splitlines()[1:]
    assert row.startswith("  lower: world: ")
    was, first, second = re.findall("[0-9a-f]{12}", row)
    assert first == second != was


class Growing(Upper, frozen=True):
    """Gives more each time."""

    rounds: ClassVar[list[int]] = []

    def run(self, ctx: Context) -> str:
        self.rounds.append(1)
        (ctx.out / "sub").mkdir()
        (ctx.out / "sub" / "text").write_text("ABC" * len(self.rounds))
        return "grown"


def test_what_fails_because_of_what_differs_is_no_failure_of_its_own(rebuild):
    told: list[Event] = []
    with pytest.raises(GateError) as caught:
        rebuild(Build(), Package(strict=True), lower=Growing(), told=told)
    assert len(Growing.rounds) == 2
    assert [row.split(": ")[0] for row in str(caught.value).splitlines()[1:]] == [
        "  lower", "  build",
    ]  # fmt: skip
    assert isinstance(caught.value.__cause__, StageError)
    assert isinstance(told[-1], StageFailed)
    assert (told[-1].stage, told[-1].exit_code) == ("rebuild", 1)


def run(file, *options, **fake):
    words = ("run", file, "--check-reproducible", *options)
    return forked.run(driver.main, words, file.parent, environment(**fake))


@pytest.mark.usefixtures("no_leaks")
def test_the_command_publishes_what_is_the_same_when_built_again(file):
    done = run(file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 artifacts, 4 files, all the same when built again" in done.stdout
    assert (file.parent / "dist" / "demo.tar").read_text() == "abc"
    events = [json.loads(line) for line in run(file, "--json").stdout.splitlines()]
    assert [event["event"] for event in events if event.get("stage") == "rebuild"][-1] == (
        "stage_finished"
    )


@pytest.mark.usefixtures("no_leaks")
def test_the_command_does_not_publish_what_is_not(file):
    """Its package holds the time."""
    done = run(file, AUTOPIPE_MOVING="1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: not reproducible: 'package' is the first stage")
    assert not (file.parent / "dist").exists()
    assert list((file.parent / ".autopipe" / "tmp").iterdir()) == []
