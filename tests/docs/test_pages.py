"""What the pages say of the code is so: commands, paths, floors, keys."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from autopipe.environment.facet import Facet
from autopipe.stages import STAGES
from autopipe.tasks.filters import FILTERS
from docs.conf import UNLISTED
from tests.docs import edits
from tests.docs.blocks import PAGES, ROOT, blocks, outside
from tests.docs.command_lines import check

README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
GENERATED = {"faults.md", "guarantees.md", "commands.md", "pipeline-file.md"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
COMMANDS = 40


def spans(page: Path) -> list[str]:
    """Return what stands in backticks in the text of a page."""
    text = "\n".join(line for _, line in outside(page))
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first row begins so."""
    lines = page.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(heading))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    count = 0
    for page in PAGES:
        blocks_of_page = [each.text for each in blocks(page) if each.language in {"sh", "console"}]
        inline = [span for span in spans(page) if span.startswith("autopipe ")]
        count += check("\n".join([*blocks_of_page, *inline]), page.name)
    assert count >= COMMANDS


def test_a_command_that_is_not_there_would_be_seen() -> None:
    for wrong in ("autopipe fly x", "autopipe run x.yaml --high"):
        with pytest.raises(AssertionError):
            check(wrong, "page")


def test_paths_in_the_pages_are_there() -> None:
    wanted = re.compile(r"(?:autopipe|tests|pipelines|benchmarks|requirements|schemas)/[\w./-]*")
    for page in PAGES:
        if page.name in GENERATED:
            continue
        for span in spans(page):
            path = re.fullmatch(r"(?:python )?(" + wanted.pattern + r").*", span)
            if path and not {"*", "<"} & set(span):
                assert (ROOT / path[1]).exists(), f"{page.name}: {span}"


def imports(code: str) -> Iterator[tuple[Path, str]]:
    """Yield what a piece of Python takes from our modules: the file, and the name in it."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autopipe."):
            path = Path(*(node.module or "").split("."))
            for name in node.names:
                yield path, name.name


def defines(root: Path, path: Path, name: str) -> bool:
    """Whether a module has a name, by its text; a package has its modules too."""
    file = root / path.with_suffix(".py")
    if not file.exists():
        if (root / path / f"{name}.py").exists() or (root / path / name).is_dir():
            return True
        file = root / path / "__init__.py"
    return file.exists() and re.search(rf"\b{name}\b", file.read_text()) is not None


def test_what_the_examples_import_and_change_is_there(tmp_path: Path) -> None:
    """The same as `test_blocks.py` finds by running them, told within a second."""
    for page in PAGES:
        root = tmp_path / page.stem
        for block in blocks(page):
            if "edit" in block.marks:
                file = root / block.marks["edit"]
                file.parent.mkdir(parents=True, exist_ok=True)
                if not file.exists():
                    shutil.copy(ROOT / block.marks["edit"], file)
                edits.edit(block, root)
                if file.suffix == ".py":
                    ast.parse(file.read_text())
            elif block.language == "python" and "not run" not in block.marks:
                for path, name in imports(block.text):
                    assert defines(ROOT, path, name), f"{block}: {path} has no {name}"


@pytest.mark.parametrize("way", ["check", "format"])
def test_the_files_of_the_examples_pass_ruff(way: str) -> None:
    ruff = [sys.executable, "-m", "ruff", way, "-q", *["--check"] * (way == "format")]
    files = [each for page in PAGES for each in blocks(page) if "file" in each.marks]
    ours = [each for each in files if each.marks["file"].startswith("autopipe/")]
    assert len(ours) >= 5
    for block in ours:
        at = f"--stdin-filename={block.marks['file']}"
        done = subprocess.run(
            [*ruff, at, "-"],
            input=block.text,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {done.stdout}{done.stderr}"


def test_an_import_of_what_is_not_there_would_be_seen() -> None:
    wrong = "from autopipe.schedules.engines.engine import Known"
    assert [defines(ROOT, path, name) for path, name in imports(wrong)] == [False]


def test_the_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 120] == []


def test_the_index_has_every_page_once() -> None:
    index = ROOT / "docs" / "index.md"
    linked = re.findall(r"^\| \[[^]]+\]\(([\w/-]+)\.md\)", index.read_text(), re.MULTILINE)
    pages = [page.with_suffix("").relative_to(index.parent) for page in PAGES if page != README]
    assert Counter(linked) == Counter({str(page) for page in pages} - {"index", *UNLISTED})


def test_the_floors_are_those_of_the_linter() -> None:
    picture = next(block for block in blocks(ARCHITECTURE) if block.text.startswith("__main__"))
    layers = next(each["layers"] for each in CONTRACTS if each["type"] == "layers")
    assert [set(line.split()) for line in picture.text.splitlines()] == [
        set(layer.split(" | ")) for layer in layers
    ]


def test_every_package_is_told_and_whether_it_may_import_tvm() -> None:
    layers = next(each["layers"] for each in CONTRACTS if each["type"] == "layers")
    without = next(each["source_modules"] for each in CONTRACTS if each["type"] == "forbidden")
    packages = [name for layer in layers for name in layer.split(" | ")]
    table = rows(ARCHITECTURE, "| package | is |")
    assert [name.strip("`") for name, *_ in table] == packages
    for name, _, tvm in table:
        package = name.strip("`")
        if f"autopipe.{package}" in without:
            assert tvm.startswith("no"), package
        elif tvm == "no":
            path = ROOT / "autopipe" / f"{package}"
            files = [path.with_suffix(".py")] if not path.is_dir() else [*path.rglob("*.py")]
            assert not any("import tvm" in file.read_text() for file in files), package


def test_each_fact_is_read_by_the_stages_that_the_page_names() -> None:
    every = {stage.name for stage in STAGES}
    for fact, _, said in rows(ROOT / "docs/concepts/keys.md", "| fact | says |"):
        named = set(re.findall(r"\*(\w+)\*", said))
        told = every if said == "every stage" else every - named if "all but" in said else named
        assert told == {s.name for s in STAGES if Facet(fact.strip("`")) in s.reads}, (
            f"docs/concepts/keys.md, row {fact}: which stages read it?"
        )
    assert len(rows(ROOT / "docs/concepts/keys.md", "| fact | says |")) == len(Facet)


def test_every_stage_is_told() -> None:
    for page, heading in ((ARCHITECTURE, "| stage | does |"), (artifacts(), "| stage | kind |")):
        assert [name.strip("`") for name, *_ in rows(page, heading)] == [s.name for s in STAGES], (
            f"{page.name}: one row a stage, in the order of STAGES"
        )


def test_every_filter_is_told() -> None:
    table = rows(ROOT / "docs/concepts/tasks.md", "| reason | drops |")
    assert [name.strip("`") for name, *_ in table] == [each.name for each in FILTERS], (
        "tasks.md: one row a filter, in the order of FILTERS"
    )


def artifacts() -> Path:
    return ROOT / "docs" / "reference" / "artifacts.md"
