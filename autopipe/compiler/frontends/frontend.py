"""The frontend protocol, and the table of frontends: one file and one line here per format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from autopipe.compiler.frontends.imported import Imported
from autopipe.compiler.frontends.onnx.frontend import OnnxFrontend
from autopipe.compiler.frontends.tvmscript.frontend import TvmscriptFrontend
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights


class Frontend(Protocol):
    """Reads one file format. Hostile files end in a `ModelError`, never in a crash."""

    def files(self, path: Path) -> Mapping[str, Path]:
        """Return every file the model consists of, by a name that does not depend on the folder.

        It has to be quick and must not need the library of the format, since `plan` calls it.
        """

    def load(
        self,
        path: Path,
        *,
        inputs: Mapping[str, Input],
        weights: Weights | None,
        sha256: str | None,
        dimensions: Mapping[str, Dimension] = ...,
    ) -> Imported:
        """Read a model, its inputs bound to the shapes in `inputs`; names are of `dimensions`.

        Raises `ModelError` for a file that can not be used, and `ConfigError` if `inputs` does
        not fit the model.
        """


FRONTENDS: Mapping[str, Frontend] = {"onnx": OnnxFrontend(), "tvmscript": TvmscriptFrontend()}
