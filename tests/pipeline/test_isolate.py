import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from autopipe.errors import ModelError, SetupError, StoreError
from autopipe.pipeline import isolate
from autopipe.pipeline.events import Event, Progress
from autopipe.pipeline.isolate import Bug, Killed, Late, Zygote
from autopipe.store.store import open_store
from tests.pipeline.crashes import descriptors, limits
from tests.pipeline.fakes import Act, Early, demo, go
from tests.support.kept import nothing

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with Zygote(preload=()) as started:
        yield started


def is_running(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def wait_for_end(pids: list[int]) -> list[int]:
    deadline = time.monotonic() + 30
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def test_stages_run_in_children_of_one_process(root: Path, zygote: Zygote) -> None:
    seen = []
    for note in ("1", "2"):
        _, made = go([Act(do="pid", note=note)], root, isolate=zygote)
        seen.append([int(pid) for pid in (made["act"].path / "text").read_text().split()])
    (first, parent), (second, same) = seen
    assert parent == same != os.getpid()
    assert first != second


def test_modules_of_later_stages_are_imported_while_one_runs(root: Path, zygote: Zygote) -> None:
    found = []
    for number, kind in enumerate((Early, Act)):
        stage = kind(do="find_module", note="this")
        _, made = go([stage], root / str(number), isolate=zygote)
        found.append((made["act"].path / "text").read_text())
    assert found == ["False", "True"]


def test_inputs_facts_events_and_summaries_cross_over(
    root: Path, tmp_path: Path, zygote: Zygote
) -> None:
    source = tmp_path / "model.txt"
    source.write_text("abc")
    events: list[Event] = []
    _, made = go(demo(source), root, isolate=zygote, events=events)
    assert (made["tune"].path / "records").read_text() == "ABC" * 4
    assert Progress(stage="lower", message="folding") in events
    assert events[-1].model_dump()["summary"] == "4 trials"
    assert go(demo(source), root)[1] == made


def test_a_refusal_keeps_its_class_and_message(root: Path, zygote: Zygote) -> None:
    with pytest.raises(ModelError, match=r"^opset 99\nis new$"):
        go([Act(do="refuse", note="opset 99\nis new")], root, isolate=zygote)


def test_an_unexpected_exception_keeps_its_traceback(root: Path, zygote: Zygote) -> None:
    with pytest.raises(Bug, match=r"(?s)do_raise.*RuntimeError: oh"):
        go([Act(do="raise", note="oh")], root, isolate=zygote)


@pytest.mark.fault("B14", "G12")
def test_a_crash_takes_only_its_child_down(root: Path, zygote: Zygote) -> None:
    with pytest.raises(Killed) as caught:
        go([Act(do="segfault")], root, isolate=zygote)
    lines = str(caught.value).splitlines()
    assert lines[0] == "stage 'act' was killed by SIGSEGV"
    assert lines[1] == "  | about to crash?[31m"
    log = Path(lines[2].removeprefix("  whole output: "))
    assert log.read_bytes() == b"about to crash\x1b[31m\n"
    assert go([Act(do="write")], root, isolate=zygote)[0] == ["run act"]


def test_a_child_that_ends_without_a_word_is_a_failure(root: Path, zygote: Zygote) -> None:
    with pytest.raises(Killed, match="ended with status 3 and no result"):
        go([Act(do="exit")], root, isolate=zygote)


def test_a_flood_of_output_is_cut(root: Path, zygote: Zygote) -> None:
    go([Act(do="flood")], root, isolate=zygote)
    (log,) = root.glob("logs/act-*")
    assert log.stat().st_size < 1.1 * 2**20
    assert log.read_bytes().endswith(b"xxxthe end\n")
    assert b"bytes left out]" in log.read_bytes()


def act(do: str, folder: Path) -> None:
    with Zygote(preload=()) as zygote:
        go([Act(do=do)], folder / "store", isolate=zygote)


@pytest.mark.fault("C7")
@pytest.mark.parametrize("do", ["fill", "flood"])
def test_a_full_disk_in_a_child_is_said_in_a_line(tmp_path: Path, do: str) -> None:
    """Where the child writes, and where what it prints is logged."""
    outcomes = list(limits(tmp_path, partial(act, do), step=400_000))
    assert len(outcomes) == 4
    for n, outcome in enumerate(outcomes[:-1]):
        assert outcome.code == 5
        assert re.fullmatch(rf"{outcome.folder}/\S+: File too large", outcome.said) or n == 0
        assert go([Act(do="write")], outcome.folder / "store")[0] == ["run act"]


@pytest.mark.fault("C19")
def test_too_few_descriptors_for_a_child_are_said_in_a_line(tmp_path: Path) -> None:
    outcomes = list(descriptors(tmp_path, partial(act, "write")))
    assert len(outcomes) > 8
    for outcome in outcomes[:-1]:
        assert outcome.code == 5
        assert re.fullmatch(
            rf"({outcome.folder}/\S+|cannot start a process): Too many open files", outcome.said
        )
        assert go([Act(do="write")], outcome.folder / "store")[0] == ["run act"]


@pytest.mark.fault("C11")
def test_a_store_that_is_deleted_meanwhile_is_said_in_a_line(root: Path, zygote: Zygote) -> None:
    with pytest.raises(StoreError, match=rf"{root}/tmp/\S+: deleted while a stage used it"):
        go([Act(do="delete")], root, isolate=zygote)
    assert go([Act(do="write")], root, isolate=zygote)[0] == ["run act"]


@pytest.mark.fault("G12")
@pytest.mark.parametrize("who", ["child", "zygote", "helper"])
def test_a_process_that_stays_stopped_is_given_up(
    root: Path, zygote: Zygote, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "_GLANCE", 0.05)
    with pytest.raises(Killed) as caught:
        go([Act(do="freeze", note=who)], root, isolate=zygote)
    first = "stage 'act' was stopped by a signal; it was ended after 0.6 s of that"
    assert str(caught.value).splitlines()[0] == first
    assert go([Act(do="write")], root, isolate=zygote)[0] == ["run act"]


@pytest.mark.fault("J7")
def test_a_stage_without_an_end_is_ended(
    root: Path, zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolate, "_GLANCE", 0.05)
    monkeypatch.setattr(Act, "seconds", 1.0)
    with pytest.raises(Killed) as caught:
        go([Act(do="hang", note=str(tmp_path / "pids"))], root, isolate=zygote)
    first = "stage 'act' was ended: it had no result after 1 s"
    assert str(caught.value).splitlines()[0] == first
    assert wait_for_end([int(pid) for pid in (tmp_path / "pids").read_text().split()]) == []
    assert go([Act(do="write")], root, isolate=zygote)[0] == ["run act"]


def test_a_process_that_was_stopped_and_goes_on_is_waited_for(
    root: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([True] * 11 + [False, True])
    monkeypatch.setattr(isolate, "_GLANCE", 0.05)
    monkeypatch.setattr(isolate, "any_stopped", lambda _: next(seen, False))
    assert go([Act(do="nap")], root, isolate=zygote)[0] == ["run act"]
    assert next(seen, None) is None


@pytest.mark.fault("G12")
def test_what_a_stage_leaves_running_is_ended(root: Path, zygote: Zygote) -> None:
    _, made = go([Act(do="leave")], root, isolate=zygote)
    assert wait_for_end([int((made["act"].path / "text").read_text())]) == []


@pytest.mark.fault("D19")
@pytest.mark.parametrize("module", ["no_such_module", "tests.pipeline.crash_on_import"])
def test_a_module_that_can_not_be_imported_is_a_setup_error(root: Path, module: str) -> None:
    reason = {"no_such_module": "No module named 'no_such_module'"}.get(module, "SIGSEGV")
    with (
        Zygote(preload=(module,)) as broken,
        pytest.raises(SetupError, match=rf"cannot import {module}: .*{reason}"),
    ):
        go([Act(do="write")], root, isolate=broken)


def test_nothing_is_started_for_a_cached_run(root: Path) -> None:
    go([Act(do="write")], root)
    with Zygote(preload=("no_such_module",)) as broken:
        assert go([Act(do="write")], root, isolate=broken)[0] == ["cached act"]


def hanging(root: Path, note: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a run that hangs in a stage; return it and all that must die with it."""
    program = (
        "import signal\n"
        "from pathlib import Path\n"
        "from tests.pipeline.fakes import Act, go\n"
        "from autopipe.pipeline.isolate import Zygote\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's `&` ignores it
        "with Zygote(preload=()) as z:\n"
        f"  go([Act(do='hang', note={str(note)!r})], Path({str(root)!r}), isolate=z)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not note.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    return process, [int(pid) for pid in note.read_text().split()]


def test_kill_9_leaves_no_process_and_the_scratch(root: Path, tmp_path: Path) -> None:
    process, pids = hanging(root, tmp_path / "pids")
    process.kill()
    process.wait()
    assert wait_for_end(pids) == []
    assert list(root.glob("work/*"))
    assert list(root.glob("tmp/*"))
    with open_store(root):
        pass  # which clears what dead runs had in there, or `no_leaks` would find it


def test_the_stage_dies_with_the_process_it_was_forked_from(root: Path, tmp_path: Path) -> None:
    process, (child, zygote, server) = hanging(root, tmp_path / "pids")
    process.send_signal(signal.SIGSTOP)  # or it would end the child itself
    os.kill(zygote, signal.SIGKILL)
    left = wait_for_end([child])
    process.kill()
    process.wait()
    os.kill(server, signal.SIGKILL)  # sleep(1) does not ask to die with its parent
    assert left == []
    with open_store(root):
        pass


def test_a_run_whose_processes_died_ends(root: Path, tmp_path: Path) -> None:
    process, pids = hanging(root, tmp_path / "pids")
    os.kill(pids[1], signal.SIGKILL)
    assert process.wait(timeout=30) != 0
    assert wait_for_end(pids) == []


def test_an_exception_in_the_parent_ends_all_of_it(root: Path, tmp_path: Path) -> None:
    process, pids = hanging(root, tmp_path / "pids")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert wait_for_end(pids) == []
    assert list(root.glob("work/*"))


def test_a_call_that_takes_too_long_is_late_and_the_next_one_starts_anew(
    zygote: Zygote, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with pytest.raises(Late, match="it had no result after 0 s"):
        zygote.call(nothing, {}, log, lambda _: None, 0.0)
    assert zygote.call(nothing, {}, log, lambda _: None, 60.0) is None
