"""Every block of commands in the pages is run, or says why not; every other block is checked."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autopipe.config.load import load
from tests.docs import edits
from tests.docs.blocks import MARKS, PAGES, ROOT, Block, blocks, blocks_of, outside
from tests.docs.commands import Project

LANGUAGES = {"console", "diff", "json", "python", "sh", "text", "toml", "yaml"}
EVERY = [block for page in PAGES for block in blocks(page)]


def does(block: Block) -> bool:
    """Whether a block asks the reader to do something, and nothing says why no test does."""
    return block.language in {"sh", "console", "python", "diff"} and "not run" not in block.marks


BUSY = [page for page in PAGES if any(map(does, blocks(page)))]


def place(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where `pipelines/mlp.yaml` was run, with few trials: pipelines, dist and store."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "project" / "pipelines" / "models").mkdir(parents=True)
    shutil.copy(ROOT / "pipelines/models/mlp.onnx", folder / "project/pipelines/models")
    text = (ROOT / "pipelines" / "mlp.yaml").read_text()
    few = text.replace("{trials: 128,", "{trials: 6,")
    assert few != text
    (folder / "project/pipelines/mlp.yaml").write_text(
        f"{few}  batch: 2\n  measure: {{repeat: 2, min_repeat: 1ms}}\nbenchmark: {{against: []}}\n"
    )
    save = "import numpy; numpy.save('x.npy', numpy.ones((8, 128), 'float32'))"
    subprocess.run([sys.executable, "-c", save], cwd=folder / "project", check=True)
    (block,) = blocks_of("```sh\nautopipe run pipelines/mlp.yaml\n```\n", ROOT / "README.md")
    Project(folder / "project", folder / "store").run(block)
    return folder


@pytest.mark.parametrize("page", BUSY, ids=place)
def test_what_a_page_says_to_do_works(page: Path, built: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(built / "project", project)
    if any("edit" in block.marks for block in blocks(page)):
        shutil.copytree(ROOT / "autopipe", project / "autopipe")
    for block in filter(does, blocks(page)):
        if "file" in block.marks:
            edits.write(block, project)
        elif "edit" in block.marks:
            edits.edit(block, project)
        else:
            Project(project, built / "store").run(block)


def test_every_block_has_a_language_and_known_marks() -> None:
    for block in EVERY:
        assert block.language in LANGUAGES, f"{block}: `{block.language}`"
        assert set(block.marks) <= set(MARKS), str(block)
        if block.language == "diff":
            assert "edit" in block.marks, f"{block}: of which file?"


def hidden(block: Block) -> bool:
    """Whether a block that is not run holds commands."""
    lines = block.text.splitlines()
    return block.language in {"text", ""} and any(
        line.startswith(("$ ", "autopipe ", "make ", "pip ", "python ")) for line in lines
    )


def test_no_commands_hide_where_they_are_not_run() -> None:
    assert [str(block) for block in EVERY if hidden(block)] == []
    for page in PAGES:
        indented = [n for n, line in outside(page) if line.startswith("    ")]
        assert indented == [], f"{place(page)}: indented code; use a fence"


def test_a_hidden_command_would_be_seen() -> None:
    (block,) = blocks_of("```text\n$ autopipe run x.yaml\n```\n", ROOT / "README.md")
    assert hidden(block)


def test_a_wrong_command_or_output_would_be_seen(tmp_path: Path) -> None:
    def run(text: str) -> None:
        for block in blocks_of(text, ROOT / "README.md"):
            Project(tmp_path, tmp_path).run(block)

    run("<!-- exit: 2 -->\n```sh\nautopipe validate missing.yaml\n```\n")
    run("```console\n$ printf '3 trials in 4.5 ms\\n'\n70 trials in 1m 2 s\n```\n")
    for wrong in (
        "```sh\nautopipe validate missing.yaml\n```\n",
        "```console\n$ echo 3 trials\n3 tests\n```\n",
        "```console\n$ printf 'a\\nb\\n'\nb\na\n```\n",
        "```python\nassert False\n```\n",
    ):
        with pytest.raises(AssertionError, match=r"README\.md:1: "):
            run(wrong)


SECTIONS = [b for b in EVERY if b.language == "yaml" and "not run" not in b.marks]


@pytest.mark.parametrize("block", SECTIONS, ids=str)
def test_a_piece_of_a_pipeline_file_is_valid(block: Block, tmp_path: Path) -> None:
    base = {"version": 1, "name": "page", "model": {"path": "model.onnx"}}
    given = yaml.safe_load(block.text) or {}
    (tmp_path / "page.yaml").write_text(json.dumps({**base, **given}))
    load(tmp_path / "page.yaml")


def test_what_is_not_run_says_why() -> None:
    reasons = {str(block): block.marks["not run"] for block in EVERY if "not run" in block.marks}
    assert all(len(reason) > 10 for reason in reasons.values()), reasons
    assert len(reasons) < len(list(filter(does, EVERY)))


def test_runs_are_found() -> None:
    assert len(BUSY) >= 8
    assert os.path.commonpath(BUSY) == str(ROOT)
