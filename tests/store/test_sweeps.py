"""A kill, and an error, at each operation on files of all that is kept on the disk."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autopipe.api.publish import publish_package
from autopipe.config.target import Target
from autopipe.environment.environment import Host
from autopipe.environment.facet import Facet
from autopipe.pipeline.log import Log
from autopipe.pipeline.packed import pack_stage, run_packed_stage
from autopipe.pipeline.stage import Context, Stage
from autopipe.store.gc import collect_garbage, verify_store
from autopipe.store.store import open_store
from tests.pipeline.crashes import CODES, Outcome, errors, kills
from tests.pipeline.fakes import demo, go

STACK = {"llvm": "22", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "lacks": ""}
OLD, NEW = b"old" * 1000, b"ABC"


class Packed:
    """Runs a stage as a child does, in this process, and logs something."""

    def run(self, stage: Stage, ctx: Context, log: Path) -> str:
        with Log(log) as printed:
            printed.write(b"printed")
            return run_packed_stage(pack_stage(stage, ctx), ctx.emit)


def run(folder: Path, *force: str) -> list[str]:
    """Run two stages and publish what the first one made; return what happened."""
    stages = demo(folder / "model")[:2]
    happened, made = go(stages, folder / "store", isolate=Packed(), force=force)
    publish_package(made["import"].path, folder / "dist")
    return happened


def again(folder: Path) -> None:
    run(folder, "lower")


def sweep(folder: Path) -> None:
    with open_store(folder / "store") as store:
        collect_garbage(store, keep_days=0)


def examine(folder: Path) -> None:
    with open_store(folder / "store") as store:
        facts = Host(Target(), store, lambda: STACK).facts([Facet.TARGET])
    assert facts[Facet.TARGET]["mcpu"] == "znver4"


def fresh(folder: Path) -> None:
    (folder / "model").write_bytes(NEW)
    (folder / "dist").mkdir()
    (folder / "dist" / "text").write_bytes(OLD)


def known(folder: Path) -> None:
    """Have read all about the installed packages, which are not ours to check."""
    fresh(folder)
    examine(folder)
    shutil.rmtree(folder / "store")


def warm(folder: Path) -> None:
    fresh(folder)
    run(folder)
    time.sleep(0.03)  # or time stamps are too young to be remembered
    run(folder)
    (folder / "dist" / "text").write_bytes(OLD)


def damaged(folder: Path) -> None:
    warm(folder)
    for path in folder.glob("store/objects/*/**/text"):
        path.chmod(0o600)
        path.write_text("damaged")


@dataclass(frozen=True)
class Scene:
    """What is there, what is done, and at how many operations at least a kill finds it."""

    before: Callable[[Path], object]
    action: Callable[[Path], object]
    operations: int


SCENES = {
    "first run": Scene(fresh, run, 90),
    "cached run": Scene(warm, run, 40),
    "forced run": Scene(warm, again, 80),
    "damaged entries": Scene(damaged, run, 100),
    "gc": Scene(warm, sweep, 40),
    "environment": Scene(known, examine, 25),
}
DAILY = {("first run", 0), ("gc", 1), ("environment", 2)}
TURNS = [
    pytest.param(name, turn, marks=() if (name, turn) in DAILY else pytest.mark.slow)
    for name in SCENES
    for turn in range(len(CODES))
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a folder in memory where there is one: there are thousands of calls of fsync."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def check(name: str, outcome: Outcome) -> None:
    """See that a run after the fault ends right, and finds nothing that is half there."""
    folder, store = outcome.folder, outcome.folder / "store"
    assert (folder / "dist" / "text").read_bytes() in {OLD, NEW}
    happened = run(folder)
    if name == "damaged entries":
        happened = [line for line in happened if "failed its checksum" not in line]
    assert [line.split()[0] for line in happened] in [
        ["cached", "cached"], ["cached", "run"], ["run", "cached"], ["run", "run"],
    ]  # fmt: skip
    assert {path.name: path.read_bytes() for path in (folder / "dist").iterdir()} == {"text": NEW}
    assert [path.read_bytes() for path in store.glob("objects/*/**/text")] == [NEW, NEW]
    assert list(store.glob("tmp/*")) == []
    with open_store(store) as opened:
        assert verify_store(opened) == (2, [])
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.fault("C1", "C2", "G1", "G2")
@pytest.mark.parametrize("name", SCENES)
def test_after_a_kill_at_any_operation_the_next_run_ends_right(disk: Path, name: str) -> None:
    scene, template = SCENES[name], disk / "template"
    template.mkdir()
    scene.before(template)
    for outcome in kills(disk, scene.action, template):
        check(name, outcome)
    assert outcome.n > scene.operations


@pytest.mark.fault("C7", "C19", "G1")
@pytest.mark.parametrize(("name", "turn"), TURNS)
def test_an_error_of_any_operation_is_a_line_with_a_path(disk: Path, name: str, turn: int) -> None:
    scene, template = SCENES[name], disk / "template"
    template.mkdir()
    scene.before(template)
    for outcome in errors(disk, scene.action, template, turn=turn):
        source = outcome.said.startswith(f"{outcome.folder / 'model'}: ")
        assert outcome.code in ({2, 5} if source else {0, 5}), outcome
        assert outcome.said.startswith(str(outcome.folder) if outcome.code else ""), outcome
        assert "\n" not in outcome.said
        check(name, outcome)
    assert outcome.n > scene.operations
