"""Format `onnx`: `.onnx` files, with or without external data."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from autopipe.formats.model_format import ModelFormat

if TYPE_CHECKING:
    from autopipe.compiler.frontends.imported import Imported
    from autopipe.config.dimension import Dimension
    from autopipe.config.model import Input, Weights


class Onnx(ModelFormat):
    """ONNX models, by our frontend on top of TVM's."""

    name = "onnx"
    packages = ("onnx",)
    runs_in_onnx_runtimes = True
    supports_dynamic_shapes = True

    def files(self, path: Path) -> Mapping[str, Path]:
        """Return the model file, and its files of external data by location."""
        from autopipe.compiler.frontends.onnx.reading import source

        return source.list_files(path)

    def load(  # noqa: D102 - as in ModelFormat
        self,
        path: Path,
        *,
        inputs: "Mapping[str, Input]",
        weights: "Weights | None",
        sha256: str | None,
        dimensions: "Mapping[str, Dimension]" = MappingProxyType({}),
    ) -> "Imported":
        from autopipe.compiler.frontends.onnx.load import load_model

        return load_model(path, inputs, weights, sha256, dimensions)


ONNX: Final = Onnx()
