"""The base class of model formats: the interface that all other code uses."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from autopipe.compiler.frontends.imported import Imported
    from autopipe.config.dimension import Dimension
    from autopipe.config.model import Input, Weights


class ModelFormat:
    """One file format of models. Hostile files raise a `ModelError`, and never crash.

    A method imports what it needs when it is called: the description of a format loads neither TVM
    nor the library of the format.
    """

    name: ClassVar[str]
    """Its name, which is `model.format` in a pipeline file."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages that read it; their versions enter the key of *import*."""
    runs_in_onnx_runtimes: ClassVar[bool] = False
    """Whether *import* writes `reference.onnx`, which reference runtimes and competitors run."""
    supports_dynamic_shapes: ClassVar[bool] = False
    """Whether inputs may have dynamic dimensions."""

    def files(self, path: Path) -> Mapping[str, Path]:
        """Return every file of the model, by a name that does not depend on the folder.

        It has to be fast and must not need the library of the format, because `plan` calls it.
        """
        return {"model": path}

    def load(
        self,
        path: Path,
        *,
        inputs: "Mapping[str, Input]",
        weights: "Weights | None",
        sha256: str | None,
        dimensions: "Mapping[str, Dimension]" = MappingProxyType({}),
    ) -> "Imported":
        """Read a model and bind its inputs to the shapes in `inputs`, with names of `dimensions`.

        Raises `ModelError` for a file that cannot be used, and `ConfigError` if `inputs` does
        not fit the model.
        """
        raise NotImplementedError
