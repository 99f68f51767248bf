"""Check that an artifact of a remote has the files and the document types of its stage.

Later stages parse these files, so an artifact of another machine is accepted only if it has them
and its documents have valid types. Their code is not judged: a writer of a remote can provide a
library that does anything.
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


def _check_model(folder: Path) -> None:
    _require_files(folder, "weights.safetensors")
    _check_module(folder / "module.json")
    ImportedModel.read(folder)
    ModelNodes.read(folder)


def _check_optimized(folder: Path) -> None:
    _check_module(folder / "module.json")
    _check_module(folder / "transform.json")


def _check_lowered(folder: Path) -> None:
    _check_module(folder / WHOLE)
    for sized_module in SizedModules.within(folder).modules:
        _check_module(folder / sized_module.file)


def _check_tasks(folder: Path) -> None:
    task_list = foreign.parse((folder / "tasks.json").read_bytes())
    for task in TypeAdapter(tuple[Task, ...]).validate_python(task_list):
        if not task.workload.isalnum():
            raise ValueError("a workload is no hash")
        _check_module(folder / "workloads" / f"{task.workload}.json")


def _check_records(folder: Path) -> None:
    TuningResult.read(folder)


def _check_library(folder: Path) -> None:
    built_library = BuiltLibrary.read(folder)
    NodeMap.read(folder)
    _require_files(
        folder, LIBRARY, "weights.safetensors", *(one.library for one in built_library.entries)
    )


def _check_report(folder: Path) -> None:
    Verification.read(folder)


def _check_package(folder: Path) -> None:
    names = [path.name for path in folder.iterdir()]
    if len(names) != 1 or not names[0].endswith(".tar"):
        raise ValueError("it is no package alone")
    with opened(folder / names[0]):
        pass


SHAPES: Final[Mapping[str, Callable[[Path], None]]] = {
    "import": _check_model, "optimize": _check_optimized, "lower": _check_lowered,
    "tasks": _check_tasks, "tune": _check_records, "build": _check_library, "verify": _check_report,
    "package": _check_package,
}  # fmt: skip
"""Checks by stage name. Each raises ValueError or OSError for files that its stage cannot write."""


def _require_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).stat()


def _check_module(path: Path) -> None:
    """Check that a file may be TVM's JSON of a module; it can be larger than other documents."""
    try:
        document = json.loads(path.read_bytes())
    except RecursionError:
        document = None
    sound = isinstance(document, dict) and isinstance(document.get("nodes"), list)
    if not sound or type(document.get("root_index")) is not int:
        raise ValueError(f"{path.name} is no module")
