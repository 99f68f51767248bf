"""What commands print besides the events of a run."""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

from autopipe.report import escape_lines
from autopipe.report.output import Output


def show(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    out = Output(sys.stdout)
    for line in lines:
        out.write(line + "\n")


def show_json(value: object) -> None:
    """Print a JSON value on stdout."""
    show([json.dumps(value, indent=2, sort_keys=True)])


def complain(message: str) -> None:
    """Print a message on stderr, harmless to a terminal."""
    Output(sys.stderr).write(escape_lines(message, 2000) + "\n")


def hang_up() -> None:
    """Let the interpreter end quietly where nobody reads our output any more."""
    with suppress(OSError, ValueError, AttributeError):
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
