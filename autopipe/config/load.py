"""A pipeline file to a `Pipeline`, or one error that tells everything that is wrong with it."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from autopipe import foreign
from autopipe.config.complaint import problems
from autopipe.config.document import Document, position, read
from autopipe.config.override import override
from autopipe.config.pipeline import Pipeline
from autopipe.config.problem import Diagnostic, Place, refusal, shown
from autopipe.config.quantity import WRITTEN
from autopipe.errors import ConfigError

_LARGEST = 1_000_000
_MODEL = ".onnx"
_ONNX = tuple(b"\x08" + bytes([version, tag]) for version in range(1, 32) for tag in (0x12, 0x3A))
"""How an ONNX file begins: the version of the format, then the producer or the graph."""


def load(path: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Return the pipeline of a YAML file, with `--set` overrides such as `tuning.seed=1` applied.

    Raises ConfigError with a line for each problem: place, field, and what would be right.
    """
    return parse(read_text(path), path, overrides)


def parse(text: str, path: Path, overrides: Sequence[str] = ()) -> Pipeline:
    """Return the pipeline of the text of a file, like `load`."""
    document = read(text)
    for setting in overrides:
        document = override(document, setting)
    return _validated(document, path)


def _validated(document: Document, path: Path) -> Pipeline:
    complaints = list(document.problems)
    try:
        pipeline = Pipeline.model_validate(document.value, strict=True, context=WRITTEN)
    except ValidationError as error:
        complaints += problems(document, error)
    else:
        if not complaints:
            return pipeline
    raise refusal(path, complaints)


def read_text(path: Path) -> str:
    """Return the text of a pipeline file. Raises ConfigError."""
    try:
        with foreign.opened(path) as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        why = f"{error.strerror}; a pipeline file is needed"
        raise ConfigError(f"{shown(path, 4096)}: {why}") from error
    if path.suffix.lower() == _MODEL or data.startswith(_ONNX):
        raise ConfigError(
            f"{shown(path, 4096)}: a model, and no pipeline file; to write one for it: "
            f"autopipe init {shown(shlex.quote(str(path)), 4096)}"
        )
    if len(data) > _LARGEST:
        raise _refused(path, 1, 1, "larger than 1 MB, which no pipeline is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        line, column = position(before, len(before))
        raise _refused(path, line, column, "not UTF-8; save the file as UTF-8") from error


def _refused(path: Path, line: int, column: int, message: str) -> ConfigError:
    return refusal(path, [Diagnostic(Place("", line, column), (), message)])
