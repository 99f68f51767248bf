"""Stages without TVM, and a run of them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from autopipe.config.pipeline import Pipeline
from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet, Facts
from autopipe.errors import GateError, ModelError, SetupError
from autopipe.pipeline.events import Event, Progress
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.history import History
from autopipe.pipeline.isolate import Isolate
from autopipe.pipeline.plan import build_plan
from autopipe.pipeline.stage import Context, Need, Stage
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.store import open_store

FACTS: Facts = {
    Facet.TVM: {"tvm": "1"},
    Facet.TARGET: {"kind": "llvm", "num_cores": 2},
    Facet.DEVICE: {"cpu": "x"},
}


FILE = Path("demo.yaml")
"""The pipeline file that runs belong to."""


class Fixed:
    """An environment that is what the test says."""

    def __init__(self, facts: Facts = FACTS) -> None:
        self._facts = facts

    def facts(self, facets: Iterable[Facet]) -> Facts:
        return {facet: self._facts[facet] for facet in facets}

    def known(self, facets: Iterable[Facet]) -> Facts | None:
        return self.facts(facets)


class Fake(Stage, frozen=True):
    version: ClassVar[int] = 1

    @classmethod
    def of(cls, pipeline: Pipeline, base: Path) -> Self | None:
        raise NotImplementedError


class Read(Fake, frozen=True):
    """Copies a file, as the import stage would."""

    name: ClassVar[str] = "import"
    produces: ClassVar[Kind] = Kind.MODEL
    path: Path

    def sources(self) -> Mapping[str, Path]:
        return {"path": self.path}

    def run(self, ctx: Context) -> str:
        (ctx.out / "text").write_text(self.path.read_text())
        return "read"


class Upper(Fake, frozen=True):
    """Forgets upper and lower case, so that some changes end here."""

    name: ClassVar[str] = "lower"
    produces: ClassVar[Kind] = Kind.LOWERED
    needs: ClassVar[Mapping[str, Need]] = {"import": Need(Kind.MODEL)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM})

    def run(self, ctx: Context) -> str:
        ctx.emit(Progress(stage="lower", message="folding"))
        (ctx.out / "sub").mkdir()
        (ctx.out / "sub" / "text").write_text((ctx.inputs["import"] / "text").read_text().upper())
        return "upper"


class Tune(Fake, frozen=True):
    name: ClassVar[str] = "tune"
    produces: ClassVar[Kind] = Kind.RECORDS
    needs: ClassVar[Mapping[str, Need]] = {"lower": Need(Kind.LOWERED)}
    reads: ClassVar[frozenset[Facet]] = frozenset({Facet.TVM, Facet.TARGET, Facet.DEVICE})
    trials: int = 4
    workers: int = 1

    def unkeyed(self) -> frozenset[str]:
        return frozenset({"workers"})

    def run(self, ctx: Context) -> str:
        text = (ctx.inputs["lower"] / "sub" / "text").read_text()
        (ctx.out / "records").write_text(text * self.trials)
        return f"{self.trials} trials"


class Measure(Fake, frozen=True):
    """Stands for the benchmark: its result is never served."""

    name: ClassVar[str] = "benchmark"
    produces: ClassVar[Kind] = Kind.REPORT
    needs: ClassVar[Mapping[str, Need]] = {
        "tune": Need(Kind.RECORDS),
        "verify": Need(Kind.REPORT, optional=True),
    }
    cached: ClassVar[bool] = False

    def run(self, ctx: Context) -> str:
        (ctx.out / "report").write_text(str(sorted(ctx.inputs)))
        return ""


class Dice(Fake, frozen=True):
    """Stands for tuning: the same action, another result."""

    name: ClassVar[str] = "import"
    produces: ClassVar[Kind] = Kind.MODEL
    rolls: ClassVar[list[str]] = []

    def run(self, ctx: Context) -> str:
        self.rolls.append("x")
        (ctx.out / "text").write_text("abc" * len(self.rolls))
        return ""


class Act(Fake, frozen=True):
    """Does what a test asks for, in the child."""

    name: ClassVar[str] = "act"
    produces: ClassVar[Kind] = Kind.REPORT
    do: str
    note: str = ""

    def run(self, ctx: Context) -> str:
        getattr(self, f"do_{self.do}")(ctx)
        return self.do

    def do_nothing(self, ctx: Context) -> None: ...

    def do_write(self, ctx: Context) -> None:
        (ctx.out / "text").write_text(self.note or "x")

    def do_find_module(self, ctx: Context) -> None:
        (ctx.out / "text").write_text(str(self.note in sys.modules))

    def do_delete(self, ctx: Context) -> None:
        shutil.rmtree(ctx.out.parents[1])
        raise RuntimeError("native code says what it likes")

    def do_empty_file(self, ctx: Context) -> None:
        (ctx.out / "text").touch()

    def do_link(self, ctx: Context) -> None:
        (ctx.out / "text").write_text("x")
        (ctx.out / "link").symlink_to("/etc/passwd")

    def do_raise(self, ctx: Context) -> None:
        (ctx.work / "left").write_text("x")
        raise RuntimeError(self.note)

    def do_refuse(self, ctx: Context) -> None:
        class SpecialError(ModelError): ...

        raise SpecialError(self.note)

    def do_gate(self, ctx: Context) -> None:
        raise GateError(self.note)

    def do_setup(self, ctx: Context) -> None:
        raise SetupError(self.note)

    def do_segfault(self, ctx: Context) -> None:
        (ctx.work / "left").write_text("x")
        os.write(1, b"about to crash\x1b[31m\n")
        os.kill(os.getpid(), signal.SIGSEGV)

    def do_crash_once(self, ctx: Context) -> None:
        if not (ctx.work / "left").exists():
            self.do_segfault(ctx)
        (ctx.out / "text").write_text("resumed")

    def do_exit(self, ctx: Context) -> None:
        os._exit(3)

    def do_peek(self, ctx: Context) -> None:
        assert ctx.facts[Facet.DEVICE]

    def do_flood(self, ctx: Context) -> None:
        for _ in range(64):
            os.write(2, b"x" * 65536)
        os.write(2, b"the end\n")
        self.do_write(ctx)

    def do_pid(self, ctx: Context) -> None:
        (ctx.out / "text").write_text(f"{os.getpid()} {os.getppid()}")

    def do_hang(self, ctx: Context) -> None:
        """Write the ids of all processes that must die to a file, and sleep."""
        server = subprocess.Popen(["sleep", "60"])
        pids = f"{os.getpid()} {os.getppid()} {server.pid}"
        Path(self.note + ".part").write_text(pids)
        Path(self.note + ".part").rename(self.note)
        (ctx.work / "left").write_text("x")
        time.sleep(60)

    def do_nap(self, ctx: Context) -> None:
        time.sleep(0.9)
        self.do_write(ctx)

    def do_freeze(self, ctx: Context) -> None:
        """Stop whom the note names: this process, its parent, or a helper it waits for."""
        if self.note == "helper":
            with subprocess.Popen(["sleep", "60"]) as helper:
                helper.send_signal(signal.SIGSTOP)
        os.kill(os.getpid() if self.note == "child" else os.getppid(), signal.SIGSTOP)
        time.sleep(60)

    def do_leave(self, ctx: Context) -> None:
        """End, and leave a process behind."""
        (ctx.out / "text").write_text(str(subprocess.Popen(["sleep", "60"]).pid))

    def do_fill(self, ctx: Context) -> None:
        (ctx.out / "text").write_bytes(b"x" * 1_000_000)

    def do_change_source(self, ctx: Context) -> None:
        Path(self.note).write_text("changed")
        self.do_write(ctx)

    def sources(self) -> Mapping[str, Path]:
        return {"note": Path(self.note)} if self.do == "change_source" else {}


class Early(Act, frozen=True):
    """Has a module imported that stages after it need, and one that there is not."""

    imported_meanwhile: ClassVar[tuple[str, ...]] = ("autopipe.no_module", "this")


def demo(source: Path, trials: int = 4, workers: int = 1) -> list[Stage]:
    return [Read(path=source), Upper(), Tune(trials=trials, workers=workers)]


class Here:
    """Runs stages in this process."""

    def run(self, stage: Stage, ctx: Context, log: Path) -> str:
        """Run the stage; what it prints goes where this process prints."""
        return stage.run(ctx)


def go(
    stages: Iterable[Stage],
    root: Path,
    *,
    facts: Facts = FACTS,
    force: Sequence[str] = (),
    until: str | None = None,
    isolate: Isolate | None = None,
    environment: Environment | None = None,
    events: list[Event] | None = None,
    file: Path = FILE,
) -> tuple[list[str], dict[str, Artifact]]:
    """Run, and return what happened as `run import`, `cached lower`, `warning ...`."""
    events = [] if events is None else events
    with open_store(root) as store:
        executor = Executor(
            store, environment or Fixed(facts), isolate or Here(), events.append,
            history=History.of(store, file, file.stem),
        )  # fmt: skip
        artifacts = executor.run(build_plan(stages, until=until), force=force)
    return told(events), artifacts


def told(events: Iterable[Event]) -> list[str]:
    words = {"stage_started": "run", "stage_cached": "cached", "warning": "warning"}
    words["stage_skipped"] = "skipped"
    return [
        f"{words[event.event]} {getattr(event, 'message', event.stage)}"
        for event in events
        if event.event in words and hasattr(event, "stage")
    ]
