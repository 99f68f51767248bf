"""The odd functions, extracted here, and tuned and built once in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from autopipe.config.tasks import Tasks
from autopipe.tasks.filters import apply_filters
from autopipe.tasks.task import Task

ROOT = Path(__file__).parents[2]


@dataclass
class Odd:
    """What became of them."""

    tasks: Mapping[str, Sequence[Task]]
    """As extracted, by branch."""
    folder: Path = field(default_factory=Path)

    def dropped(self, branch: str, **section: object) -> list[str | None]:
        """Return why its tasks are dropped under a section `tasks`; None for those kept."""
        every = [task for tasks in self.tasks.values() for task in tasks]
        found = apply_filters(every, Tasks.model_validate(section))
        reasons = {task.index: task.dropped for task in found}
        return [reasons[task.index] for task in self.tasks[branch]]

    @property
    def output(self) -> str:
        """What the run that tunes and builds all of them printed. Fails if it did not end well."""
        assert self._run.returncode == 0, self._run.stderr[-2000:]
        return self._run.stdout

    @cached_property
    def _run(self) -> subprocess.CompletedProcess[str]:
        # a fork of this process may lack threads of TVM's pool, and would wait for them for ever
        call = "from tests.tasks import odd; odd.main()"
        program: list[str | Path] = [sys.executable, "-c", call, self.folder]
        return subprocess.run(
            program, cwd=ROOT, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip

    def tuned(self, branch: str) -> list[dict[str, Any]]:
        """Return its tasks as `tuning.json` tells of them, when nothing is filtered."""
        return self._rows("tune/tuning.json", branch)

    def built(self, branch: str) -> list[dict[str, Any]]:
        """Return its tasks as `library.json` tells of them."""
        return self._rows("build/library.json", branch)

    def _rows(self, file: str, branch: str) -> list[dict[str, Any]]:
        assert "outputs agree" in self.output
        rows = json.loads((self.folder / file).read_text(encoding="utf-8"))["tasks"]
        names = {task.name for task in self.tasks[branch]}
        return [row for row in rows if row["name"] in names]


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Odd:
    from autopipe.compiler.tasks import extract_tasks
    from tests.tasks import odd

    lowered = odd.lowered()[1]
    branches = odd.branches(lowered)
    tasks: dict[str, list[Task]] = {name: [] for name in odd.BRANCHES}
    for task in extract_tasks(lowered)[0]:
        tasks[branches[task.name]].append(task)
    return Odd(tasks, tmp_path_factory.mktemp("odd"))
