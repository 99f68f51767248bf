"""Commands where something is not there that always is: the folder, a reader, room, a text."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.demo import Cli, command, environment


def shell(line: str, folder: Path, **fake: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; autopipe() {{ {QUOTED} "$@"; }}; {line}'],
        cwd=folder, env=environment(**fake), capture_output=True, check=False, timeout=120,
    )  # fmt: skip


QUOTED = " ".join(f"'{word}'" for word in command())

PLACES: list[tuple[int, str, str]] = [
    (5, "autopipe schema > /dev/full", "error: standard output: No space left on device"),
    (5, "autopipe plan demo.yaml > /dev/full", "error: standard output: No space left"),
    (0, "autopipe run demo.yaml > /dev/full", ""),
    (0, "autopipe schema >&-", ""),
    (0, "autopipe schema | head -1", ""),
    (0, "autopipe run demo.yaml --json | head -c 5", ""),
    (2, "autopipe plan nothing.yaml 2>&-", ""),
    (0, "autopipe run demo.yaml <&- >&- 2>&-", ""),
    (5, 'mkdir x && cd x && rmdir ../x && autopipe run "$OLDPWD/demo.yaml"', "error: the current"),
    (5, 'mkdir x && cd x && rmdir ../x && autopipe cache push y --store "$OLDPWD"', "error: the c"),
    (3, "autopipe verify $'a\\n::error::b.tar'", r"error: a\n::error::b.tar: No such file"),
    (5, "autopipe cache ls --store $'a\\n::error::b'", r"error: a\n::error::b: there is no store"),
    (0, "env -u HOME bash -c 'true' && HOME= autopipe run demo.yaml --report r.json", ""),
    (0, "TMPDIR=/nope autopipe run demo.yaml", ""),
    (5, "autopipe run demo.yaml --report /proc/r.json", "error: /proc/r.json: "),
    (5, "autopipe run demo.yaml --store /proc/s", "error: /proc/s: "),
    (5, "autopipe run demo.yaml --output /proc/d", "error: /proc/d: "),
    (5, "ulimit -n 8; autopipe run demo.yaml", "Too many open files"),
]  # fmt: skip


@pytest.mark.fault("M7")
@pytest.mark.parametrize(("code", "line", "said"), PLACES, ids=lambda each: str(each)[:60])
def test_each_command_ends_in_one_line_and_a_known_code(
    file: Path, code: int, line: str, said: str
) -> None:
    done = shell(line, file.parent, do="write")
    err = done.stderr.decode()
    assert done.returncode == code, err
    assert said in err
    assert len(err.splitlines()) == bool(said), err


@pytest.mark.fault("M7")
def test_a_model_whose_name_is_no_text_is_refused_in_a_line(cli: Cli, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    (folder / "model.txt").write_text("abc")
    (folder / "demo.yaml").write_text("version: 1\nname: demo\nmodel: {path: model.txt}\n")
    done = cli("run", folder / "demo.yaml")
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("model.txt': a name that is not UTF-8\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.fault("M6")
def test_below_nohup_a_run_outlives_its_terminal(file: Path, tmp_path: Path) -> None:
    wait_for: Callable[[], bool] = lambda: bool(list(tmp_path.glob(".autopipe/work/*/left")))  # noqa: E731
    process = subprocess.Popen(
        command("run", file, "--json"), cwd=tmp_path,
        env=environment(do="hang", note=str(tmp_path / "pids")),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # noqa: PLW1509 - as nohup
    )  # fmt: skip
    while not wait_for():
        assert process.poll() is None
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b"resume with" in err
