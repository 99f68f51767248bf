"""Commands on several pipeline files, and on files with several builds."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.support.demo import Cli, command, environment

pytestmark = pytest.mark.usefixtures("no_leaks")


TEXT = "version: 1\nname: demo\nmodel: {path: model.txt}\n"
BUILDS = "builds: {v2: {target: {mcpu: x86-64-v2}}, v3: {target: {mcpu: x86-64-v3}}, me: {}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.txt").write_text("abc")
    (tmp_path / "demo.yaml").write_text(TEXT + BUILDS)
    (tmp_path / "files").mkdir()
    for name in ("one", "two"):
        text = TEXT.replace("demo", name).replace("model.txt", "../model.txt")
        (tmp_path / "files" / f"{name}.yaml").write_text(text)
    return tmp_path


def events(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def stages(told: list[dict[str, Any]], event: str) -> list[tuple[str, str]]:
    return [(each["build"], each["stage"]) for each in told if each["event"] == event]


def test_one_file_builds_for_several_processors_and_imports_once(cli: Cli, folder: Path) -> None:
    told = events(cli("run", "demo.yaml", "--json"))
    labels = ["demo-v2", "demo-v3", "demo-me"]
    assert [each["build"] for each in told if each["event"] == "build_started"] == labels
    assert [each["build"] for each in told if each["event"] == "run_finished"] == labels
    assert stages(told, "stage_finished") == [
        ("demo-v2", "import"), ("demo-v2", "tasks"), ("demo-v2", "package"),
        ("demo-v3", "package"), ("demo-me", "package"),
    ]  # fmt: skip
    assert ("demo-v3", "import") in stages(told, "stage_cached")
    end = told[-1]
    assert (end["event"], end["exit_code"]) == ("builds_finished", 0)
    assert [(each["build"], each["target"], each["package"]) for each in end["builds"]] == [
        ("demo-v2", "x86-64-v2", "dist/demo-v2.tar"),
        ("demo-v3", "x86-64-v3", "dist/demo-v3.tar"),
        ("demo-me", "native", "dist/demo-me.tar"),
    ]  # fmt: skip
    assert all((folder / each["package"]).read_text() == "abc" for each in end["builds"])


def test_lines_and_a_table_for_people(cli: Cli) -> None:
    done = cli("run", "demo.yaml", "files", "--build", "v3", "--build", "me")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "== demo-v3 (1 of 2)  x86-64-v3  demo.yaml"
    assert lines[1].startswith("import     started")
    header, first, second, total = lines[-4:]
    assert header.split() == ["build", "target", "result", "time", "package"]
    assert first.split()[:3] == ["demo-v3", "x86-64-v3", "done"]
    assert second.split()[-1] == "dist/demo-me.tar"
    assert total.startswith("2 builds in ")
    assert total.endswith(": 2 done")


def test_one_build_is_run_as_a_file_without_builds_is(cli: Cli) -> None:
    one = events(cli("run", "demo.yaml", "--build", "v3", "--json"))
    assert one[-1]["event"] == "run_finished"
    assert one[-1]["package"] == "dist/demo-v3.tar"
    assert not any("build" in each for each in one)
    alone = cli("run", "files/one.yaml")
    assert "==" not in alone.stdout
    assert alone.stdout.splitlines()[-1].startswith("done in ")
    said = cli("run", "demo.yaml", "--build", "v4")
    assert (said.returncode, said.stdout) == (2, "")
    assert "error: --build v4: no such build; there is v2, v3, me" in said.stderr


def test_a_folder_is_its_pipeline_files(cli: Cli, folder: Path) -> None:
    done = cli("run", "files", "demo.yaml", "files/one.yaml", "-q")
    names = ("one", "two", "demo-v2", "demo-v3", "demo-me")
    assert done.stdout.splitlines() == [f"dist/{name}.tar" for name in names]
    assert sorted(path.name for path in folder.joinpath("files").iterdir()) == [
        "one.yaml", "two.yaml",
    ]  # fmt: skip


def test_a_build_that_fails_does_not_stop_the_others(cli: Cli, folder: Path) -> None:
    bad = folder / "files" / "bad.yaml"
    bad.write_text(TEXT.replace("demo", "bad").replace("model.txt", "../model.txt"))
    failing = {"do": "refuse", "note": "opset 99", "only": "demo-v3"}
    done = cli("run", "demo.yaml", "files", **failing)
    assert done.returncode == 3
    assert done.stderr == "error: demo-v3: opset 99\n"
    assert "demo-v3  x86-64-v3  failed (3)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(": 5 done, 1 failed (exit code 3)")
    assert sorted(path.stem for path in (folder / "dist").iterdir()) == [
        "bad", "demo-me", "demo-v2", "one", "two",
    ]  # fmt: skip
    gate = {"do": "gate", "note": "too slow", "only": "one"}
    assert cli("run", "demo.yaml", "files", **gate).returncode == 1
    done = cli("run", "demo.yaml", do="raise", note="oh", only="demo-v2")
    assert done.returncode == 70
    assert "RuntimeError: oh" in done.stderr
    assert done.stderr.endswith("error: demo-v2: this is a bug in autopipe\n")


def test_nothing_runs_where_two_would_write_one_package(cli: Cli, folder: Path) -> None:
    (folder / "files" / "two.yaml").write_text((folder / "files" / "one.yaml").read_text())
    done = cli("run", "files", "demo.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: dist/one.tar would be of files/one.yaml and of files/two.yaml: "
        "give each another `name`\n"
    )
    assert not (folder / "dist").exists()
    assert not (folder / ".autopipe").exists()


def test_nothing_runs_where_a_file_is_wrong(cli: Cli, folder: Path) -> None:
    (folder / "files" / "two.yaml").write_text("version: 1\nname: two\n")
    for words in (["run", "--report", "all.xml"], ["plan"], ["validate"]):
        done = cli(words[0], "demo.yaml", "files", *words[1:])
        assert done.returncode == 2
        assert done.stderr == "error: files/two.yaml:1:1: model: is required, and missing\n"
    (case,) = ET.parse(folder / "all.xml").getroot().findall(".//testcase")
    assert (case.get("name"), [each.tag for each in case]) == ("run", ["error"])
    assert not (folder / "dist").exists()
    (folder / "files" / "two.yaml").unlink()
    done = cli("run", "demo.yaml", "files", "--update", "--until", "tasks")
    assert (done.returncode, done.stdout) == (2, "")
    assert "leave out --set and --until" in done.stderr


def test_the_command_line_sets_fields_of_all_builds_or_of_one(cli: Cli) -> None:
    one = ("--set", "builds.v2.target.num_cores=1", "--set", "name=net")
    end = events(cli("run", "demo.yaml", "--json", *one))[-1]
    assert [each["build"] for each in end["builds"]] == ["net-v2", "net-v3", "net-me"]
    every = events(cli("run", "demo.yaml", "--json", "--set", "target.mcpu=haswell"))[-1]
    assert {each["target"] for each in every["builds"]} == {"haswell"}
    done = cli("run", "demo.yaml", "--set", "builds.v2.target.mcpu=haswel")
    assert done.returncode == 2
    assert "--set builds.v2.target.mcpu: 'haswel' is no processor" in done.stderr
    more = cli("run", "files/one.yaml", "-q", "--set", "builds.a.verify=null", "--set",
               "builds.b={}")  # fmt: skip
    assert more.stdout.splitlines() == ["dist/one-a.tar", "dist/one-b.tar"]


def test_reports_hold_all_builds(cli: Cli, folder: Path) -> None:
    reports = [
        word for end in ("json", "xml", "md", "html") for word in ("--report", f"out/all.{end}")
    ]
    failing = {"do": "gate", "note": "too slow", "only": "demo-v3"}
    assert cli("run", "demo.yaml", *reports, **failing).returncode == 1
    document = json.loads((folder / "out" / "all.json").read_text())
    assert (document["exit_code"], len(document["builds"])) == (1, 3)
    assert [each["pipeline"] for each in document["builds"]] == ["demo-v2", "demo-v3", "demo-me"]
    assert [each["exit_code"] for each in document["builds"]] == [0, 1, 0]
    root = ET.parse(folder / "out" / "all.xml").getroot()
    assert root.get("name") == "demo-v2, demo-v3, demo-me"
    assert [suite.get("name") for suite in root] == [
        "demo-v2.stages", "demo-v3.stages", "demo-me.stages",
    ]  # fmt: skip
    assert (root.get("tests"), root.get("failures")) == ("10", "1")
    text = (folder / "out" / "all.md").read_text()
    assert text.startswith("## 3 builds\n\n| build | outcome | time | ratio | to |\n")
    assert "| `demo-v3` | failed (1) |" in text
    assert text.count("\n## `demo-") == 3
    assert (folder / "out" / "all.html").read_text().count("<article") == 3
    said = cli("baseline", "write", "out/all.json", "base.json")
    assert said.returncode == 2
    assert "the report of several builds; `autopipe run FILE --build NAME" in said.stderr
    one = cli("run", "demo.yaml", "--build", "me", "--report", "one.json")
    assert one.returncode == 0
    assert json.loads((folder / "one.json").read_text())["pipeline"] == "demo-me"


def test_plan_tasks_and_explain_know_builds(cli: Cli) -> None:
    cli("run", "demo.yaml", "--build", "v2")
    lines = cli("plan", "demo.yaml", "files/one.yaml").stdout.splitlines()
    assert lines[:4] == [
        "== demo-v2  x86-64-v2  demo.yaml", "import     cached", "tasks      cached",
        "package    cached",
    ]  # fmt: skip
    assert lines[4:8] == [
        "== demo-v3  x86-64-v3  demo.yaml", "import     cached", "tasks      cached",
        "package    run     never run before",
    ]  # fmt: skip
    told = json.loads(cli("plan", "demo.yaml", "files/one.yaml", "--json").stdout)
    assert [(each["build"], each["target"], each["file"]) for each in told][2:] == [
        ("demo-me", "native", "demo.yaml"), ("one", "native", "files/one.yaml"),
    ]  # fmt: skip
    assert [each["state"] for each in told[0]["stages"]] == ["cached"] * 3
    one = json.loads(cli("plan", "demo.yaml", "--build", "v2", "--json").stdout)
    assert one == told[0]["stages"]
    done = cli("explain", "demo.yaml", "package", "--build", "v3")
    assert done.stdout == "package would run:\n  never run before\n"
    for words in ("explain demo.yaml package", "tasks demo.yaml", "doctor demo.yaml"):
        done = cli(*words.split())
        assert done.returncode == 2
        assert done.stderr == "error: demo.yaml: has builds: choose one, --build v2\n"
    assert "fused_dense" in cli("tasks", "demo.yaml", "--build", "v2").stdout


def test_what_one_build_changed_is_compared_with_what_it_did_last(cli: Cli, folder: Path) -> None:
    cli("run", "demo.yaml", do="write", note="a")
    done = cli("plan", "demo.yaml", do="write", note="b", only="demo-v3")
    assert done.stdout.count("params.note changed from a to b") == 1
    (folder / "model.txt").write_text("abd")
    done = cli("explain", "demo.yaml", "import", "--build", "me", do="write", note="a")
    assert "sources.path changed from ba7816bf8f01 to " in done.stdout


def test_validate_takes_folders_and_says_ok_a_file(cli: Cli, folder: Path) -> None:
    done = cli("validate", "files", "demo.yaml")
    assert done.stdout.splitlines() == [
        "files/one.yaml: ok", "files/two.yaml: ok", "demo.yaml: ok",
    ]  # fmt: skip
    (folder / "demo.yaml").write_text(TEXT + BUILDS.replace("x86-64-v3", "x86-64-v33"))
    done = cli("validate", "files", "demo.yaml")
    assert done.returncode == 2
    assert "demo.yaml:4:63: builds.v3.target.mcpu: 'x86-64-v33' is no" in done.stderr


def test_a_remote_is_that_of_all_builds(cli: Cli, folder: Path) -> None:
    file = folder / "demo.yaml"
    for remotes, said in [
        (("{}", "{}"), "demo.yaml: cache.remote is null; name a URL or a folder"),
        (("{cache: {remote: depot}}", "{}"), "demo.yaml: cache.remote differs from build to build"),
    ]:
        file.write_text(f"{TEXT}builds: {{a: {remotes[0]}, b: {remotes[1]}}}\n")
        done = cli("records", "push", "--pipeline", "demo.yaml")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_lock_of_a_build_is_not_that_of_another_file(cli: Cli, folder: Path) -> None:
    (folder / "demo.v3.yaml").write_text(TEXT)
    done = cli("run", "demo.yaml")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "demo.v3.lock is the lock of demo.v3.yaml: give build v3 another name\n"
    )
    assert cli("run", "demo.yaml", "--no-lock").returncode == 0


@pytest.mark.fault("D2")
def test_a_signal_in_the_middle_ends_all_and_leaves_what_is_done(folder: Path) -> None:
    note = folder / "pids"
    process = subprocess.Popen(
        command("run", "demo.yaml", "--json", "--report", "out.xml"),
        cwd=folder, env=environment(do="hang", note=str(note), only="demo-v3"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list(folder.glob(".autopipe/work/*/left")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == ("interrupted; resume with: autopipe run demo.yaml --json --report out.xml\n")
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("builds_finished", 130)
    assert [(each["result"], each["exit_code"]) for each in last["builds"]] == [
        ("done", 0), ("interrupted", 130), ("not_run", None),
    ]  # fmt: skip
    assert [path.name for path in (folder / "dist").iterdir()] == ["demo-v2.tar"]
    names = [suite.get("name") for suite in ET.parse(folder / "out.xml").getroot()]
    assert names == ["demo-v2.stages", "demo-v3.stages"]
