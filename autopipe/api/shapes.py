"""What each stage leaves, looked at where another machine says that this is it.

Later stages take these files apart, so an artifact that was not made here is taken only if it has
them, and what is read of their documents has its type. What they compute with is not judged:
whoever may write to a remote may give a library that does anything.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, TypeAdapter

from autopipe import foreign
from autopipe.compiler.library.signature import Port, Signature
from autopipe.config.model import Digest
from autopipe.lock.records import Tuned
from autopipe.packaging.contents import opened
from autopipe.tasks.task import Task

_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Model(BaseModel, frozen=True):
    """What later stages read of `model.json`."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    weights: tuple[str, ...]
    source_sha256: Digest
    synthesized: bool
    selects: dict[str, _Count] = {}


class _Row(BaseModel, frozen=True):
    """What is read of a task in `library.json`."""

    name: str
    workload: str
    calls: _Count
    engine: str
    implementation: str
    reason: str
    seconds: _Number | None


class _Library(BaseModel, frozen=True):
    """What later stages read of `library.json`, besides the signature."""

    claimed: dict[str, _Number] = {}
    """Libraries of earlier releases lack it."""
    versions: dict[str, str | None]
    libraries: dict[str, str]
    tasks: tuple[_Row, ...]


class _Output(BaseModel, frozen=True):
    output: str
    failure: str | None


class _Case(BaseModel, frozen=True):
    name: str
    skipped: bool
    outputs: tuple[_Output, ...]


class _Verification(BaseModel, frozen=True):
    """What is read of `verify.json`."""

    reference: str
    reference_version: str
    cases: tuple[_Case, ...]


def _model(folder: Path) -> None:
    _has(folder, "weights.safetensors")
    _module(folder / "module.json")
    _Model.model_validate(_object(folder / "model.json"))


def _optimized(folder: Path) -> None:
    _module(folder / "module.json")
    _module(folder / "transform.json")


def _lowered(folder: Path) -> None:
    _module(folder / "module.json")


def _tasks(folder: Path) -> None:
    listed = foreign.parse((folder / "tasks.json").read_bytes())
    for task in TypeAdapter(tuple[Task, ...]).validate_python(listed):
        if not task.workload.isalnum():
            raise ValueError("a workload is no hash")
        _module(folder / "workloads" / f"{task.workload}.json")


def _records(folder: Path) -> None:
    Tuned.of(folder)


def _library(folder: Path) -> None:
    _has(folder, "lib.so", "weights.safetensors")
    document = _object(folder / "library.json")
    Signature.of(document)
    _Library.model_validate(document)


def _report(folder: Path) -> None:
    _Verification.model_validate(_object(folder / "verify.json"))


def _package(folder: Path) -> None:
    names = [path.name for path in folder.iterdir()]
    if len(names) != 1 or not names[0].endswith(".tar"):
        raise ValueError("it is no package alone")
    with opened(folder / names[0]):
        pass


SHAPES: Final[Mapping[str, Callable[[Path], None]]] = {
    "import": _model, "optimize": _optimized, "lower": _lowered, "tasks": _tasks,
    "tune": _records, "build": _library, "verify": _report, "package": _package,
}  # fmt: skip
"""By the name of the stage. Each raises ValueError or OSError for what its stage does not leave."""


def _has(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).stat()


def _module(path: Path) -> None:
    """See that it may be what TVM writes of a module; it can be larger than other documents."""
    try:
        found = json.loads(path.read_bytes())
    except RecursionError:
        found = None
    sound = isinstance(found, dict) and isinstance(found.get("nodes"), list)
    if not sound or type(found.get("root_index")) is not int:
        raise ValueError(f"{path.name} is no module")


def _object(path: Path) -> dict[str, Any]:
    return foreign.parse_object(path.read_bytes())
