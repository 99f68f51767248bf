"""The ONNX frontend, as light as a plan needs it; the work is in `load`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from autopipe.compiler.frontends.imported import Imported
from autopipe.compiler.frontends.onnx import source
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights


class OnnxFrontend:
    """Reads `.onnx` files, with or without external data."""

    def files(self, path: Path) -> Mapping[str, Path]:
        """Return the model file, and its files of external data by location."""
        return source.files(path)

    def load(
        self,
        path: Path,
        *,
        inputs: Mapping[str, Input],
        weights: Weights | None,
        sha256: str | None,
        dimensions: Mapping[str, Dimension] = MappingProxyType({}),
    ) -> Imported:
        """Read, check, clean up and convert a model; raises `ModelError` or `ConfigError`."""
        from autopipe.compiler.frontends.onnx.load import load

        return load(path, inputs, weights, sha256, dimensions)
