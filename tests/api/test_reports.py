import json
import os
import signal
import stat
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from autopipe.api import reports
from autopipe.errors import StoreError
from autopipe.report.document import read_report
from autopipe.report.html.page import build_page
from tests.cli.test_app import hanging
from tests.support.demo import Cli

pytestmark = pytest.mark.usefixtures("no_leaks")


REPORTS = ("--report", "report.json", "--report", "deep/in/junit.xml", "--report", "summary.md",
           "--report", "page.html")  # fmt: skip


def reported(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "report.json").read_text())
    return found


def states(report: dict[str, object]) -> list[tuple[str, str]]:
    stages = report["stages"]
    assert isinstance(stages, list)
    return [(stage["stage"], stage["state"]) for stage in stages]


def test_a_run_leaves_its_reports(cli: Cli, file: Path, tmp_path: Path) -> None:
    done = cli("run", "demo.yaml", *REPORTS)
    assert (done.returncode, done.stderr) == (0, "")
    report = reported(tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert page == build_page(read_report(tmp_path / "report.json"))
    assert (report["pipeline"], report["exit_code"], report["outcome"]) == ("demo", 0, "finished")
    assert states(report) == [(name, "finished") for name in ("import", "tasks", "package")]
    package = report["package"]
    assert isinstance(package, dict)
    assert (package["path"], package["size"]) == ("dist/demo.tar", 3)
    assert ET.parse(tmp_path / "deep" / "in" / "junit.xml").getroot().get("tests") == "3"
    assert (tmp_path / "summary.md").read_text().startswith("## `demo` finished in ")
    mode = stat.S_IMODE((tmp_path / "report.json").stat().st_mode)
    assert mode & 0o044 == 0o044, "others may read it"
    assert cli("run", "demo.yaml", *REPORTS).returncode == 0
    assert states(reported(tmp_path)) == [(n, "cached") for n in ("import", "tasks", "package")]


def test_a_report_names_no_folder_of_this_machine(cli: Cli, file: Path, tmp_path: Path) -> None:
    fakes: tuple[dict[str, object], ...] = (
        {}, {"do": "raise"}, {"do": "refuse", "note": f"{tmp_path}/x.onnx: opset 99"},
    )  # fmt: skip
    for fake in fakes:
        cli("run", "demo.yaml", *REPORTS, **fake)
        for name in ("report.json", "deep/in/junit.xml", "summary.md"):
            text = (tmp_path / name).read_text()
            assert str(tmp_path) not in text
            assert str(Path.home()) not in text
            assert os.environ["PATH"] not in text
    assert reported(tmp_path)["error"] == "./x.onnx: opset 99"


@pytest.mark.parametrize(
    ("fake", "code", "error"),
    [
        ({"do": "gate", "note": "steady_share 0.5 < 0.9"}, 1, "steady_share 0.5 < 0.9"),
        ({"do": "refuse", "note": "opset 99"}, 3, "opset 99"),
        ({"do": "segfault"}, 4, "stage 'act' was killed by SIGSEGV"),
        ({"do": "raise", "note": "oh"}, 70, "RuntimeError: oh"),
    ],
)
def test_a_run_that_fails_leaves_them_too(
    cli: Cli, file: Path, fake: dict[str, str], code: int, error: str
) -> None:
    tmp_path = file.parent
    done = cli("run", "demo.yaml", *REPORTS, **fake)
    assert done.returncode == code
    report = reported(tmp_path)
    assert (report["exit_code"], report["outcome"]) == (code, "failed")
    assert error in str(report["error"])
    assert states(report)[2:] == [("act", "failed"), ("package", "not_run")]
    case = ET.parse(tmp_path / "deep/in/junit.xml").find(".//testcase[@name='act']")
    assert case is not None
    assert [inner.tag for inner in case] == ["failure" if code == 1 else "error"]
    assert error in (tmp_path / "summary.md").read_text()


def test_a_file_that_can_not_be_read_leaves_them_too(cli: Cli, file: Path, tmp_path: Path) -> None:
    file.write_text("version: 1\nnmae: demo\n")
    done = cli("run", "demo.yaml", *REPORTS)
    assert done.returncode == 2
    report = reported(tmp_path)
    assert (report["pipeline"], report["exit_code"], report["stages"]) == (None, 2, [])
    assert "demo.yaml:2:1: nmae" in str(report["error"])
    case = ET.parse(tmp_path / "deep/in/junit.xml").find(".//testcase")
    assert case is not None
    assert (case.get("name"), [inner.tag for inner in case]) == ("run", ["error"])


@pytest.mark.fault("D2", "D3")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_leaves_them_too(
    file: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = hanging(file, tmp_path, "--report", str(tmp_path / "report.json"))
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
    report = reported(tmp_path)
    assert (report["exit_code"], report["outcome"]) == (code, "interrupted")
    assert states(report)[2:] == [("act", "interrupted"), ("package", "not_run")]


def test_the_suffix_says_the_form(cli: Cli, file: Path, tmp_path: Path) -> None:
    done = cli("run", "demo.yaml", "--report", "a.json", "--report", "report.pdf")
    assert done.returncode == 2
    assert "error: --report report.pdf: the suffix says the form; it is one of .json" in done.stderr
    assert not (tmp_path / ".autopipe").exists(), "it is said before anything runs"
    assert not (tmp_path / "a.json").exists()


@pytest.mark.fault("C7")
def test_a_report_that_can_not_be_written_is_an_error(cli: Cli, file: Path, tmp_path: Path) -> None:
    done = cli("run", "demo.yaml", "--report", "model.txt/a.json")
    assert done.returncode == 5
    assert "error: model.txt/a.json: " in done.stderr
    assert (tmp_path / "dist" / "demo.tar").exists(), "the run itself was fine"
    done = cli("run", "demo.yaml", "--report", "model.txt/a.md", do="gate", note="no")
    assert (done.returncode, done.stderr) == (1, "error: no\n"), "the first failure counts"
    assert "warning: report: model.txt/a.md: " in done.stdout
    cli("run", "demo.yaml", "--report", "model.txt/a.md", "--report", "b.md", do="gate", note="no")
    assert (tmp_path / "b.md").exists(), "one that can not be written costs itself"


@pytest.mark.fault("C7")
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "report.json"
    path.write_text("old")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os if call == "fsync" else Path, call, full)
        with pytest.raises(StoreError, match=r"report\.json: No space left on device"):
            reports.write_whole_file(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["report.json"]
    reports.write_whole_file(path, "new")
    assert path.read_text() == "new"
