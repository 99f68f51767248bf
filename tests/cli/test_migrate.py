import os
import stat
import sys

import pytest

from autopipe.__main__ import main
from autopipe.config.migrations import chain
from autopipe.lock import migrations, text
from tests.lock.examples import LOCK
from tests.lock.test_migrations import ADD, older

pytestmark = pytest.mark.usefixtures("no_leaks")
CURRENT = "# why\nversion: 1\nname: demo\nmodel: {path: demo.onnx}\n"
OLD = "# why\nversion: 0  # the first\nname: demo\nmodel: demo.onnx  # the model\n"
NEW = "# why\nversion: 1  # the first\nname: demo\nmodel: {path: demo.onnx}  # the model\n"


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    def run(*arguments, code=0):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["autopipe", "migrate", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        done = capsys.readouterr()
        assert end.value.code == code, done.err
        assert "Traceback" not in done.err
        return done

    return run


@pytest.fixture
def steps(monkeypatch):
    """Steps from versions 0, which never were."""
    real = chain.upgrade
    step = {0: lambda text: text.replace("model: demo.onnx", "model: {path: demo.onnx}")}
    monkeypatch.setattr(chain, "upgrade", lambda text, path: real(text, path, step))
    monkeypatch.setattr(migrations, "STEPS", ADD)


@pytest.fixture
def old(tmp_path, steps):
    path = tmp_path / "demo.yaml"
    path.write_text(OLD)
    path.chmod(0o664)
    return path


def test_current_files_are_left_alone(cli, tmp_path):
    for name, content in (("demo.yaml", CURRENT), ("demo.lock", text.write(LOCK))):
        (tmp_path / name).write_text(content)
    before = [(path.stat(), path.read_bytes()) for path in sorted(tmp_path.glob("demo*"))]
    for option in ([], ["--check"]):
        out = cli("demo.yaml", "demo.lock", *option).out
        assert out == "demo.yaml: version 1, current\ndemo.lock: version 1, current\n"
    after = [(path.stat(), path.read_bytes()) for path in sorted(tmp_path.glob("demo*"))]
    assert [(s.st_ino, s.st_mtime_ns, data) for s, data in after] == [
        (s.st_ino, s.st_mtime_ns, data) for s, data in before
    ]


def test_check_says_what_would_change(cli, old):
    done = cli("demo.yaml", "--check", code=1)
    assert done.out == (
        "demo.yaml: version 0, would be 1\n--- demo.yaml\n+++ demo.yaml\n@@ -1,4 +1,4 @@\n # why\n"
        "-version: 0  # the first\n+version: 1  # the first\n name: demo\n"
        "-model: demo.onnx  # the model\n+model: {path: demo.onnx}  # the model\n"
    )
    assert done.err == "error: 1 file to migrate; `autopipe migrate` does it\n"
    assert old.read_text() == OLD


def test_a_pipeline_file_is_migrated_in_place(cli, old):
    assert cli("demo.yaml").out == "demo.yaml: version 0 -> 1\n"
    assert old.read_text() == NEW
    assert stat.S_IMODE(old.stat().st_mode) == 0o664
    assert cli("demo.yaml").out == "demo.yaml: version 1, current\n"


def test_the_builds_of_a_pipeline_file_are_checked(cli, old):
    old.write_text(f"{OLD}builds: {{a: {{verify: null}}, b: {{}}}}\n")
    cli("demo.yaml")
    old.write_text(f"{OLD}builds: {{a: {{verfy: null}}, b: {{}}}}\n")
    assert "demo.yaml:5:14: builds.a.verfy: unknown key" in cli("demo.yaml", code=2).err


def test_a_lock_is_migrated_in_place(cli, steps, tmp_path):
    path = tmp_path / "demo.lock"
    path.write_text(older())
    assert "-version: 0\n+version: 1\n" in cli("demo.lock", "--check", code=1).out
    assert cli("demo.lock").out == "demo.lock: version 0 -> 1\n"
    assert path.read_text() == text.write(LOCK)


def test_a_link_stays_a_link(cli, old, tmp_path):
    (tmp_path / "link.yaml").symlink_to("demo.yaml")
    cli("link.yaml")
    assert (tmp_path / "link.yaml").is_symlink()
    assert old.read_text() == NEW


@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        ("version: 2\nname: demo\n", 2, "broken:1:10: version: 2 is newer than 1"),
        (text.write(LOCK).replace("version: 1\n", "version: 2\n", 1), 6, "broken:2: version 2"),
        (text.write(LOCK).replace("calls: 2", "calls: 4"), 6, "edited or merged by hand"),
        (text.write(LOCK)[:-30], 6, "cut short"),
        ("<<<<<<< ours\nversion: 1\n=======\n", 6, "broken:1: a merge conflict"),
        ("version: 0\nname: demo\nmodel: 3\n", 2, "model"),
        ("\0\1", 2, "broken:1:1: U+0000 is not shown"),
    ],
)
@pytest.mark.fault("C20")
def test_nothing_is_written_if_one_can_not_be_migrated(cli, old, content, code, reason):
    broken = old.parent / "broken"
    broken.write_text(content)
    assert reason in cli("demo.yaml", "broken", code=code).err
    assert old.read_text() == OLD
    assert broken.read_text() == content


def test_what_is_no_file_is_refused(cli, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "pipe: not a regular file" in cli("pipe", code=2).err
    assert "none: No such file" in cli("none", code=2).err


@pytest.mark.fault("G1")
@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_failed_write_leaves_the_file_as_it_was(cli, old, tmp_path, monkeypatch, call):
    def fail(*arguments, **options):
        if call != "open" or str(arguments[0]).endswith(".part"):
            raise OSError(28, "No space left on device")
        return real(*arguments, **options)

    real = getattr(os, call)
    monkeypatch.setattr(os, call, fail)
    assert "demo.yaml: can not be written: No space left on device" in cli("demo.yaml", code=5).err
    monkeypatch.undo()
    assert old.read_text() == OLD
    assert {path.name for path in tmp_path.iterdir()} == {"demo.yaml", "TMPDIR"}
