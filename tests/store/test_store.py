import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autopipe.errors import StoreError
from autopipe.pipeline.events import Event
from autopipe.pipeline.stage import Stage
from autopipe.store import files
from autopipe.store.content import TreeDigests
from autopipe.store.store import open_store
from tests.pipeline.fakes import Act, Read, demo, go, told


def stages(source: Path) -> list[Stage]:
    return demo(source)[:2]


def settle(root: Path) -> None:
    """Let the time stamps grow old enough to be trusted, and have them remembered."""
    time.sleep(0.03)
    with open_store(root) as store:
        for key in store.actions():
            assert store.lookup(key, pytest.fail) is not None


@pytest.mark.fault("C7")
@pytest.mark.parametrize("limit", [10, 300, 100_000])
def test_a_file_size_limit_is_a_store_error(root: Path, limit: int) -> None:
    program = (
        "import resource; from pathlib import Path\n"
        "from autopipe.errors import StoreError\n"
        "from tests.pipeline.fakes import Act, go\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        f"try: go([Act(do='write', note='x' * 10)], Path({str(root)!r}))\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert (b"File too large" in done.stdout) == (limit < 1000)
    assert go([Act(do="write", note="x" * 10)], root)[0] == [
        "run act" if limit < 1000 else "cached act"
    ]


@pytest.mark.fault("C19")
def test_too_many_open_files_is_a_store_error(root: Path) -> None:
    program = (
        "import os, resource; from pathlib import Path\n"
        "from autopipe.errors import StoreError\n"
        "from tests.pipeline.fakes import Act, go\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "held = [os.dup(0) for _ in range(28)]\n"
        f"try: go([Act(do='write')], Path({str(root)!r}))\n"
        "except StoreError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"Too many open files" in done.stdout


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    rewrite(path, bytes(data))


def damage_cut(path: Path) -> None:
    rewrite(path, path.read_bytes()[:-1])


def damage_empty(path: Path) -> None:
    rewrite(path, b"")


def damage_append(path: Path) -> None:
    rewrite(path, path.read_bytes() + b"\n")


def rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(data)


DAMAGES = [damage_flip, damage_cut, damage_empty, damage_append]


@pytest.mark.fault("C3", "C6", "G3")
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["actions/*.json", "objects/*/text"])
def test_a_damaged_entry_is_a_miss_with_one_warning(
    root: Path, file: str, damage: object, *, settled: bool
) -> None:
    _, made = go([Act(do="write")], root)
    if settled:
        settle(root)
    (path,) = root.glob(file)
    key = next(root.glob("actions/*.json")).stem
    damage(path)  # type: ignore[operator]
    warning = f"warning cache entry {key} failed its checksum; recomputed"
    again, remade = go([Act(do="write")], root)
    assert again == [warning, "run act"]
    assert remade == made
    assert list(root.glob("quarantine/*"))
    assert go([Act(do="write")], root)[0] == ["cached act"]


@pytest.mark.parametrize("file", ["fingerprints/*.json", "environments/*.json"])
def test_damaged_memory_is_only_forgotten(root: Path, source: Path, file: str) -> None:
    go(stages(source), root)
    settle(root)
    for path in root.glob(file):
        damage_flip(path)
    assert go(stages(source), root)[0] == ["cached import", "cached lower"]


@pytest.mark.fault("C3")
def test_a_file_added_to_an_object_is_damage(root: Path) -> None:
    _, made = go([Act(do="write")], root)
    made["act"].path.chmod(0o700)
    (made["act"].path / "more").write_text("x")
    assert go([Act(do="write")], root)[0][-1] == "run act"


@pytest.mark.fault("C5", "G2")
def test_an_object_that_is_gone_is_a_miss(root: Path) -> None:
    _, made = go([Act(do="write")], root)
    made["act"].path.rename(root / "elsewhere")
    assert go([Act(do="write")], root)[0] == ["run act"]


@pytest.mark.fault("C3", "G2")
def test_a_damaged_object_is_not_kept_because_another_action_makes_the_same(root: Path) -> None:
    _, made = go([Act(do="write", note="same")], root)
    rewrite(made["act"].path / "text", b"SAME")

    class Other(Act, frozen=True):
        more: int = 1

    _, again = go([Other(do="write", note="same")], root)
    assert (again["act"].path / "text").read_text() == "same"


def test_two_actions_may_share_an_object(root: Path) -> None:
    class Other(Act, frozen=True):
        more: int = 1

    assert go([Act(do="write")], root)[1] == go([Other(do="write")], root)[1]
    assert len(list(root.glob("objects/*"))) == 1


def test_objects_are_read_only(root: Path, source: Path) -> None:
    _, made = go(stages(source), root)
    for path in (made["lower"].path, *made["lower"].path.rglob("*")):
        assert stat.S_IMODE(path.lstat().st_mode) & 0o222 == 0
    assert stat.S_IMODE(root.lstat().st_mode) == 0o700


def test_unchanged_files_are_not_read_again(
    root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(stages(source), root)
    time.sleep(0.03)
    go(stages(source), root)
    monkeypatch.delattr(files, "sha256")
    assert go(stages(source), root)[0] == ["cached import", "cached lower"]


def test_a_change_that_keeps_size_and_time_of_modification_is_noticed(
    root: Path, source: Path
) -> None:
    go([Read(path=source)], root)
    time.sleep(0.03)
    go([Read(path=source)], root)
    before = source.stat()
    source.write_text("XYZ")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert go([Read(path=source)], root)[0] == ["run import"]


def test_a_fingerprint_too_young_to_tell_changes_apart_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("memory", "tmp"):
        (tmp_path / name).mkdir()
    contents = TreeDigests(tmp_path / "memory", tmp_path / "tmp")
    file = tmp_path / "file"
    file.write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr("autopipe.store.content._SETTLED", 60 * 10**9)
        contents.manifest(file)
    assert not list(contents.memory.iterdir())
    time.sleep(0.03)
    contents.manifest(file)
    assert len(list(contents.memory.iterdir())) == 1


@pytest.mark.fault("C18")
def test_replacing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("gold")
    link = tmp_path / "link"
    link.symlink_to(precious)
    (tmp_path / "tmp").mkdir()
    files.replace(link, b"lead", tmp_path / "tmp")
    assert (link.read_text(), link.is_symlink()) == ("lead", False)
    assert precious.read_text() == "gold"


@pytest.mark.fault("C13")
@pytest.mark.parametrize("year", [1990, 2100])
def test_odd_time_stamps_change_nothing(root: Path, source: Path, year: int) -> None:
    go(stages(source), root)
    seconds = (year - 1970) * 31_557_600
    for path in [source, *root.glob("**/*")]:
        os.utime(path, (seconds, seconds))
    assert go(stages(source), root)[0] == ["cached import", "cached lower"]


@pytest.mark.fault("C13")
@pytest.mark.parametrize("year", [2000, 2060])
def test_an_odd_clock_changes_nothing(
    root: Path, source: Path, year: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(stages(source), root)
    monkeypatch.setattr(time, "time_ns", lambda: (year - 1970) * 31_557_600 * 10**9)
    monkeypatch.setattr(time, "time", lambda: (year - 1970) * 31_557_600.0)
    assert go(stages(source), root)[0] == ["cached import", "cached lower"]


@pytest.mark.fault("C18")
def test_a_link_in_place_of_a_record_is_not_followed(root: Path, tmp_path: Path) -> None:
    go([Act(do="write")], root)
    (record,) = root.glob("actions/*.json")
    target = record.rename(tmp_path / "precious")
    content = target.read_bytes()
    record.symlink_to(target)
    assert go([Act(do="write")], root)[0][-1] == "run act"
    assert target.read_bytes() == content
    assert not record.is_symlink()


@pytest.mark.fault("C18")
@pytest.mark.parametrize("place", ["", "text"])
def test_a_link_in_place_of_an_object_is_not_followed(
    root: Path, tmp_path: Path, place: str
) -> None:
    _, made = go([Act(do="write")], root)
    path = made["act"].path / place
    path.parent.chmod(0o700)
    path.chmod(0o700)
    target = path.rename(tmp_path / "elsewhere")
    path.symlink_to(target)
    assert go([Act(do="write")], root)[0][-1] == "run act"
    assert target.exists()
    assert not path.is_symlink()


@pytest.mark.fault("C18")
def test_a_link_in_place_of_a_folder_is_refused(root: Path, tmp_path: Path) -> None:
    root.mkdir(mode=0o700)
    (root / "objects").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="objects: not a directory"):
        go([Act(do="write")], root)


@pytest.mark.fault("C18")
def test_a_record_under_a_wrong_key_is_damage(root: Path) -> None:
    go([Act(do="write")], root)
    (record,) = root.glob("actions/*.json")
    record.rename(record.with_name(f"{'0' * 64}.json"))
    with open_store(root) as store:
        warnings: list[str] = []
        assert store.lookup("0" * 64, warnings.append) is None
        assert len(warnings) == 1


@pytest.mark.fault("C8")
def test_a_store_everybody_may_write_to_is_refused(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(StoreError, match="every user may write to it"):
        go([Act(do="write")], root)


@pytest.mark.fault("C8")
def test_a_store_of_somebody_else_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(StoreError, match="store: belongs to another user"):
        go([Act(do="write")], root)


@pytest.mark.fault("C8")
def test_a_store_that_is_a_file_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(StoreError, match="store: not a directory"):
        go([Act(do="write")], root)


@pytest.mark.fault("C8")
def test_a_store_below_a_file_is_refused(root: Path) -> None:
    root.write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        go([Act(do="write")], root / "below")


@pytest.mark.fault("C8")
def test_a_missing_parent_is_made(root: Path) -> None:
    assert go([Act(do="write")], root / "a" / "b")[0] == ["run act"]


@pytest.mark.fault("C8")
@pytest.mark.skipif(not Path("/proc/sys").exists(), reason="needs a read-only file system")
def test_a_read_only_store_is_refused() -> None:
    with pytest.raises(StoreError, match="/proc/sys/store: "):
        go([Act(do="write")], Path("/proc/sys/store"))


RACE = """
import sys
from pathlib import Path
from tests.pipeline.fakes import demo, go
happened, made = go(demo(Path(sys.argv[1])), Path(sys.argv[2]))
print(*sorted(artifact.digest for artifact in made.values()))
print(*(line for line in happened if line.startswith("run")))
"""


def race(source: Path, root: Path) -> tuple[set[str], list[str]]:
    """Run the same pipeline twice at the same time."""
    command = [sys.executable, "-c", RACE, str(source), str(root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [each.communicate()[0].splitlines() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    return {digests for digests, _ in lines}, [word for _, ran in lines for word in ran.split()]


@pytest.mark.fault("C9", "G4")
@pytest.mark.parametrize("_", range(2))
def test_two_runs_at_once_do_each_stage_once(source: Path, root: Path, _: int) -> None:
    digests, ran = race(source, root)
    assert len(digests) == 1
    assert sorted(ran) == sorted(["run", "import", "run", "lower", "run", "tune"])


@pytest.mark.fault("C9", "G4")
@pytest.mark.slow
@pytest.mark.parametrize("_", range(20))
def test_many_pairs_of_runs_at_once(source: Path, root: Path, _: int) -> None:
    assert len(race(source, root)[0]) == 1


HOLD = """
import os, sys, time
from pathlib import Path
from autopipe.store.store import open_store
with open_store(Path(sys.argv[1])) as store, store.lock(sys.argv[2], print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.fault("C12", "G13")
def test_the_lock_of_a_killed_run_is_free_and_a_live_one_is_named(root: Path) -> None:
    go([Act(do="write")], root)
    key = next(root.glob("actions/*.json")).stem
    command = [sys.executable, "-c", HOLD, str(root), key]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        events: list[Event] = []
        waiter = threading.Thread(
            target=go, args=([Act(do="write")], root), kwargs={"force": ["act"], "events": events}
        )
        waiter.start()
        deadline = time.monotonic() + 30
        while not events and time.monotonic() < deadline:
            time.sleep(0.01)
        assert told(events) == [f"warning waiting for process {holder.pid}"]
        holder.kill()
        holder.wait()
        waiter.join(timeout=30)
    assert told(events)[-1] == "run act"
    go([Act(do="write")], root)
    assert not list(root.glob("tmp/*")), "what the killed run left is cleared"


def test_records_are_readable(root: Path) -> None:
    go([Act(do="write", note="hello")], root)
    (record,) = root.glob("actions/*.json")
    content = json.loads(record.read_text())["content"]
    assert content["action"]["params"]["note"] == "hello"
    assert [file["name"] for file in content["files"]] == ["text"]


def test_a_store_that_another_run_makes_in_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with open_store(tmp_path / "store") as store:
        assert store.tmp.is_dir()
