from pathlib import Path

import pytest

from autopipe.report.document import RunReport
from tests.report.reports import full, latency
from tests.support.demo import Cli

pytestmark = pytest.mark.usefixtures("no_leaks")


def report(factor: float = 1.0) -> RunReport:
    """Return a run whose build takes so many times as long as it does otherwise."""
    whole = full()
    assert whole.benchmark is not None
    ours = whole.benchmark.ours.model_copy(update={"latency": latency(factor * 1e-3)})
    slower: RunReport = full(benchmark=whole.benchmark.model_copy(update={"ours": ours}))
    return slower


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "before.json").write_text(report().text())
    (tmp_path / "slower.json").write_text(report(1.2).text())
    (tmp_path / "little.json").write_text(report(1.05).text())
    (tmp_path / "cached.json").write_text(full(benchmark=None).text())
    (tmp_path / "absurd.json").write_text(report(0.0).text())
    return tmp_path


def test_times_are_written_and_compared(cli: Cli, folder: Path) -> None:
    done = cli("baseline", "write", "before.json", "demo.baseline.json")
    assert done.stdout == (
        "wrote demo.baseline.json; name it in `gates.regression.baseline`, and check it in\n"
    )
    text = (folder / "demo.baseline.json").read_text()
    assert cli("baseline", "write", "before.json", "demo.baseline.json").returncode == 0
    assert (folder / "demo.baseline.json").read_text() == text
    done = cli("baseline", "compare", "before.json", "demo.baseline.json")
    assert (done.returncode, done.stderr, done.stdout[:8]) == (0, "", "passed: ")
    done = cli("baseline", "compare", "slower.json", "demo.baseline.json")
    assert (done.returncode, done.stdout, done.stderr[:11]) == (1, "", "error: 1.2 ")
    arguments = ("compare", "slower.json", "demo.baseline.json", "--max", "1.5")
    assert cli("baseline", *arguments).returncode == 0


@pytest.mark.fault("N5")
def test_times_of_a_busy_machine_are_written_with_a_warning(cli: Cli, folder: Path) -> None:
    whole = full()
    assert whole.benchmark is not None
    busy = whole.benchmark.model_copy(update={"disturbed": "other programs took 87% in all"})
    (folder / "busy.json").write_text(full(benchmark=busy).text())
    assert cli("baseline", "write", "before.json", "demo.baseline.json").stderr == ""
    assert "disturbed" not in (folder / "demo.baseline.json").read_text()
    done = cli("baseline", "write", "busy.json", "busy.baseline.json")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: busy.json: other programs ran while these times")
    done = cli("baseline", "compare", "slower.json", "busy.baseline.json")
    assert "time is not compared: other programs disturbed when the baseline was" in done.stderr


def test_what_is_inconclusive_may_fail(cli: Cli, folder: Path) -> None:
    cli("baseline", "write", "before.json", "demo.baseline.json")
    arguments = ("baseline", "compare", "little.json", "demo.baseline.json")
    done = cli(*arguments)
    assert (done.returncode, done.stdout[:14]) == (0, "inconclusive: ")
    done = cli(*arguments, "--on-inconclusive", "fail")
    assert (done.returncode, "these times do not tell" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("write", "cached.json", "b.json"), "has no times, for its run measured none"),
        (("write", "nothing.json", "b.json"), "nothing.json: No such file"),
        (("write", "absurd.json", "b.json"), "the report's times cannot be: rounds."),
        (("compare", "before.json", "b.json"), "b.json: No such file"),
        (("compare", "before.json", "before.json"), "before.json:"),
        (("compare", "before.json", "b.json", "--max", "0"), "--max"),
    ],
)
def test_what_can_not_be_compared(
    cli: Cli, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = cli("baseline", *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "b.json").exists()
