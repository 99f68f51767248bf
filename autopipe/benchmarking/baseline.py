"""Times of an earlier build, in a file that is checked in beside its pipeline.

There is no date and no name of a machine in it: the same times are the same bytes, and history is
git's. The device is there, because times of another one say nothing.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from autopipe import foreign
from autopipe.config.document import Document, parse_document
from autopipe.config.frozen import Frozen
from autopipe.config.problem import Diagnostic, build_config_error, format_value
from autopipe.errors import ConfigError
from autopipe.store.canonical import pretty

OURS: Final = "autopipe"
"""The build, among the contenders."""

_LARGEST: Final = 1 << 20
_TOLD: Final = '"rounds"'
"""What a file has that may be quoted in an error: any other is somebody's own."""
_DIGITS: Final = 4
"""Significant digits of a time: more are noise, and make diffs longer."""
_ADVICE: Final = "restore it, or `autopipe baseline write` makes another"

Rounds = Annotated[tuple[Annotated[float, Field(ge=1e-9, le=1e6)], ...], Field(min_length=1)]


class Baseline(Frozen, frozen=True):
    """What a baseline file holds, version 1."""

    version: Literal[1] = 1
    """Version of this grammar."""
    pipeline: str
    """Name of the pipeline."""
    device: dict[str, Any]
    """The machine that measured, as far as it decides how fast code runs."""
    threads: int
    """Threads of the build."""
    rivals: dict[str, str]
    """Versions of the rivals that were timed."""
    rounds: dict[str, Rounds]
    """Median of each round in seconds, by contender."""
    disturbed: bool = False
    """Whether other programs ran beside them: such times are compared with nothing."""

    @field_validator("rounds")
    @classmethod
    def _check_rounds(cls, rounds: dict[str, Rounds], info: ValidationInfo) -> dict[str, Rounds]:
        if rounds.keys() != {OURS, *info.data.get("rivals", ())}:
            raise ValueError(f"there is one of {OURS} and one of each of `rivals`, and no other")
        if len({len(series) for series in rounds.values()}) > 1:
            raise ValueError("one is shorter than another")
        return rounds

    def text(self) -> str:
        """Write it as JSON, the same bytes for the same times."""
        document = self.model_dump(mode="json")
        if not self.disturbed:
            del document["disturbed"]
        document["rounds"] = {
            name: [float(f"{seconds:.{_DIGITS}g}") for seconds in rounds]
            for name, rounds in self.rounds.items()
        }
        return pretty(document)


def read_baseline(path: Path, pipeline: str) -> Baseline:
    """Read the baseline of a pipeline. Raises ConfigError with the line of what is wrong."""
    try:
        data = foreign.read(path, _LARGEST)
        text = data.decode()
    except OSError as error:
        hint = "`autopipe baseline write` makes it from the report of a run"
        raise ConfigError(f"{format_value(path, 4096)}: {error.strerror}; {hint}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{format_value(path, 4096)}:{line}: not UTF-8; {_ADVICE}") from error
    if not text.lstrip().startswith("{") or _TOLD not in text:
        raise ConfigError(
            f"{format_value(path, 4096)}:1:1: no baseline; {_ADVICE}"
        )  # and nothing of it
    baseline = _validate_baseline(parse_document(text), path)
    if baseline.pipeline != pipeline:
        theirs = format_value(baseline.pipeline)
        raise ConfigError(
            f"{format_value(path, 4096)}: times of pipeline {theirs!r}, not of {pipeline!r}"
        )
    return baseline


def _validate_baseline(document: Document, path: Path) -> Baseline:
    """Validate what was read; JSON is YAML, whose reader knows the place of everything."""
    mistakes = [
        Diagnostic(problem.place, problem.field, f"{problem.message}; {_ADVICE}")
        for problem in document.problems
    ]
    if not mistakes:
        try:
            return Baseline.model_validate(document.value)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                at = detail["loc"]
                above = (at[:depth] for depth in range(len(at), -1, -1))
                place = next(document.values[start] for start in above if start in document.values)
                message = detail["msg"].removeprefix("Value error, ")
                mistakes.append(Diagnostic(place, at, f"{message}; {_ADVICE}"))
    raise build_config_error(path, mistakes)
