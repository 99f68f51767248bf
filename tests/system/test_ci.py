"""The recipe and the workflow for CI that are handed out work as they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.test_app import environment
from tests.docs.command_lines import calls, check

ROOT = Path(__file__).parents[2]
CI = ROOT / "docs" / "guides" / "ci"
RECIPE = CI / "build.sh"
WORKFLOW = CI / "github-actions.yml"


def workflow() -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(WORKFLOW.read_text())
    return found


def steps() -> Iterator[dict[str, object]]:
    jobs = workflow()["jobs"]
    assert isinstance(jobs, dict)
    for job in jobs.values():
        yield from job["steps"]


def scripts() -> dict[str, str]:
    found = {f"step {n}": str(step["run"]) for n, step in enumerate(steps()) if "run" in step}
    return {**found, "build.sh": RECIPE.read_text()}


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    found = {name: check(script, name) for name, script in scripts().items()}
    assert found["build.sh"] >= 2
    assert sum(found.values()) >= 6


def test_an_option_that_is_not_there_would_be_seen() -> None:
    ((words, options),) = calls('x && autopipe run "$P" --nonsense \\\n  --until a > b; c')
    assert (words[0], options) == ("run", ["--nonsense", "--until"])


def test_the_workflow_runs_nothing_that_a_stranger_writes() -> None:
    assert workflow()["permissions"] == {"contents": "read"}
    for step in steps():
        assert "${{" not in str(step.get("run", "")), "an expression in a script is an injection"
        uses = step.get("uses")
        assert uses is None or re.fullmatch(r"actions/[\w-]+@v\d+", str(uses))
    assert "pull_request_target" not in WORKFLOW.read_text()


def test_scripts_are_shell() -> None:
    for script in scripts().values():
        subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert os.access(RECIPE, os.X_OK)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.txt").write_text("abc")
    (tmp_path / "demo.yaml").write_text("version: 1\nname: demo\nmodel: {path: model.txt}\n")
    return tmp_path


def build(
    folder: Path, autopipe: str, *arguments: str, **fake: object
) -> subprocess.CompletedProcess[str]:
    """Run the recipe where `autopipe` on the path is this script."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "autopipe").write_text(f"#!/bin/sh\n{autopipe}\n")
    (programs / "autopipe").chmod(0o755)
    path = {"PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(
        [RECIPE, "demo.yaml", "out", *arguments], cwd=folder, env=environment(**fake) | path,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


OURS = f'exec {sys.executable} -c "from tests.support.driver import main; main()" "$@"'

STUB = """
echo "$*" >>calls
if [ "$1" = diff ]; then echo "## what changed"; exit 0; fi
mkdir -p out && echo "## a summary" >out/summary.md
exit $CODE
"""


@pytest.mark.usefixtures("no_leaks")
def test_the_recipe_says_that_there_is_no_lock(folder: Path) -> None:
    done = build(folder, OURS)
    assert done.returncode == 6
    assert "autopipe run demo.yaml, and check in what it writes" in done.stderr
    summary = (folder / "out" / "summary.md").read_text()
    assert "Exit code 6:" in summary
    assert "demo.lock" in summary
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "junit.xml", "report.json", "summary.md",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, ""),
        (1, "a check said no: see out/summary.md"),
        (2, "fix it"),
        (3, "fix it"),
        (4, "a retry may help"),
        (5, "a retry may help"),
        (6, "the lock is not current"),
        (70, "ended with exit code 70"),
        (130, "ended with exit code 130"),
    ],
)
def test_the_recipe_ends_as_the_run_does(folder: Path, code: int, said: str) -> None:
    done = build(folder, STUB, CODE=code)
    assert (done.returncode, said in done.stderr, bool(said) == bool(done.stderr)) == (
        code, True, True,
    )  # fmt: skip
    assert (folder / "out" / "summary.md").read_text() == "## a summary\n"
    assert (folder / "calls").read_text() == (
        "run demo.yaml --frozen --output out --report out/report.json --report out/junit.xml "
        "--report out/summary.md\n"
    )


def test_the_recipe_compares_with_the_lock_of_the_other_branch(folder: Path) -> None:
    (folder / "base.lock").write_text("a lock")
    done = build(folder, STUB, "base.lock", CODE=1)
    assert done.returncode == 1
    assert (folder / "out" / "summary.md").read_text() == "## a summary\n\n## what changed\n"
    assert "diff base.lock demo.lock --format markdown\n" in (folder / "calls").read_text()
    (folder / "base.lock").write_text("")
    assert "diff" not in build(folder, STUB.replace("calls", "others"), "base.lock", CODE=0).stderr
    assert "diff" not in (folder / "others").read_text()


def test_the_recipe_says_how_it_is_called() -> None:
    done = subprocess.run([RECIPE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")
