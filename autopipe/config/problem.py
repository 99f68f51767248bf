"""Problems of a pipeline file with their places."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from autopipe.errors import ConfigError

Field = tuple[str | int, ...]
"""The way to a value: keys of mappings and positions in lists."""

_LONGEST_PATH = 4096
_LONGEST_MESSAGE = 500
_MOST_LINES = 50


class Place(NamedTuple):
    """The place of a value: in the file, or after the option that set it."""

    option: str
    """Empty for the file, otherwise the option, such as `--set a.b`."""
    line: int
    """Counted from 1."""
    column: int
    """Counted from 1."""


class Diagnostic(NamedTuple):
    """One problem in words."""

    place: Place
    field: Field
    message: str

    def line(self, file: Path) -> str:
        """Format the problem on one line, as editors and CI logs expect it."""
        where = (
            self.place.option
            or f"{format_value(file, _LONGEST_PATH)}:{self.place.line}:{self.place.column}"
        )
        field = to_dotted_path(self.field)
        message = format_value(self.message, _LONGEST_MESSAGE)
        if not field or where == f"--set {field}":
            return f"{where}: {message}"
        return f"{where}: {field}: {message}"


def to_dotted_path(field: Field) -> str:
    """Format a field path for `--set`."""
    return ".".join(format_value(name) for name in field)


def format_first_error(error: ValidationError) -> str:
    """Format the first error of a value in one line: the field, and the reason."""
    detail = error.errors(include_url=False)[0]
    message = format_value(detail["msg"].removeprefix("Value error, "), 200)
    return f"{to_dotted_path(detail['loc'])}: {message}".removeprefix(": ")


def format_value(name: object, longest: int = 80) -> str:
    """Shorten a text to a readable length, and escape control characters."""
    text = str(name)
    shortened = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shortened
    )


def build_config_error(file: Path, problems: Iterable[Diagnostic]) -> ConfigError:
    """Build the error with all problems, in the order of the file, then of the options."""
    sorted_problems = sorted(problems, key=lambda problem: problem.place)
    lines = [problem.line(file) for problem in sorted_problems]
    rest = len(lines) - _MOST_LINES
    suffix_lines = [f"{format_value(file, _LONGEST_PATH)}: and {rest} more"] if rest > 0 else []
    return ConfigError("\n".join(lines[:_MOST_LINES] + suffix_lines))
