"""The recipe and the workflow for CI that are handed out work as they say."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from autopipe.lock import text
from tests.docs.command_lines import calls, check
from tests.lock.examples import LOCK, TASKS
from tests.support.demo import environment

ROOT = Path(__file__).parents[2]
CI = ROOT / "docs" / "guides" / "ci"
RECIPE = CI / "build.sh"
WORKFLOW = CI / "github-actions.yml"
ACTION = CI / "action.yml"


def workflow() -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(WORKFLOW.read_text())
    return found


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    return found


def steps() -> Iterator[dict[str, object]]:
    jobs = workflow()["jobs"]
    assert isinstance(jobs, dict)
    for job in jobs.values():
        yield from job["steps"]
    yield from action()["runs"]["steps"]


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
        ours = uses == "./.github/actions/autopipe"
        assert uses is None or ours or re.fullmatch(r"actions/[\w-]+@v\d+", str(uses))
    assert "pull_request_target" not in WORKFLOW.read_text()


def test_scripts_are_shell() -> None:
    for script in scripts().values():
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
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


def test_the_workflow_gives_the_action_inputs_that_it_has() -> None:
    used = [step for step in steps() if step.get("uses") == "./.github/actions/autopipe"]
    assert used
    for step in used:
        given = step["with"]
        assert isinstance(given, dict)
        assert given.keys() <= action()["inputs"].keys()
        assert "pipeline" in given
    assert len(ACTION.read_text().splitlines()) < 80


class Job:
    """A job that runs the steps of the action in a folder, as GitHub would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temp = folder / "temp"
        self.temp.mkdir()
        self.summary = self.temp / "summary"
        programs = folder / "bin"
        programs.mkdir()
        for name, script in (("autopipe", OURS), ("gh", 'printf "%s\\n" "$@" >gh.txt')):
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        self.path = f"{programs}:{os.environ['PATH']}"
        self.values: dict[str, str] = {}

    def run(self, base: str = "", **inputs: str) -> int:
        """Return the exit code of the first step that fails, or 0; outputs are in `values`."""
        defaults = {"base": base, "token": "secret"}
        for name, one in action()["inputs"].items():
            default = defaults.get(name, str(one.get("default", "")))
            self.values[f"inputs.{name}"] = inputs.get(name, default)
        for step in action()["runs"]["steps"]:
            condition = step.get("if", "''")
            assert condition in {"''", "inputs.comment != ''"}
            if condition != "''" and not self.values["inputs.comment"]:
                continue
            if code := self._step(step):
                return code
        return 0

    def _step(self, step: dict[str, Any]) -> int:
        given = {name: self._resolve(value) for name, value in step["env"].items()}
        outputs = self.temp / "outputs"
        outputs.write_text("")
        files = {"GITHUB_OUTPUT": outputs, "GITHUB_STEP_SUMMARY": self.summary,
                 "RUNNER_TEMP": self.temp, "PATH": self.path}  # fmt: skip
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder, env=environment() | given | {k: str(v) for k, v in files.items()},
            check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        for line in outputs.read_text().splitlines():
            name, _, found = line.partition("=")
            self.values[f"steps.{step.get('id')}.outputs.{name}"] = found
        return done.returncode

    def _resolve(self, given: str) -> str:
        return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: self.values[found[1]], given)


def git(folder: Path, *words: str) -> None:
    author = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER")
              for what in ("NAME", "EMAIL")}  # fmt: skip
    subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *words], cwd=folder, check=True,
        env={**os.environ, **author, "GIT_CONFIG_GLOBAL": os.devnull}, capture_output=True,
    )  # fmt: skip


@pytest.mark.usefixtures("no_leaks")
def test_the_action_tells_a_reviewer_what_came_of_a_change(folder: Path) -> None:
    job, comment = Job(folder), folder / "dist" / "comment.md"
    lock = folder / "demo.lock"
    lock.write_text(text.format_lock(LOCK))
    assert job.run(pipeline="demo.yaml", arguments="") == 0
    assert comment.read_text().startswith("### `demo`: run finished\n")
    assert "| latency | not measured by this run |" in comment.read_text()
    assert "| size | 0.0 MiB |" in comment.read_text()
    git(folder, "init")
    git(folder, "add", "demo.lock")
    git(folder, "commit", "-m", "lock")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert job.run(base="main", pipeline="demo.yaml", arguments="") == 0
    assert comment.read_text().startswith("### `demo`: run finished, lock unchanged\n")
    tasks = (TASKS[0].model_copy(update={"engine": "static"}), *TASKS[1:])
    lock.write_text(text.format_lock(LOCK.model_copy(update={"tasks": tasks})))
    assert job.run(base="main", pipeline="demo.yaml", arguments="", comment="7") == 0
    told = comment.read_text()
    assert told.startswith("### `demo`: run finished, lock changed\n")
    assert "- tasks: 1 with another schedule: `fused_matmul_add` (`autotvm` → `static`)\n" in told
    assert (folder / "gh.txt").read_text().split() == [
        "pr", "comment", "7", "--edit-last", "--create-if-none", "--body-file", "dist/comment.md",
    ]  # fmt: skip
    assert job.values["steps.tell.outputs.comment"] == "dist/comment.md"
    summary = (folder / "dist" / "summary.md").read_text()
    assert job.summary.read_text().endswith(f"{told}{summary}")


@pytest.mark.usefixtures("no_leaks")
def test_the_action_ends_as_the_run_does_and_still_tells(folder: Path) -> None:
    job = Job(folder)
    assert job.run(pipeline="demo.yaml") == 6
    assert "demo.lock" in job.summary.read_text()
    assert job.values["steps.build.outputs.code"] == "6"
