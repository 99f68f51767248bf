"""Every block of commands in the pages is run, or says why not; every other block is checked."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from autopipe.config.load import load_builds
from tests.docs import edits
from tests.docs.blocks import (
    BUSY,
    CHANGING,
    MARKS,
    PAGES,
    ROOT,
    Block,
    blocks,
    blocks_of,
    does,
    outside,
)
from tests.docs.commands import Project

LANGUAGES = {"c", "console", "diff", "json", "python", "sh", "text", "toml", "yaml"}
EVERY = [block for page in PAGES for block in blocks(page)]


def place(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", sorted({*BUSY} - {*CHANGING}), ids=place)
def test_what_a_page_says_to_do_works(
    page: Path, built: Path, warm: Callable[..., Path], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(built / "project", project)
    for block in filter(does, blocks(page)):
        if "file" in block.marks:
            edits.write(block, project)
        else:
            Project(project, built / "store", warm()).run(block)


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


@pytest.mark.parametrize("way", ["program", "warm"])
def test_a_wrong_command_or_output_would_be_seen(
    way: str, tmp_path: Path, warm: Callable[..., Path]
) -> None:
    commands = warm() if way == "warm" else Path(sys.executable).parent

    def run(text: str) -> None:
        for block in blocks_of(text, ROOT / "README.md"):
            Project(tmp_path, tmp_path, commands).run(block)

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
    load_builds(tmp_path / "page.yaml")


def test_what_is_not_run_says_why() -> None:
    reasons = {str(block): block.marks["not run"] for block in EVERY if "not run" in block.marks}
    assert all(len(reason) > 10 for reason in reasons.values()), reasons
    assert len(reasons) < len(list(filter(does, EVERY)))


def test_runs_are_found() -> None:
    assert len(BUSY) >= 8
    assert {*CHANGING} < {*BUSY}
    assert os.path.commonpath(BUSY) == str(ROOT)
