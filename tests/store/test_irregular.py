"""What is no file, or leads elsewhere, in the place of any file of a store."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.records.store import RecordStore
from autopipe.store import files, gc
from autopipe.store.store import open_store
from tests.pipeline.fakes import demo, go
from tests.records.written import HERE, MODULE, record

Put = Callable[[Path], None]


def put_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # the name of a socket may have 107 bytes
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def put_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("x")


def put_link(path: Path) -> None:
    path.symlink_to(precious(path))


def put_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


KINDS: list[Put] = [os.mkfifo, put_socket, put_folder, put_link, put_dangling_link]


def precious(path: Path) -> Path:
    """Return the file outside of the store that links lead to."""
    return next(folder for folder in path.parents if folder.name == "store").with_name("precious")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store, which has results, fingerprints and logs, and its model."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "model").write_text("ABC")
    (folder / "precious").write_text("gold")
    os.utime(folder / "model", (1, 1))
    memory = folder / "store" / "fingerprints"
    while not any(memory.glob("*.json")):  # what changed just now has no fingerprint yet
        go(demo(folder / "model")[:2], folder / "store")
    return folder


@contextmanager
def replaced(filled: Path, to: Path, pattern: str, put: Put) -> Iterator[Path]:
    """Yield a copy of a store in which each such file is something else; look at it afterwards."""
    shutil.copytree(filled, to, symlinks=True)
    paths = sorted((to / "store").glob(pattern))
    assert paths
    for path in paths:
        path.parent.chmod(0o700)
        path.unlink()
        put(path)
    yield to
    assert (to / "precious").read_text() == "gold"


@pytest.mark.fault("C18", "G3")
@pytest.mark.parametrize("put", KINDS)
@pytest.mark.parametrize("pattern", ["actions/*.json", "objects/*/**/text", "objects/*"])
def test_an_entry_that_is_no_file_is_a_miss_told_once(
    filled: Path, tmp_path: Path, pattern: str, put: Put
) -> None:
    if pattern == "objects/*":
        filled = shutil.copytree(filled, tmp_path / "flat")
        for path in (filled / "store" / "objects").iterdir():
            files.remove(path)
            path.write_text("in the place of a folder")
    with replaced(filled, tmp_path / "copy", pattern, put) as copy:
        model, root = copy / "model", copy / "store"
        told, _ = go(demo(model)[:2], root)
        assert [line.split()[0] for line in told] == ["warning", "run"] * 2
        assert all("failed its checksum" in line for line in told[::2])
        assert go(demo(model)[:2], root)[0] == ["cached import", "cached lower"]


@pytest.mark.fault("C18", "G3")
@pytest.mark.parametrize("put", KINDS)
def test_what_the_store_remembers_besides_is_forgotten(
    filled: Path, tmp_path: Path, put: Put
) -> None:
    with replaced(filled, tmp_path / "copy", "fingerprints/*.json", put) as copy:
        model, root = copy / "model", copy / "store"
        assert go(demo(model)[:2], root)[0] == ["cached import", "cached lower"]
        memory = root / "fingerprints"
        for path in memory.iterdir():
            files.remove(path)
            put(path)
        assert go(demo(model)[:2], root)[0] == ["cached import", "cached lower"]


@pytest.mark.fault("C18", "G3")
@pytest.mark.parametrize("put", KINDS)
@pytest.mark.parametrize("pattern", ["actions/*.json", "objects/*/**/text", "locks/[0-9a-f]*"])
def test_gc_and_verify_end(filled: Path, tmp_path: Path, pattern: str, put: Put) -> None:
    with replaced(filled, tmp_path / "copy", pattern, put) as copy:
        with open_store(copy / "store") as store:
            gc.list_entries(store)
            sound, damaged = gc.verify_store(store)
            assert (sound == 0) is (pattern[0] != "l")
            assert len(damaged) + sound == 2
            gc.collect_garbage(store, keep_days=0)
            assert not store.actions()
        assert {path.name for path in (copy / "store" / "locks").iterdir()} == {"gate"}


@pytest.mark.fault("C18")
@pytest.mark.parametrize("put", KINDS)
def test_a_lock_that_is_no_file_is_named(tmp_path: Path, put: Put) -> None:
    root = tmp_path / "store"
    with open_store(root):
        pass
    (root / "locks" / "gate").unlink()
    put(root / "locks" / "gate")
    with pytest.raises(StoreError, match=r"locks/gate: not a regular file"), open_store(root):
        pass


@pytest.mark.fault("C18")
@pytest.mark.parametrize("put", [put for put in KINDS if put is not put_folder])
def test_scratch_that_is_no_folder_is_made_anew(tmp_path: Path, put: Put) -> None:
    (tmp_path / "precious").write_text("gold")
    with open_store(tmp_path / "store") as store:
        put(store.root / "work" / "key")
        assert list(store.work("key").iterdir()) == []
    assert (tmp_path / "precious").read_text() == "gold"


@pytest.mark.fault("C18", "D4")
@pytest.mark.parametrize("put", KINDS)
def test_records_that_are_no_file_are_moved_aside(tmp_path: Path, put: Put) -> None:
    (tmp_path / "precious").write_text("gold")
    path = tmp_path / "store" / "records.sqlite"
    path.parent.mkdir()
    put(path)
    if path.exists():
        with pytest.raises(StoreError, match="not a regular file"):
            RecordStore.view(path)
    warned: list[str] = []
    with RecordStore.open(path, warned.append) as store:
        store.add(HERE, MODULE, [record()])
    assert len(warned) == 1
    assert "records.sqlite.damaged-1" in warned[0]
    assert (tmp_path / "precious").read_text() == "gold"
    with RecordStore.open(path, pytest.fail) as store:
        assert len(store.rows("00ff", MODULE, HERE)) == 1
