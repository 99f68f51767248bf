"""Sharing, from the command line."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autopipe.api import flow
from autopipe.config.cache import Cache
from autopipe.lock.mode import Mode
from autopipe.records.store import RecordStore
from tests.records.written import HERE, MODULE, record
from tests.support import driver, forked
from tests.support.demo import environment

pytestmark = pytest.mark.usefixtures("no_leaks")

Cli = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "model.txt").write_text("abc")
    path = tmp_path / "demo.yaml"
    path.write_text("version: 1\nname: demo\nmodel: {path: model.txt}\ncache: {remote: shared}\n")
    return path


@pytest.fixture
def cli(tmp_path: Path, file: Path) -> Cli:
    """Run a command in the folder of the file; return what it prints, errors after the rest."""

    def run(*arguments: object, code: int = 0, store: str = "store") -> str:
        done = forked.run(driver.main, (*arguments, "--store", store), tmp_path, environment())
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    return run


def test_a_run_takes_what_another_pushed(cli: Cli, file: Path) -> None:
    first = cli("run", file, "--set", "cache.mode=readwrite")
    assert "warning" not in first
    second = cli("run", file, "--json", store="other")
    assert second.count('"event":"stage_cached"') == second.count('"fetched":true') == 3
    assert "stage_started" not in second
    third = cli("run", file, "--set", 'cache.mode="off"', store="third")
    assert "from the remote" not in third
    assert "import     started" in third


def test_a_run_shows_what_it_fetched(cli: Cli, file: Path) -> None:
    cli("run", file, "--set", "cache.mode=readwrite")
    assert "import     cached  from the remote\n" in cli("run", file, store="other")


def test_a_remote_that_can_not_be_had_is_one_warning(cli: Cli, file: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("not a folder")
    done = cli("run", file, "--set", "cache.mode=readwrite", "-q")
    assert done.count("warning: cache: file:///") == 1
    assert done.startswith("dist/demo.tar\n")


def test_a_store_goes_there_and_back(cli: Cli, file: Path, tmp_path: Path) -> None:
    cli("run", file, "--set", "cache.remote=null")
    assert cli("cache", "push", "shared").startswith("pushed 3 entries, ")
    assert cli("cache", "push", "--pipeline", file).startswith("pushed 0 entries, 0.0 MiB; 3 were")
    assert cli("cache", "pull", "shared", store="other").startswith("pulled 3 entries, ")
    assert "import     cached\n" in cli("run", file, store="other")
    assert cli("cache", "verify", "--remote", "shared") == "3 sound, 0 damaged\n"
    next((tmp_path / "shared" / "objects").iterdir()).write_text("")
    damaged = cli("cache", "verify", "--remote", "shared", code=1)
    assert "; deleted\n" in damaged
    assert "error: a remote has damaged entries" in damaged
    assert cli("cache", "gc", "--remote", "shared") == "deleted 0 entries, 0 objects\n"


def test_records_go_there_and_back(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "records"
    folder.mkdir(parents=True)
    with RecordStore.open(folder / "records.sqlite", pytest.fail) as store:
        store.add(HERE, MODULE, [record((1e-3,)), record((2e-3,))])
    assert cli("records", "push", "shared") == "2 records pushed, 0 were there\n"
    assert cli("records", "pull", "shared", store="other") == "2 records added, 0 were known\n"
    assert cli("records", "export", "-", store="other") == cli("records", "export", "-")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["cache", "push"], 2, "error: name one remote: a URL, a folder, or --pipeline FILE"),
        (["cache", "pull", "a", "--pipeline", "demo.yaml"], 2, "error: name one remote"),
        (["cache", "pull", "shared"], 5, "/shared: nothing was pushed there yet"),
        (["cache", "pull", "s3://k:xyzzy@b"], 2, "error: the remote: leave out what follows a `?`"),
        (["cache", "pull", "gs://b"], 5, "gs:// needs a package: pip install 'autopipe[gs]'"),
        (["cache", "gc", "--remote", "a", "--max-size", "1G"], 2, "--max-size is for a store"),
        (["cache", "verify", "--remote", "shared"], 5, "nothing was pushed there yet"),
        (["records", "pull", "shared"], 5, "nothing was pushed there yet"),
        (["records", "push", "shared"], 5, "there are no tuning records"),
    ],
)
def test_what_can_not_be_is_one_line(cli: Cli, arguments: list[str], code: int, says: str) -> None:
    if arguments[1] == "push":
        cli("cache", "pull", "nowhere", code=5)  # makes a store
    told = cli(*arguments, code=code)
    assert says in told
    assert told.count("\n") == 1
    assert "xyzzy" not in told


HANGING = """
from autopipe.remote import courier
courier.SERVER = "tests.remote.faulty"
from tests.support.driver import main
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_waits_for_a_remote_can_be_ended(
    cli: Cli, file: Path, tmp_path: Path, number: int, code: int
) -> None:
    """That what hangs ends with it, `no_leaks` sees."""
    setting = f"cache={{remote: 'faulty://{tmp_path}/shared', timeout: 10m}}"
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, "run", file, "--set", setting, "--store", "store"],
        cwd=tmp_path, env=environment(FAULT="get autopipe.json hang", HANGS=tmp_path / "hangs"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not (tmp_path / "hangs").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait() == code
    assert cli("cache", "ls") == ""  # and clears what a killed run left


@pytest.mark.fault("G9")
@pytest.mark.parametrize(("mode", "asks"), [(Mode.FROZEN, False), (Mode.LOCKED, True)])
def test_a_frozen_run_asks_no_remote(tmp_path: Path, mode: Mode, asks: bool) -> None:  # noqa: FBT001
    opened: Any = SimpleNamespace(
        pipeline=SimpleNamespace(cache=Cache(remote="s3://bucket")),
        locking=SimpleNamespace(mode=mode),
        store=SimpleNamespace(tmp=tmp_path),
    )
    with flow._open_remote(opened, tmp_path, lambda _: None) as remote:
        assert (remote is not None) is asks
