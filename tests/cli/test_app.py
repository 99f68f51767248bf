import inspect
import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from autopipe import errors
from autopipe.api import flow, reports, shapes, tasks
from autopipe.cli import app, pipelines
from tests.support.demo import Cli, command, environment

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parents[2]

IMPORTED = (app, flow, pipelines, reports, shapes, tasks)
"""What forks would import anew, each of them."""


def test_a_run_publishes_its_package_and_again_does_nothing(cli: Cli, file: Path) -> None:
    first = cli("run", file)
    assert (first.returncode, first.stderr) == (0, "")
    package = file.with_name("dist") / "demo.tar"
    assert package.read_text() == "abc"
    before = package.stat()
    second = cli("run", file)
    assert second.returncode == 0
    assert re.findall(r"^(\S+) +(\S+)", second.stdout, re.MULTILINE)[:3] == [
        ("import", "cached"),
        ("tasks", "cached"),
        ("package", "cached"),
    ]
    after = package.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    package.write_text("edited")
    cli("run", file)
    assert package.read_text() == "abc"


def test_quiet_says_where_the_package_is(cli: Cli, file: Path) -> None:
    done = cli("run", file, "-q", "--output", "out")
    assert done.stdout == "out/demo.tar\n"


def test_json_is_a_stream_of_events_and_nothing_else(cli: Cli, file: Path) -> None:
    done = cli("run", file, "--json", "--until", "tasks")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == [
        "stage_started", "stage_finished", "stage_started", "stage_finished", "run_finished",
    ]  # fmt: skip
    assert events[-1]["exit_code"] == 0
    assert events[-1]["package"] is None


EXITS: list[tuple[int, list[str], dict[str, Any], str]] = [
    (1, ["run"], {"do": "gate", "note": "steady_share 0.5 < 0.9"}, "error: steady_share 0.5 < 0.9"),
    (2, ["run", "--until", "tusks"], {}, "did you mean `tasks`"),
    (2, ["run", "--force", "tusks"], {}, "did you mean `tasks`"),
    (2, ["run", "--set", "nmae=x"], {}, "did you mean `name`"),
    (2, ["run", "--nonsense"], {}, "No such option"),
    (3, ["run"], {"do": "refuse", "note": "opset 99"}, "error: opset 99"),
    (4, ["run"], {"do": "segfault"}, "error: stage 'act' was killed by SIGSEGV"),
    (4, ["run"], {"do": "nothing"}, "error: stage act ended well but wrote nothing"),
    (5, ["run", "--store", "model.txt"], {}, "model.txt: not a directory"),
    (5, ["run"], {"do": "setup", "note": "no linker"}, "error: no linker"),
    (6, ["run", "--locked"], {}, "demo.lock: is not there"),
    (70, ["run"], {"do": "raise", "note": "oh"}, "RuntimeError: oh"),
]


@pytest.mark.fault("B14", "C17", "D19")
@pytest.mark.parametrize("exits", EXITS, ids=lambda exits: f"{exits[0]} {exits[3]}")
def test_exit_codes(
    cli: Cli, file: Path, exits: tuple[int, list[str], dict[str, Any], str]
) -> None:
    code, arguments, fake, message = exits
    done = cli(arguments[0], file, *arguments[1:], **fake)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert ("Traceback" in done.stderr) == (code == 70)
    assert not file.with_name("dist").exists()


def test_exit_codes_are_those_documented() -> None:
    documented = dict(re.findall(r"- (\w+) .*exit (\d+)", errors.__doc__ or ""))
    kinds = inspect.getmembers(
        errors, lambda value: inspect.isclass(value) and value is not errors.AutopipeError
    )
    actual = {name: str(kind.exit_code) for name, kind in kinds if hasattr(kind, "exit_code")}
    assert documented == actual
    assert {int(code) for code in actual.values()} <= {code for code, *_ in EXITS}
    assert "129, 130 and 143 are SIGHUP, Ctrl-C and SIGTERM" in " ".join(
        (errors.__doc__ or "").split()
    )


def test_debug_shows_the_traceback_of_an_expected_failure(cli: Cli, file: Path) -> None:
    done = cli("run", file, do="refuse", note="opset 99", AUTOPIPE_DEBUG=1)
    assert done.returncode == 3
    assert "Traceback" in done.stderr


@pytest.mark.fault("A13")
def test_a_missing_file_is_a_configuration_error(cli: Cli, file: Path) -> None:
    for name in ("run", "plan", "validate"):
        done = cli(name, file.with_name("nothing.yaml"))
        assert done.returncode == 2
        assert "nothing.yaml" in done.stderr


@pytest.mark.fault("D2", "D3", "M6")
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "sigterm", "sighup"],
)
def test_a_signal_ends_everything_soon(
    cli: Cli, file: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = hanging(file, tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)  # the stage would hang for 60 s
    assert process.returncode == code
    assert err == f"interrupted; resume with: autopipe run {file} --json\n"
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("run_finished", code)
    assert list(tmp_path.glob(".autopipe/work/*/left")), "an interrupted attempt can be resumed"
    for pid in (tmp_path / "pids").read_text().split():
        assert not Path("/proc", pid).exists() or b"Z" in Path("/proc", pid, "stat").read_bytes()
    looked = cli("plan", file, do="hang", note=str(tmp_path / "pids"))
    assert "act        run     interrupted\n" in looked.stdout


def hanging(file: Path, tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    note = tmp_path / "pids"
    process = subprocess.Popen(
        command("run", file, "--json", *options),
        cwd=tmp_path, env=environment(do="hang", note=str(note)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - these tests may run under nohup
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".autopipe/work/*/left")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.fault("E15")
def test_a_reader_that_leaves_is_no_error(file: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("run", file), cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait() == 0
    assert (tmp_path / "dist" / "demo.tar").exists()


def test_plan_and_explain(cli: Cli, file: Path) -> None:
    cli("run", file, do="write", note="a")
    done = cli("plan", file, do="write", note="b")
    assert done.stdout.splitlines() == [
        "import     cached",
        "tasks      cached",
        "act        run     params.note changed from a to b",
        "package    cached",
    ]
    rows = json.loads(cli("plan", file, "--json", do="write", note="b").stdout)
    assert [(row["stage"], row["state"]) for row in rows][2] == ("act", "run")
    done = cli("explain", file, "act", do="write", note="b")
    assert done.stdout == "act would run:\n  params.note changed from a to b\n"
    done = cli("explain", file, "act", do="write", note="a")
    assert done.stdout.startswith(
        "act is in the store and would not run; this is what it depends on:\n{"
    )
    assert cli("explain", file, "atc", do="write").returncode == 2


def test_a_package_of_another_pipeline_file_is_kept(cli: Cli, file: Path) -> None:
    assert cli("run", file).returncode == 0
    other = file.with_name("other.yaml")
    other.write_text(file.read_text() + "tuning: {seed: 1}\n")
    done = cli("run", other)
    assert done.returncode == 2
    said = f"dist/demo.tar is the package of {file}, whose name is demo, too: give other.yaml"
    assert f"error: {said} another `name`, or choose another --output\n" in done.stderr
    assert cli("run", other, "--until", "import").returncode == 0
    assert cli("run", other, "--output", "elsewhere").returncode == 0
    assert cli("run", file).returncode == 0
    file.unlink()
    assert cli("run", other).returncode == 0


def test_cache_ls_names_pipelines_and_a_dry_gc_deletes_nothing(cli: Cli, file: Path) -> None:
    cli("run", file)
    other = file.with_name("other.yaml")
    other.write_text(file.read_text().replace("demo", "other"))
    cli("run", other, "--until", "import")
    rows = [line.split() for line in cli("cache", "ls").stdout.splitlines()]
    assert {(row[1], " ".join(row[6:])) for row in rows} >= {
        ("import", "demo, other"), ("package", "demo"),
    }  # fmt: skip
    done = cli("cache", "gc", "--keep-days", "0", "--dry-run")
    assert done.stdout.startswith(f"would delete {len(rows)} entries, ")
    assert len(cli("cache", "ls").stdout.splitlines()) == len(rows)
    assert cli("cache", "gc", "--keep-days", "0").stdout.startswith(f"deleted {len(rows)} entries")
    assert cli("cache", "ls").stdout == ""


def test_the_usual_options_are_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("--version").stdout == cli("version").stdout
    for arguments in (["-h"], ["run", "-h"], ["cache", "gc", "-h"]):
        done = cli(*arguments)
        assert (done.returncode, done.stdout[:6]) == (0, "Usage:")
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_AUTOPIPE_COMPLETE" in cli("--show-completion", "bash").stdout


def test_a_failure_is_told_where_it_failed(cli: Cli, file: Path) -> None:
    done = cli("run", file, do="setup", note="not here")
    assert done.stdout.splitlines()[-1].endswith(f": {done.stderr.splitlines()[0][7:]}")
    last = json.loads(
        cli("run", file, "--json", do="setup", note="not here").stdout.splitlines()[-1]
    )
    assert last["error"] == done.stderr.removeprefix("error: ").rstrip("\n")


def test_tasks_shows_a_table(cli: Cli, file: Path) -> None:
    assert "fused_dense" in cli("tasks", file).stdout
    task, _ = json.loads(cli("tasks", file, "--json").stdout)
    assert (task["name"], task["calls"]) == ("fused_dense", 2)
    ordered = json.loads(cli("tasks", file, "--json", "--sort", "flops").stdout)
    assert [task["index"] for task in ordered] == [1, 0]


def test_one_task_is_shown_in_full(cli: Cli, file: Path) -> None:
    examine = "tests.pipeline.suicide:examined"
    done = cli("tasks", file, "--show", 1, EXAMINE=examine)
    assert (done.returncode, done.stderr, "large" in done.stdout) == (0, "", True)
    assert "  implementation direct: template contraction\n" in done.stdout
    assert done.stdout.endswith("class Module:\n    pass\n")
    shown = json.loads(cli("tasks", file, "--show", 1, "--json", EXAMINE=examine).stdout)
    assert shown["task"]["name"] == "large"
    assert shown["schedules"] == {
        "rule": 0, "engines": ["autotvm", "ansor"], "fallback": ["static", "default"],
        "templates": {"direct": "contraction", "mine": None},
    }  # fmt: skip
    assert shown["tir"].startswith("# import os")


def test_the_rule_of_a_task_is_the_first_that_matches(cli: Cli, file: Path) -> None:
    rules = "[{match: {op: sort}, engines: [ansor]}, {engines: [autotvm], fallback: [default]}]"
    file.write_text(f"{file.read_text()}schedules: {{rules: {rules}}}\n")
    arguments = ("tasks", file, "--show", 0, "--json")
    done = cli(*arguments, EXAMINE="tests.pipeline.suicide:examined")
    found = json.loads(done.stdout)["schedules"]
    assert (found["rule"], found["engines"], found["fallback"]) == (1, ["autotvm"], ["default"])
    file.write_text(file.read_text().replace(", {engines: [autotvm], fallback: [default]}", ""))
    found = json.loads(cli(*arguments, EXAMINE="tests.pipeline.suicide:examined").stdout)
    assert (found["schedules"]["rule"], found["schedules"]["engines"]) == (None, [])


def test_templates_that_fail_are_a_warning(cli: Cli, file: Path) -> None:
    examine = "tests.pipeline.suicide:examined"
    done = cli("tasks", file, "--show", 1, EXAMINE=examine, AUTOPIPE_OFFERS="no such\nthing")
    assert done.returncode == 0
    assert done.stderr == "warning: tasks: task 1: its templates fail: thing\n"
    assert done.stdout.endswith("class Module:\n    pass\n")


def test_tasks_are_exported_as_scripts(cli: Cli, file: Path, tmp_path: Path) -> None:
    examine = "tests.pipeline.suicide:examined"
    done = cli("tasks", file, "--export", "out", EXAMINE=examine)
    assert done.stdout.splitlines() == ["wrote out/000-fused_dense.py", "wrote out/001-large.py"]
    script = (tmp_path / "out" / "001-large.py").read_text()
    assert script.startswith("# Task 1 of demo: large")
    assert "class Module:\n    pass\n" in script
    compile(script, "001-large.py", "exec")
    done = cli("tasks", file, "--export", "one", "--show", 1, "--json", EXAMINE=examine)
    assert json.loads(done.stdout) == ["one/001-large.py"]
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["001-large.py"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--show", "2"], 2, "error: no task 2; there are 0 to 1"),
        (["--show", "-1", "--json"], 2, "error: no task -1; there are 0 to 1"),
        (["--show", "7", "--export", "new"], 2, "error: no task 7; there are 0 to 1"),
        (["--export", "."], 2, "error: .: is there already; name a new or an empty folder"),
        (["--export", "model.txt"], 2, "error: model.txt: is there already"),
        (["--export", "model.txt/new"], 5, "error: model.txt/new: Not a directory"),
        (["--sort", "shares"], 2, "'shares' is not one of 'index', 'share', 'flops', 'bytes'"),
    ],
)
def test_what_tasks_can_not_show(
    cli: Cli, file: Path, arguments: list[str], code: int, message: str
) -> None:
    done = cli("tasks", file, *arguments, EXAMINE="tests.pipeline.suicide:examined")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not file.with_name("new").exists()


def test_validate_tells_all_that_is_wrong(cli: Cli, file: Path) -> None:
    bad = file.with_name("bad.yaml")
    bad.write_text("version: 1\nname: x\nmodel: {pth: y}\ntarget: {kindd: llvm}\n")
    done = cli("validate", file, bad)
    assert done.returncode == 2
    assert done.stdout == f"{file}: ok\n"
    assert done.stderr.count("bad.yaml:") >= 2


def test_the_store_can_be_looked_after(cli: Cli, file: Path, tmp_path: Path) -> None:
    assert cli("cache", "ls").returncode == 5
    cli("run", file)
    assert [line.split()[1] for line in cli("cache", "ls").stdout.splitlines()] == [
        "import",
        "tasks",
        "package",
    ]
    assert cli("cache", "verify").stdout == "3 sound, 0 damaged\n"
    text = next(tmp_path.glob(".autopipe/objects/*/text"))
    text.chmod(0o600)
    text.write_text("abd")
    done = cli("cache", "verify")
    assert (done.returncode, "2 sound, 1 damaged" in done.stdout) == (1, True)
    assert cli("cache", "gc", "--keep-days", "0").stdout.startswith("deleted 3 entries")
    assert cli("cache", "gc", "--max-size", "2X").returncode == 2
    elsewhere = cli("run", file, "-q", AUTOPIPE_STORE="elsewhere")
    assert elsewhere.returncode == 0
    assert (tmp_path / "elsewhere" / "objects").is_dir()


def test_init_does_not_overwrite(cli: Cli, file: Path) -> None:
    done = cli("init", "model.txt", "-o", file)
    assert done.returncode == 2
    assert "is there already; say --overwrite, or choose another --output" in done.stderr


@pytest.mark.fault("A8")
def test_a_model_in_the_place_of_a_pipeline_file_leads_to_init(cli: Cli, tmp_path: Path) -> None:
    """By its name, whatever is in it, or by how an ONNX file begins."""
    (tmp_path / "a b.onnx").write_text("no model")
    (tmp_path / "model.bin").write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(2_000_000))
    for words in (["run", "model.bin"], ["validate", "a b.onnx"], ["plan", "model.bin"]):
        done = cli(*words)
        name = words[1]
        quoted = f"'{name}'" if " " in name else name
        assert done.returncode == 2
        assert done.stderr == (
            f"error: {name}: a model, and no pipeline file; "
            f"to write one for it: autopipe init {quoted}\n"
        )


@pytest.mark.fault("D19")
def test_tvm_and_ffi_that_do_not_fit_end_in_one_line(cli: Cli, file: Path) -> None:
    examine = "tests.pipeline.suicide:examine"
    done = cli("run", file, do="write", tvm=True, EXAMINE=examine)
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(
        r"error: apache-tvm \S+ does not work with apache-tvm-ffi \S+ \(killed by SIGSEGV\): "
        r"pip install apache-tvm==0\.27\.0\.post1 apache-tvm-ffi==0\.1\.14\.post1",
        line,
    )
    done = cli("plan", file, do="write", tvm=True, EXAMINE=examine)
    assert "act        run     the environment is not examined yet" in done.stdout


def test_the_environment_is_examined_once(cli: Cli, file: Path) -> None:
    examine = "tests.pipeline.suicide:examined"
    assert cli("run", file, do="write", tvm=True, EXAMINE=examine).returncode == 0
    again = cli("run", file, do="write", tvm=True, EXAMINE="tests.pipeline.suicide:examine")
    assert again.returncode == 0
    plan = cli("plan", file, do="write", tvm=True, EXAMINE="tests.pipeline.suicide:examine")
    assert "act        cached" in plan.stdout


def test_no_arguments_show_help(cli: Cli) -> None:
    done = cli()
    assert "Usage:" in done.stdout + done.stderr
    assert cli("--help").returncode == 0


def test_version_and_schema(cli: Cli) -> None:
    assert cli("version").stdout.splitlines()[0].startswith("autopipe ")
    assert json.loads(cli("schema").stdout)["properties"]["version"]
