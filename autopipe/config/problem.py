"""What is wrong with a pipeline file, and where."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from autopipe.errors import ConfigError

Field = tuple[str | int, ...]
"""The way to a value: keys of mappings and positions in lists."""

_LONGEST_PATH = 4096
_LONGEST_MESSAGE = 500
_MOST_LINES = 50


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a value was written: in the file, or after the option that set it."""

    option: str
    """Empty for the file, else such as `--set a.b`."""
    line: int
    """Counted from 1."""
    column: int
    """Counted from 1."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong, in words."""

    place: Place
    field: Field
    message: str

    def line(self, file: Path) -> str:
        """Return the problem on one line, as editors and CI logs expect it."""
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
    """Return the field path as `--set` takes it."""
    return ".".join(format_value(name) for name in field)


def format_first_error(error: ValidationError) -> str:
    """Return the first thing that is wrong with a value, in a line: the field, and why."""
    found = error.errors(include_url=False)[0]
    message = format_value(found["msg"].removeprefix("Value error, "), 200)
    return f"{to_dotted_path(found['loc'])}: {message}".removeprefix(": ")


def format_value(name: object, longest: int = 80) -> str:
    """Return the text cut to a readable length, with what a terminal would act on escaped."""
    text = str(name)
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut
    )


def build_config_error(file: Path, problems: Iterable[Diagnostic]) -> ConfigError:
    """Return the error that tells all problems, in the order of the file, then of the options."""
    ordered = sorted(problems, key=lambda problem: problem.place)
    lines = [problem.line(file) for problem in ordered]
    rest = len(lines) - _MOST_LINES
    more = [f"{format_value(file, _LONGEST_PATH)}: and {rest} more"] if rest > 0 else []
    return ConfigError("\n".join(lines[:_MOST_LINES] + more))
