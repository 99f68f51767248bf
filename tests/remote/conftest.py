"""Runs that share a remote which may be faulty."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from autopipe.config.cache import Cache
from autopipe.pipeline.events import Event, StageCached, Warn
from autopipe.pipeline.executor import Executor
from autopipe.pipeline.plan import build_plan
from autopipe.pipeline.stage import Stage
from autopipe.remote import courier
from autopipe.remote.shared import open_shared
from autopipe.store.store import open_store
from tests.pipeline.fakes import FACTS, Fixed, Here, Measure, demo, told
from tests.remote import faulty
from tests.support import forked

ROOT = Path(__file__).parents[2]
SECRET = "xyzzy-xyzzy"

Mode = Literal["off", "read", "readwrite"]
Inject = Callable[[str], None]


class Machine:
    """A machine with a store of its own, which knows one remote."""

    def __init__(self, home: Path, remote: Path) -> None:
        self.home = home
        self.source = home.parent / "model.txt"
        self.source.write_text("ABC")
        self.remote = remote
        self.warnings: list[str] = []
        self.fetched: list[str] = []

    def run(
        self,
        mode: Mode = "read",
        *,
        stages: Sequence[Stage] | None = None,
        url: str | None = None,
        force: Sequence[str] = (),
        facts: object = FACTS,
        timeout: float = 30.0,
        time: float = 600.0,
    ) -> list[str]:
        """Run, and return what happened but for warnings; they are kept apart."""
        events: list[Event] = []
        url = url or f"faulty://{self.remote}"
        cache = Cache(remote=url, mode=mode, timeout=timeout, time=time)
        with (
            open_store(self.home) as store,
            open_shared(cache, self.home, store, events.append) as shared,
        ):
            environment = Fixed(facts)  # type: ignore[arg-type]
            executor = Executor(store, environment, Here(), events.append, shared)
            made = executor.run(build_plan(stages or demo(self.source)), force=force)
            assert (made["import"].path / "text").read_text() == self.source.read_text()
            if "tune" in made:
                assert (made["tune"].path / "records").read_text() == "ABC" * 4
        self.warnings = [event.message for event in events if isinstance(event, Warn)]
        self.fetched = [e.stage for e in events if isinstance(e, StageCached) and e.fetched]
        return [text for text in told(events) if not text.startswith("warning")]


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def machine(
    tmp_path: Path, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Machine]:
    monkeypatch.setattr(courier, "SERVER", faulty.__name__)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("STORAGE_SECRET", SECRET)
    return lambda name: Machine(tmp_path / name, remote)


@pytest.fixture
def forked_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the servers of machines be forks, but for that of `grown`, and see that they end."""
    monkeypatch.setattr(courier, "program", forked.program)
    with forked.none_left():
        yield


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has run everything, beside the remote it was pushed to."""
    folder = tmp_path_factory.mktemp("grown")
    first = Machine(folder / "farm", folder / "remote")
    first.run("readwrite", stages=[*demo(first.source), Measure()], url=f"file://{folder}/remote")
    return folder


@pytest.fixture
def farm(grown: Path, tmp_path: Path, machine: Callable[[str], Machine]) -> Machine:
    """A machine that has run everything, and pushed it."""
    for name in ("farm", "remote"):
        shutil.copytree(grown / name, tmp_path / name)
    return machine("farm")


@pytest.fixture
def inject(monkeypatch: pytest.MonkeyPatch) -> Inject:
    """Make the remote fail, such as `get objects flip`."""
    return lambda fault: monkeypatch.setenv("FAULT", fault)
