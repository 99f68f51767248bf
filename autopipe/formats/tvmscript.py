"""Format `tvmscript`: `.py` files of TVMScript, which are parsed and never run."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from autopipe.formats.model_format import ModelFormat

if TYPE_CHECKING:
    from autopipe.compiler.frontends.imported import Imported
    from autopipe.config.dimension import Dimension
    from autopipe.config.model import Input, Weights


class Tvmscript(ModelFormat):
    """A Relax module or a PrimFunc as TVM prints it."""

    name = "tvmscript"

    def load(  # noqa: D102 - as in ModelFormat
        self,
        path: Path,
        *,
        inputs: "Mapping[str, Input]",
        weights: "Weights | None",
        sha256: str | None,
        dimensions: "Mapping[str, Dimension]" = MappingProxyType({}),  # noqa: ARG002 - it has none
    ) -> "Imported":
        from autopipe.compiler.frontends.tvmscript.load import load_tvmscript

        return load_tvmscript(path, inputs, weights, sha256)


TVMSCRIPT: Final = Tvmscript()
