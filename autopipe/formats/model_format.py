"""What is known of a model format without its library."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


def _list_one_file(path: Path) -> Mapping[str, Path]:
    return {"model": path}


class ModelFormat(NamedTuple):
    """One file format of models."""

    name: str
    """Its name, which is `model.format` in a pipeline file."""
    packages: tuple[str, ...] = ()
    """Python packages that read it; their versions enter the key of *import*."""
    runs_in_onnx_runtimes: bool = False
    """Whether *import* writes `reference.onnx`, which reference runtimes and competitors run."""
    supports_dynamic_shapes: bool = False
    """Whether inputs may have dynamic dimensions."""
    list_files: Callable[[Path], Mapping[str, Path]] = _list_one_file
    """Lists every file of a model, by a name that does not depend on the folder. It has to be fast
    and must not need the library of the format, because `plan` calls it."""
