"""The commands in a block, run in a shell, and what they print held against what the page says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import Block

# A size of anything: a number, what it counts if that is a unit, and the next ones: `1m 11s`.
_NUMBER = re.compile(r"\d[\d.,]*(?: ?(?:ns|us|ms|s|m|h|%|B|[KMG]iB)\b)?(?: #)*")
_DIGEST = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,64}\b")


@dataclass(frozen=True)
class Call:
    """One or more lines for the shell, and the lines that the page shows of what they print."""

    script: str
    shown: tuple[str, ...] = ()


def calls(block: Block) -> Iterator[Call]:
    """Yield what a block runs: all of it as one, or each command of a block `console`."""
    if block.language != "console":
        yield Call(block.text)
        return
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: output before the first command"
    for part in parts[1:]:
        command, *printed = part.rstrip("\n").split("\n")
        yield Call(f"{command}\n", tuple(line for line in printed if line.strip()))


@dataclass(frozen=True)
class Project:
    """Where commands are run."""

    folder: Path
    store: Path
    commands: Path = Path(sys.executable).parent
    """Where `autopipe` and `python` are."""

    def run(self, block: Block) -> None:
        """Run a block; it shows what it prints, but for numbers, and for lines left out."""
        if "first" in block.marks:
            self._printed(block, "sh", block.marks["first"], 0)
        every = list(calls(block))
        for call in every:
            code = int(block.marks.get("exit", 0)) if call is every[-1] else 0
            printed = self._printed(block, block.language, call.script, code)
            missing = first_missing(call.shown, printed)
            assert missing is None, f"{block}: not printed here: {missing}\n{printed}"

    def _printed(self, block: Block, language: str, script: str, code: int) -> str:
        path = f"{self.commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        ours = {"PATH": path, "PYTHONPATH": str(self.folder), "AUTOPIPE_STORE": str(self.store)}
        done = subprocess.run(
            ["python", "-"] if language == "python" else ["sh", "-eu"],
            input=script, cwd=self.folder, env={**os.environ, **ours}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, f"{block}: ended with {done.returncode}\n{done.stdout}"
        return done.stdout


def first_missing(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first of the lines that was not printed, in this order, with any numbers."""
    left = iter([blank(line) for line in printed.splitlines()])
    return next((line for line in shown if blank(line) not in left), None)


def blank(line: str) -> str:
    """Return a line with its sizes, times and digests blanked out, and its blanks made one."""
    once = re.sub(r"\s+", " ", _DIGEST.sub("@", line.strip()))
    return re.sub(r"#(?: #)+", "#", _NUMBER.sub("#", once))
