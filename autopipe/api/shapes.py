"""What each stage leaves, looked at where another machine says that this is it.

Later stages take these files apart, so an artifact that was not made here is taken only if it has
them, and what is read of their documents has its type. What they compute with is not judged:
whoever may write to a remote may give a library that does anything.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from autopipe import foreign
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.lowering import WHOLE, SizedModules
from autopipe.artifacts.model import ImportedModel
from autopipe.artifacts.model_nodes import ModelNodes, NodeMap
from autopipe.artifacts.signature import LIBRARY
from autopipe.artifacts.tuning import TuningResult
from autopipe.artifacts.verification import Verification
from autopipe.packaging.contents import opened
from autopipe.tasks.task import Task


def _model(folder: Path) -> None:
    _has(folder, "weights.safetensors")
    _module(folder / "module.json")
    ImportedModel.read(folder)
    ModelNodes.read(folder)


def _optimized(folder: Path) -> None:
    _module(folder / "module.json")
    _module(folder / "transform.json")


def _lowered(folder: Path) -> None:
    _module(folder / WHOLE)
    for one in SizedModules.within(folder).modules:
        _module(folder / one.file)


def _tasks(folder: Path) -> None:
    listed = foreign.parse((folder / "tasks.json").read_bytes())
    for task in TypeAdapter(tuple[Task, ...]).validate_python(listed):
        if not task.workload.isalnum():
            raise ValueError("a workload is no hash")
        _module(folder / "workloads" / f"{task.workload}.json")


def _records(folder: Path) -> None:
    TuningResult.read(folder)


def _library(folder: Path) -> None:
    built = BuiltLibrary.read(folder)
    NodeMap.read(folder)
    _has(folder, LIBRARY, "weights.safetensors", *(one.library for one in built.entries))


def _report(folder: Path) -> None:
    Verification.read(folder)


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
