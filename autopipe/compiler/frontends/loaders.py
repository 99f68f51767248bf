"""The functions that load models, one for each format of `autopipe.formats`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from autopipe.compiler.frontends.imported import Imported
from autopipe.compiler.frontends.onnx.load import load_model
from autopipe.compiler.frontends.tvmscript.load import load_tvmscript
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights


class Loader(Protocol):
    """Reads a model file. Hostile files raise a `ModelError`, and never crash."""

    def __call__(
        self,
        path: Path,
        inputs: Mapping[str, Input],
        weights: Weights | None,
        sha256: str | None,
        dimensions: Mapping[str, Dimension] = ...,
    ) -> Imported:
        """Read a model and bind its inputs to the shapes in `inputs`, with names of `dimensions`.

        Raises `ModelError` for a file that cannot be used, and `ConfigError` if `inputs` does
        not fit the model.
        """


LOADERS: Final[Mapping[str, Loader]] = {
    "onnx": load_model,
    "tvmscript": load_tvmscript,
}
"""The loader of each format, by name."""
