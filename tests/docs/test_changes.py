"""The pages that say how to change our code: each command runs on a copy that was changed so."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs import edits
from tests.docs.blocks import CHANGING, ROOT, blocks, does
from tests.docs.commands import Project


@pytest.mark.parametrize("page", CHANGING, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_to_change_works(
    page: Path, built: Path, warm: Callable[..., Path], tmp_path: Path
) -> None:
    for name in ("project", "store"):
        shutil.copytree(built / name, tmp_path / name)
    project = tmp_path / "project"
    shutil.copytree(ROOT / "autopipe", project / "autopipe")
    for block in filter(does, blocks(page)):
        if "file" in block.marks:
            edits.write(block, project)
        elif "edit" in block.marks:
            edits.edit(block, project)
        else:
            Project(project, tmp_path / "store", warm(ours=False)).run(block)
