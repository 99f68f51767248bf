"""Times of an earlier build, in a file that is checked in beside its pipeline.

It holds no date and no name of a machine: the same times are the same bytes, and git keeps the
history. It holds the device, because times of different devices are not comparable.
"""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from autopipe import foreign
from autopipe.config.document import Document, parse_document
from autopipe.config.frozen import Frozen
from autopipe.config.problem import Diagnostic, build_config_error, format_value
from autopipe.errors import ConfigError, convert_os_errors
from autopipe.store.canonical import pretty

OURS: Final = "autopipe"
"""Name of the build among the competitors."""

_LARGEST: Final = 1 << 20
_TOLD: Final = '"rounds"'
"""Mark of a baseline; other files are not quoted in errors, as they may be private."""
_DIGITS: Final = 4
"""Significant digits of a time: more are noise, and make diffs longer."""
_ADVICE: Final = "restore it, or `autopipe baseline write` makes another"

Rounds = Annotated[tuple[Annotated[float, Field(ge=1e-9, le=1e6)], ...], Field(min_length=1)]


class Baseline(Frozen, frozen=True):
    """The contents of a baseline file, version 1."""

    version: Literal[1] = 1
    """Version of this grammar."""
    pipeline: str
    """Name of the pipeline."""
    device: dict[str, Any]
    """The facts of the measuring device that determine the speed of code."""
    threads: int
    """Threads of the build."""
    competitors: dict[str, str]
    """Versions of the reference runtimes that were timed."""
    rounds: dict[str, Rounds]
    """Median of each round in seconds, by competitor."""
    disturbed: bool = False
    """Whether other programs disturbed the measurement: such times are not compared."""

    @field_validator("rounds")
    @classmethod
    def _check_rounds(cls, rounds: dict[str, Rounds], info: ValidationInfo) -> dict[str, Rounds]:
        if rounds.keys() != {OURS, *info.data.get("competitors", ())}:
            raise ValueError(f"one series of {OURS} and one per competitor are needed")
        if len({len(series) for series in rounds.values()}) > 1:
            raise ValueError("one is shorter than another")
        return rounds

    def text(self) -> str:
        """Serialize it as JSON, the same bytes for the same times."""
        document = self.model_dump(mode="json")
        if not self.disturbed:
            del document["disturbed"]
        document["rounds"] = {
            name: [float(f"{seconds:.{_DIGITS}g}") for seconds in rounds]
            for name, rounds in self.rounds.items()
        }
        return pretty(document)


def read_baseline(path: Path, pipeline: str) -> Baseline:
    """Read the baseline of a pipeline. Raises ConfigError with the line of the error."""
    hint = "; `autopipe baseline write` makes it from the report of a run"
    with convert_os_errors(ConfigError, format_value(path, 4096), hint):
        data = foreign.read(path, _LARGEST)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{format_value(path, 4096)}:{line}: not UTF-8; {_ADVICE}") from error
    if not text.lstrip().startswith("{") or _TOLD not in text:
        raise ConfigError(
            f"{format_value(path, 4096)}:1:1: no baseline; {_ADVICE}"
        )  # without quoting it
    baseline = _validate_baseline(parse_document(text), path)
    if baseline.pipeline != pipeline:
        theirs = format_value(baseline.pipeline)
        raise ConfigError(
            f"{format_value(path, 4096)}: times of pipeline {theirs!r}, not of {pipeline!r}"
        )
    return baseline


def _validate_baseline(document: Document, path: Path) -> Baseline:
    """Validate a parsed document; JSON is read as YAML, whose parser knows line numbers."""
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
