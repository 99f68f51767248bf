"""Whatever a remote does, a run ends with the right artifacts, and one warning."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from autopipe.environment.facet import Facet
from autopipe.remote import courier
from autopipe.remote.courier import Courier
from autopipe.remote.depot import open_depot
from autopipe.remote.transfer import push_entries
from autopipe.store.canonical import seal_document
from autopipe.store.store import open_store
from tests.pipeline.fakes import FACTS, Measure, demo
from tests.remote.conftest import Inject, Machine

pytestmark = pytest.mark.usefixtures("no_leaks", "forked_servers")

RUN = ["run import", "run lower", "run tune"]
ALONE = "this run goes on without it"
CACHED = ["cached import", "cached lower", "cached tune"]

Make = Callable[[str], Machine]


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_what_one_machine_made_another_takes(farm: Machine, machine: Make) -> None:
    other = machine("other")
    assert other.run() == CACHED
    assert other.fetched == ["import", "lower", "tune"]
    assert other.warnings == []


def test_what_was_fetched_is_in_the_store(
    farm: Machine, machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machine("other")
    other.run()
    monkeypatch.setattr(courier, "SERVER", "no such module")
    assert (other.run(), other.fetched, other.warnings) == (CACHED, [], [])


def test_a_cached_run_asks_nobody(farm: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "SERVER", "no such module")
    assert (farm.run("readwrite"), farm.warnings) == (CACHED, [])


def test_what_was_measured_is_not_shared(farm: Machine, machine: Make) -> None:
    other = machine("other")
    stages = [*demo(other.source), Measure()]
    assert other.run(stages=stages) == [*CACHED, "run benchmark"]
    assert len(list((farm.remote / "actions").iterdir())) == 3


def test_what_somebody_measured_is_not_taken(farm: Machine, machine: Make) -> None:
    with (
        open_store(farm.home) as store,
        open_depot(str(farm.remote), store.tmp) as depot,
    ):
        assert push_entries(store, depot, (), pytest.fail).entries == 1
    other = machine("other")
    assert other.run(stages=[*demo(other.source), Measure()]) == [*CACHED, "run benchmark"]


def test_another_device_tunes_itself(farm: Machine, machine: Make) -> None:
    """Its key is another; times hold for the machine that measured them."""
    other = machine("other")
    assert other.run(facts={**FACTS, Facet.DEVICE: {"cpu": "y"}}) == [*CACHED[:2], "run tune"]
    assert other.warnings == []


@pytest.mark.fault("G16")
@pytest.mark.parametrize("mode", ["off", "read"])
def test_a_reader_writes_nothing(farm: Machine, machine: Make, mode: str) -> None:
    before = times(farm.remote)
    machine("other").run(mode, facts={**FACTS, Facet.DEVICE: {"cpu": "y"}})  # type: ignore[arg-type]
    assert times(farm.remote) == before


def test_a_forced_stage_is_made_here_and_replaced_there(farm: Machine, machine: Make) -> None:
    action = next(
        path for path in (farm.remote / "actions").iterdir() if '"tune"' in path.read_text()
    )
    action.unlink()
    other = machine("other")
    assert other.run("readwrite", force=["tune"]) == [*CACHED[:2], "run tune"]
    assert action.exists()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("get autopipe.json down", "could not connect .*; this run goes on without it"),
        ("get autopipe.json refuse", "Forbidden: the secret is .STORAGE_SECRET; this run"),
        ("get autopipe.json odd", "RuntimeError; this run goes on without it"),
        ("get autopipe.json crash", "ended with SIGSEGV; this run goes on without it"),
        ("get autopipe.json flip", "its autopipe.json is damaged, or not one of this autopipe"),
        ("get actions down", "could not connect"),
        ("get actions flip", "action .* is damaged, or of another autopipe; not used"),
        ("get actions truncate", "action .* is damaged"),
        ("get actions empty", "action .* is damaged"),
        ("get objects down", "could not connect"),
        ("get objects full", "No space left on device"),
        ("get objects crash", "ended with SIGSEGV"),
        ("get objects flip", "the bytes of '.*' have another digest; not used"),
        ("get objects truncate", "the bytes of '.*' have another digest; not used"),
        ("get objects empty", "the bytes of '.*' have another digest; not used"),
        ("get objects append", "object .* is larger than it says; not used"),
        ("get objects half", "connection reset"),
    ],
)
@pytest.mark.fault("C3", "C4", "G3")
def test_a_fault_is_a_miss_and_one_warning(
    farm: Machine, machine: Make, inject: Inject, fault: str, says: str
) -> None:
    before = times(farm.remote)
    inject(fault)
    other = machine("other")
    assert other.run() == RUN
    assert times(farm.remote) == before
    (warning,) = other.warnings
    assert warning.startswith(f"faulty://{farm.remote}: ")
    assert re.search(says, warning), warning
    assert "xyzzy" not in warning


@pytest.mark.parametrize("name", ["autopipe.json", "actions", "objects"])
@pytest.mark.parametrize("how", ["hang", "stop"])
def test_what_hangs_is_left_and_killed(
    farm: Machine, machine: Make, inject: Inject, name: str, how: str
) -> None:
    """That it is dead in the end, `forked_servers` sees."""
    inject(f"get {name} {how}")
    other = machine("other")
    assert other.run(timeout=0.5) == RUN
    (warning,) = other.warnings
    assert "it gave no answer within 0.5 s; this run goes on without it" in warning


@pytest.mark.parametrize("fault", ["get actions down", "get objects crash", "put . down"])
def test_after_a_failure_nobody_is_asked_again(
    farm: Machine, machine: Make, inject: Inject, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    requests: list[str] = []
    ask = Courier._ask

    def counted(self: Courier, do: str, size: int = 0, **request: object) -> object:
        requests.append(f"{do} {request['name']}")
        return ask(self, do, size, **request)

    monkeypatch.setattr(Courier, "_ask", counted)
    inject(fault)
    machine("other").run("readwrite", facts={**FACTS, Facet.TVM: {"tvm": "2"}})
    do, name, _ = fault.split()
    assert [text for text in requests if text.startswith(do) and name in text] == requests[-1:]


def test_all_answers_together_have_a_limit(
    farm: Machine, machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Courier._request

    def slow(self: Courier, request: dict[str, object], patience: float) -> object:
        self._left -= 0 if "url" in request else 9  # seconds
        return told(self, request, patience)

    monkeypatch.setattr(Courier, "_request", slow)
    other = machine("other")
    assert other.run(time=50.0) == [*CACHED[:2], "run tune"]
    (warning,) = other.warnings
    assert "it has had all the time that a run gives it, cache.time" in warning


def test_a_remote_of_which_everything_is_damaged_is_one_warning_and_is_repaired(
    farm: Machine, machine: Make
) -> None:
    for path in (farm.remote / "objects").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    other = machine("other")
    assert other.run("readwrite") == RUN
    assert len(other.warnings) == 1
    third = machine("third")
    assert (third.run(), third.warnings) == (CACHED, [])


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("put autopipe.json refuse", "Forbidden"),
        ("put autopipe.json down", "could not connect"),
        ("put objects refuse", "cannot be written: Forbidden"),
        ("put objects full", "No space left on device"),
        ("put objects half", "connection reset"),
        ("put objects crash", "ended with SIGSEGV"),
        ("put actions refuse", "cannot be written: Forbidden"),
        ("put actions half", "connection reset"),
    ],
)
@pytest.mark.fault("C2", "G1", "G2")
def test_a_remote_that_can_not_be_written_is_one_warning(
    machine: Make, inject: Inject, fault: str, says: str
) -> None:
    inject(fault)
    first = machine("first")
    assert first.run("readwrite") == RUN
    (warning,) = first.warnings
    assert says in warning
    inject("")
    reader = machine("reader")
    assert reader.run() == RUN
    writer = machine("writer")
    assert writer.run("readwrite") == RUN
    assert (reader.run(), machine("last").run()) == (CACHED, CACHED)


def test_one_that_may_not_be_written_is_still_read(
    farm: Machine, machine: Make, inject: Inject
) -> None:
    next(p for p in (farm.remote / "actions").iterdir() if '"lower"' in p.read_text()).unlink()
    inject("put . refuse")
    other = machine("other")
    assert other.run("readwrite") == ["cached import", "run lower", "cached tune"]
    assert other.fetched == ["import", "tune"]
    (warning,) = other.warnings
    assert "this run only reads it" in warning


def test_nothing_there_is_one_warning(machine: Make, remote: Path) -> None:
    other = machine("other")
    assert other.run() == RUN
    assert other.warnings == [f"faulty://{remote}: nothing was pushed there yet; {ALONE}"]
    assert not remote.exists()


@pytest.mark.fault("C14")
def test_a_newer_layout_is_left_as_it_is(farm: Machine, machine: Make) -> None:
    marker = farm.remote / "autopipe.json"
    marker.write_bytes(seal_document({"format": 2, "more": "of it"}))
    before = sorted(farm.remote.rglob("*"))
    other = machine("other")
    assert other.run("readwrite") == RUN
    (warning,) = other.warnings
    assert "autopipe.json is damaged, or not one of this autopipe" in warning
    assert sorted(farm.remote.rglob("*")) == before


@pytest.mark.fault("C5")
def test_an_object_that_is_not_there_is_a_miss(farm: Machine, machine: Make) -> None:
    for path in (farm.remote / "objects").iterdir():
        path.unlink()
    other = machine("other")
    assert other.run() == RUN
    assert "object" in other.warnings[0]
    assert "is not there; not used" in other.warnings[0]


@pytest.mark.fault("C18")
def test_links_in_a_folder_lead_nowhere(farm: Machine, machine: Make, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("secret")
    for path in (farm.remote / "objects").iterdir():
        path.unlink()
        path.symlink_to(precious)
    other = machine("other")
    assert other.run("readwrite", url=f"file://{farm.remote}") == RUN
    assert precious.read_text() == "secret"
    assert not any(path.is_symlink() for path in other.home.rglob("*"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/folder", "gs:// needs a package: pip install 'autopipe[gs]'"),
        ("nonsense://bucket", "Protocol not known: nonsense"),
    ],
)
def test_what_is_not_installed_is_one_line(machine: Make, url: str, says: str) -> None:
    other = machine("other")
    assert other.run(url=url) == RUN
    (warning,) = other.warnings
    assert says in warning
