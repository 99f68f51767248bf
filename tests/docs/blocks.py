"""The blocks of code in the pages, and the marks before them.

A block is a fence with a language. A mark is a comment of HTML on the lines before it, which no
reader of the page sees:

    <!-- not run: it takes minutes -->     the commands are not run, for this reason
    <!-- first: cp -r pipelines branch --> is run before the block
    <!-- exit: 6 -->                       the exit code of the last command, 0 if nothing is said
    <!-- file: my_filter.py -->            the block is this file, not commands
    <!-- edit: autopipe/stages/__init__.py --> the block is a change of this file
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "adr"),
)
MARKS = ("not run", "first", "exit", "file", "edit")

_MARK = re.compile(r"<!-- ([\w ]+): (.+) -->")


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    page: Path
    line: int
    """Line of the fence that opens it, from 1."""
    language: str
    text: str
    marks: Mapping[str, str]

    def __str__(self) -> str:
        """Say where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    yield from blocks_of(page.read_text(), page)


def blocks_of(text: str, page: Path) -> Iterator[Block]:
    """Yield the blocks of the text of a page."""
    marks: dict[str, str] = {}
    inside: list[str] | None = None
    start, language = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside is not None:
            if line.strip() == "```":
                yield Block(page, start, language, "\n".join(inside) + "\n", marks)
                marks, inside = {}, None
            else:
                inside.append(line)
        elif line.lstrip().startswith("```"):
            start, language, inside = number, line.strip().removeprefix("```"), []
        elif mark := _MARK.fullmatch(line):
            marks[mark[1]] = mark[2]
        elif line:
            marks = {}
    assert inside is None, f"{page}:{start}: a fence that is never closed"


def outside(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are in no block, with their numbers."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = line.lstrip().startswith("```")
        if not inside and not fence:
            yield number, line
        inside = inside != fence


def does(block: Block) -> bool:
    """Whether a block asks the reader to do something, and nothing says why no test does."""
    runs = block.language in {"sh", "console", "python", "diff"} or "file" in block.marks
    return runs and "not run" not in block.marks


BUSY = tuple(page for page in PAGES if any(map(does, blocks(page))))
"""The pages of which something is done."""

CHANGING = tuple(page for page in BUSY if any("edit" in block.marks for block in blocks(page)))
"""Those that change our code, which is imported anew for each of their commands."""
