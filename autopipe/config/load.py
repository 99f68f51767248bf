"""Load a `Pipeline` from a pipeline file, or raise one error with all problems of the file."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from autopipe import foreign
from autopipe.config.builds import (
    FIELD,
    build_names,
    join_problems,
    name_build,
    select_build,
)
from autopipe.config.document import Document, find_position, parse_document
from autopipe.config.override import apply_override
from autopipe.config.pipeline import Pipeline
from autopipe.config.problem import Diagnostic, Place, build_config_error, format_value
from autopipe.config.quantity import WRITTEN
from autopipe.config.suggestion import suggest_name
from autopipe.errors import ConfigError, convert_os_errors

_LARGEST = 1_000_000
_MODEL = ".onnx"
_ONNX = tuple(b"\x08" + bytes([version, tag]) for version in range(1, 32) for tag in (0x12, 0x3A))
"""First bytes of an ONNX file: the version of the format, then the producer or the graph."""


Pipelines = dict[str | None, Pipeline]
"""The pipelines of a file by the names of its builds; the key is None without builds."""


def load(path: Path, overrides: Sequence[str] = (), build: str | None = None) -> Pipeline:
    """Load the pipeline of a YAML file, with `--set` overrides such as `tuning.seed=1` applied.

    A file with builds requires the name of one. Raises ConfigError with a line for each problem:
    place, field and remedy.
    """
    pipelines = load_builds(path, overrides)
    if build not in pipelines:
        raise _build_unknown_error(path, build, pipelines)
    return pipelines[build]


def load_builds(path: Path, overrides: Sequence[str] = ()) -> Pipelines:
    """Load the pipelines of all builds of a YAML file. Raises ConfigError."""
    return parse_builds(read_text(path), path, overrides)


def parse_builds(text: str, path: Path, overrides: Sequence[str] = ()) -> Pipelines:
    """Parse the pipelines of all builds from the text of a file.

    An override applies to each build, unless its field is in `builds`.
    """
    document = parse_document(text)
    for setting in filter(_is_of_builds, overrides):
        document = apply_override(document, setting)
    names, complaints = _build_names(document)
    pipelines: Pipelines = {}
    diagnostics_by_build: dict[str | None, list[Diagnostic]] = {}
    for name in names:
        build_document = select_build(document, name)
        for setting in overrides:
            build_document = (
                build_document
                if _is_of_builds(setting)
                else apply_override(build_document, setting)
            )
        pipeline, diagnostics_by_build[name] = _validate_document(name_build(build_document, name))
        pipelines.update({name: pipeline} if pipeline else {})
    complaints += [*document.problems, *join_problems(document, diagnostics_by_build)]
    if complaints:
        raise build_config_error(path, complaints)
    return pipelines


def _is_of_builds(setting: str) -> bool:
    return setting.partition("=")[0].split(".")[0] == FIELD


def _build_names(document: Document) -> tuple[tuple[str | None, ...], list[Diagnostic]]:
    """Return the names of the builds, None for a file without, and the problems."""
    try:
        return build_names(document) or (None,), []
    except ValidationError as error:
        return (None,), _list_problems(document, error)


def _validate_document(document: Document) -> tuple[Pipeline | None, list[Diagnostic]]:
    """Return the pipeline of a document, and its problems."""
    try:
        pipeline = Pipeline.model_validate(document.value, strict=True, context=WRITTEN)
    except ValidationError as error:
        return None, [*document.problems, *_list_problems(document, error)]
    return pipeline, document.problems


def _list_problems(document: Document, error: ValidationError) -> list[Diagnostic]:
    from autopipe.config.complaint import list_problems  # few files have problems

    return list(list_problems(document, error))


def _build_unknown_error(path: Path, build: str | None, pipelines: Pipelines) -> ConfigError:
    names = [name for name in pipelines if name is not None]
    if build is None:
        return ConfigError(
            f"{format_value(path, 4096)}: has builds: choose one, --build {names[0]}"
        )
    hint = suggest_name(build, names, f"it has {', '.join(names) or 'no builds'}")
    return ConfigError(f"{format_value(path, 4096)}: has no build {format_value(build)}{hint}")


def read_text(path: Path) -> str:
    """Read the text of a pipeline file. Raises ConfigError."""
    place, hint = format_value(path, 4096), "; a pipeline file is needed"
    with convert_os_errors(ConfigError, place, hint), foreign.open_regular_file(path) as file:
        data = file.read(_LARGEST + 1)
    if path.suffix.lower() == _MODEL or data.startswith(_ONNX):
        raise ConfigError(
            f"{format_value(path, 4096)}: a model, and no pipeline file; to write one for it: "
            f"autopipe init {format_value(shlex.quote(str(path)), 4096)}"
        )
    if len(data) > _LARGEST:
        raise _build_error(path, 1, 1, "larger than 1 MB, which no pipeline is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        line, column = find_position(before, len(before))
        raise _build_error(path, line, column, "not UTF-8; save the file as UTF-8") from error


def _build_error(path: Path, line: int, column: int, message: str) -> ConfigError:
    return build_config_error(path, [Diagnostic(Place("", line, column), (), message)])
