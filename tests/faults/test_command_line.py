"""List A, from the command line: what is wrong with a pipeline file or an option is said, at 2."""

import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from autopipe.api import builds, flow
from autopipe.api.publish import publish_package
from autopipe.errors import ConfigError, StoreError
from autopipe.pipeline.events import StageStarted
from tests.support import driver, forked
from tests.support.demo import command, environment
from tests.support.leaks import PLANTED

GOOD = "version: 1\nname: demo\nmodel: {path: model.txt}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "model.txt").write_text("abc")
    path = tmp_path / "demo.yaml"
    path.write_text(GOOD)
    return path


@pytest.mark.fault("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A9", "A12", "D20")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("tuning: {budget: {trials: 10, trials: 9000}}", ":4:31: .*given twice, first on line 4"),
        ("tuning: {budget: {trails: 10}}", ":4:19: .*did you mean `trials`"),
        ("tuning: &a [*a]", ":4:9: tuning: `&a` is an anchor"),
        ("tuning: " + "[" * 100_000, ":4:58: .*nested too deep"),
        ("verify: !!python/object/apply:os.system [exit]", ":4:9: .*`!!python/object/apply:os.sys"),
        ("verify: {atol: .inf}", ":4:16: .*not a finite number"),
        ("verify: {seed: 1" + "0" * 400 + "}", ":4:16: .*a number of 401 characters"),
        ("benchmark: {timeout: -10s}", ":4:22: .*is not a duration"),
        ("tuning: {budget: {trials: 0}}", ":4:27: .*should be greater than or equal to 1"),
        ("tasks: {include_simple_task: no}", ":4:30: .*write true or false"),
        ("target: {kind: llvmm}", ":4:16: .*did you mean `llvm`"),
        ("tuning: null\ngates: {searched_share: 0.5}", ":5:25: gates.searched_share: "),
        ("build: null", ":4:1: build: unknown key"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(autopipe, file, line, says):
    file.write_text(GOOD + line + "\n")
    done = autopipe("validate", file)
    assert (done.code, done.out) == (2, "")
    assert re.search(re.escape(str(file)) + says, done.err), done.err[:500]
    assert all(len(line) < 1000 for line in done.err.splitlines())


@pytest.mark.fault("A8", "A13")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nothing in it"),
        (b"- version: 1\n", "should be a section of fields"),
        (b"version: 1\n---\nversion: 1\n", "a second document"),
        (b"version: 1\nmodel:\n\tpath: x\n", "a tab"),
        ("name: größe\n".encode("latin-1"), "not UTF-8"),
        (b"name: a\0b\n", "U+0000 is not shown"),
        (b"#" * 50_000_000, "larger than 1 MB"),
        (None, "a folder without pipeline files"),
    ],
    ids=["empty", "list", "two", "tab", "latin-1", "NUL", "50 MB", "folder"],
)
def test_what_is_no_pipeline_file_is_said(autopipe, file, content, says):
    if content is None:
        file = file.with_name("empty")
        file.mkdir(exist_ok=True)
    else:
        file.write_bytes(content)
    for name in ("validate", "plan", "run"):
        done = autopipe(name, file)
        assert done.code == 2
        assert says in done.err
        assert len(done.err.splitlines()) <= 4


@pytest.fixture
def cli(file: Path):
    def run(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        if not env:
            return forked.run(driver.main, arguments, file.parent, environment())
        return subprocess.run(
            command(*arguments), cwd=file.parent, env=environment() | env,
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return run


@pytest.mark.fault("A13", "K6")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [("validate {0}", 2), ("plan {0}", 2), ("run {0}", 2), ("explain {0} import", 2),
     ("tasks {0}", 2), ("verify {0}", 3), ("verify other.tar --lock {0}", 6), ("diff {0} {0}", 2),
     ("infer {0} --input x.npy", 3), ("sign {0} --key {0}", 3)],
)  # fmt: skip
def test_a_pipe_is_not_waited_for(cli, file, arguments, code):
    os.mkfifo(pipe := file.with_name("pipe"))
    done = cli(*arguments.format(pipe.name).split())
    assert done.returncode == code
    assert "not a regular file" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.fault("A10")
def test_a_variable_is_text_and_its_value_is_written_nowhere(cli, file):
    """That nothing below the folder holds the value is what `no_leaks` looks for."""
    name = f"${{{PLANTED}}}.txt"
    file.with_name(name).write_text("abc")
    file.write_text(GOOD.replace("model.txt", f"'{name}'"))
    for arguments in (["run", file], ["run", file, "--force", "import", "--json"], ["plan", file]):
        done = cli(*arguments)
        assert done.returncode == 0, done.stderr
        assert os.environ[PLANTED] not in done.stdout + done.stderr
    file.write_text(GOOD + f"${PLANTED}: 1\n")
    assert f"${PLANTED}: unknown key" in cli("run", file).stderr


@pytest.mark.fault("A11")
@pytest.mark.parametrize("name", ["a folder", "größe-\U0001f680", "two\nlines", "-", "'$(x)`;"])
def test_odd_names_of_folders_work(cli, file, name):
    done = cli("run", file, "--quiet", f"--output={name}")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert (file.parent / name / "demo.tar").read_text() == "abc"


@pytest.mark.fault("A11")
@pytest.mark.parametrize("name", ["model.txt", "model.txt/inside", "/proc/nobody/dist"])
def test_a_folder_that_can_not_be_is_said(cli, file, name):
    done = cli("run", file, "--output", name)
    assert done.returncode == 5
    assert re.fullmatch(f"error: ({name}|/proc/nobody): .+\n", done.stderr)
    assert file.with_name("model.txt").read_text() == "abc"


@pytest.mark.fault("A11")
def test_a_package_that_can_not_be_written_leaves_the_old_one(file, tmp_path, monkeypatch):
    (artifact := tmp_path / "artifact").mkdir()
    (artifact / "demo.tar").write_text("new")
    (output := tmp_path / "dist").mkdir()
    (output / "demo.tar").write_text("before")
    monkeypatch.setattr("shutil.copystat", full)
    with pytest.raises(StoreError, match="No space left"):
        publish_package(artifact, output)
    assert {path.name: path.read_text() for path in output.iterdir()} == {"demo.tar": "before"}


def full(_source: Path, target: Path) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))


@pytest.mark.fault("A14")
def test_a_run_goes_by_what_the_file_said_at_its_start(file, tmp_path, monkeypatch):
    monkeypatch.setattr(builds, "stages_of", driver.stages_of)
    monkeypatch.setattr(flow, "PRELOADED", ())

    def edit(event: object) -> None:
        if isinstance(event, StageStarted):
            file.write_text("version: 2")

    made = flow.run(file, store=tmp_path / "store", output=tmp_path / "dist", emit=edit)
    assert list(made) == ["import", "tasks", "package"]
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["demo.tar"]
    with pytest.raises(ConfigError, match="is not a version"):
        flow.run(file, store=tmp_path / "store", output=tmp_path / "dist")


@pytest.mark.fault("E13", "E15")
def test_a_small_terminal_of_few_letters_is_enough(cli, file):
    """Nothing of a name reaches the terminal as it is."""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "20",
             "TERM": "dumb"}  # fmt: skip
    name = "größe\x1b[2J\u202e"
    done = cli("run", file, "--output", name, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    done_again = cli("run", file, "--until", name, **plain)
    assert done_again.returncode == 2
    for text in (done.stdout, done_again.stderr):
        assert text.isascii()
        assert "\x1b" not in text
